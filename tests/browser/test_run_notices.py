"""Notices of the pages about the pace of a run, its warnings and its end."""

import pytest

from tests.browser.conftest import PHONE
from tests.browser.labelling_page import PATIENCE_MS
from tests.browser.test_layout import CUT_OFF_CONTROLS, OVERFLOWING

pytestmark = pytest.mark.browser

WARNING = "The reward predictor agreed with only 45% of the latest 20 answers."


@pytest.fixture
def finished(full):
    """Finished run that waits to be extended."""
    late = {"clip": full.add_model_clip(7), "true_return": 990.0, "step": 400_000}
    full.store.experiments.set_latest_episode(full.id, late)
    full.store.metrics.append(full.id, 400_000, {"held_out_accuracy": 0.81, "fresh_accuracy": 0.77})
    full.set_status("finished", "finished; extend it", step=400_000, is_extendable=True)
    return full


def test_finished_screen_shows_results_and_extends_run(open_context, service, finished):
    page = open_context(viewport=PHONE, reduced_motion="reduce").new_page()
    page.goto(service.label_link(finished.name))
    page.get_by_role("heading", name="The run is finished").wait_for(timeout=PATIENCE_MS)
    page.get_by_role("link", name="Extend the run").click()
    results = page.get_by_role("region", name="The run is finished")
    results.get_by_text("Before: step 1k, true return 10").wait_for(timeout=PATIENCE_MS)
    results.get_by_text("After: step 400k, true return 990").wait_for()
    texts = results.locator("dl").inner_text().split("\n")
    assert {"Held-out accuracy", "81 %", "Accuracy on new labels", "77 %", "400,000"} <= set(texts)
    labels, steps = page.get_by_label("Labels in all"), page.get_by_label("Steps in all")
    assert (labels.input_value(), steps.input_value()) == ("90", "600000")
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(CUT_OFF_CONTROLS) == []

    extend = page.get_by_role("button", name="Extend")
    labels.fill("59")
    extend.click()
    assert labels.evaluate("input => input.validity.rangeUnderflow")
    labels.fill("80")
    extend.click()
    page.get_by_text("continues within seconds").wait_for()
    control = finished.store.experiments.control(finished.id)
    assert (control.target_labels, control.target_steps) == (80, 600_000)

    finished.set_status("finished", "finished", step=400_000, is_extendable=False)
    page.get_by_text("Its command has ended").wait_for(timeout=PATIENCE_MS)


def test_labelling_page_shows_missing_labels_warning_and_start_of_training(open_page, experiment):
    store = experiment.store
    store.experiments.describe(experiment.id, "", 60)
    message = "7 more labels until training starts"
    experiment.set_status("waiting", message, step=0, num_missing=7, warnings=[WARNING])
    experiment.ask(2)
    opened = open_page(experiment.name, viewport=PHONE, has_touch=True)
    opened.shown_comparison()
    page = opened.page
    page.get_by_text(message).wait_for()
    page.get_by_text(WARNING).wait_for()
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(CUT_OFF_CONTROLS) == []
    page.get_by_role("button", name="Dismiss the warning").click()
    page.get_by_text(WARNING).wait_for(state="detached")

    page.get_by_label("What should it learn?").fill("Prefer the higher hop.")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("heading", name="Prefer the higher hop.").wait_for(timeout=PATIENCE_MS)
    page.get_by_label("What should it learn?").wait_for(state="detached")

    experiment.set_status("training", "training", step=0)
    page.locator("p").filter(has_text="Training starts").wait_for(timeout=PATIENCE_MS)
    page.locator("[aria-live]").filter(has_text="Training starts.").wait_for()
