"""Learning curves on the page of an experiment: runs beside each other, and zoom."""

import pytest

from tests.browser.experiments import Experiment
from tests.browser.labelling_page import PATIENCE_MS
from tests.browser.pages import go_to_experiment

pytestmark = pytest.mark.browser


@pytest.fixture
def other(full, service, store):
    """Second experiment with metrics."""
    other = Experiment(store, full.media, f"{full.name}-other")
    for step in range(1, 20):
        store.metrics.append(other.id, 2000 * step, {"true_return": 700.0 - step})
    return other


@pytest.fixture
def page(open_context, service, full, other):
    page = open_context(viewport={"width": 1280, "height": 900}).new_page()
    go_to_experiment(page, service, full)
    return page


def curves(page):
    return page.get_by_label("Learning curves")


def chart(page, title):
    return curves(page).locator("figure").filter(has_text=title)


def test_other_run_is_overlaid_with_legend_and_removed(page, full, other):
    assert chart(page, "True return").locator("path").count() == 1
    page.get_by_label("Compare with another experiment").select_option(other.name)
    legend = curves(page).get_by_role("list", name="Runs").get_by_role("listitem")
    legend.nth(1).wait_for()
    assert [text.strip() for text in legend.all_inner_texts()] == [full.name, other.name]
    paths = chart(page, "True return").locator("path")
    paths.nth(1).wait_for(timeout=PATIENCE_MS)
    colours = paths.evaluate_all("all => all.map(path => getComputedStyle(path).stroke)")
    assert colours[0] != colours[1]
    chart(page, "True return").get_by_text("681").wait_for()
    page.reload()
    legend.nth(1).wait_for(timeout=PATIENCE_MS)
    page.get_by_role("button", name=f"Remove {other.name}").click()
    legend.nth(1).wait_for(state="detached")
    assert "compare" not in page.url


def test_drag_zooms_all_charts_until_reset(page):
    page.get_by_role("button", name="Zoom out").wait_for()
    plot = chart(page, "True return").locator("svg")
    plot.scroll_into_view_if_needed()
    before = chart(page, "Held-out accuracy").locator("svg path").get_attribute("d")
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()
    reset = page.get_by_role("button", name="All steps")
    reset.wait_for()
    path = chart(page, "Held-out accuracy").locator("svg path")
    assert path.get_attribute("d") != before
    reset.click()
    assert path.get_attribute("d") == before


def test_buttons_zoom_without_a_mouse(page):
    zoom_out = page.get_by_role("button", name="Zoom out")
    assert zoom_out.is_disabled()
    page.get_by_role("button", name="Zoom in").press("Enter")
    assert zoom_out.is_enabled()
    zoom_out.press("Enter")
    page.get_by_role("button", name="All steps").wait_for(state="detached")


def test_choice_of_runs_is_read_again_after_a_failure(page, other):
    page.route("**/api/v1/experiments", lambda route: route.abort(), times=1)
    page.reload()
    page.get_by_label("Compare with another experiment").select_option(
        other.name, timeout=PATIENCE_MS
    )


def test_curve_of_an_accuracy_below_the_usual_range_stays_within_the_chart(page, full, store):
    store.metrics.append(full.id, 40_000, {"held_out_accuracy": 0.1})
    page.reload()
    accuracy = chart(page, "Held-out accuracy")
    accuracy.get_by_text("10 %").first.wait_for(timeout=PATIENCE_MS)
    plot, point = (accuracy.locator(part).bounding_box() for part in ("svg", "circle"))
    assert point["y"] + point["height"] < plot["y"] + plot["height"] - 20
