"""Slider over the life of the agent on the page of an experiment."""

import pytest

from tests.browser.accessibility import assert_accessible
from tests.browser.conftest import PHONE
from tests.browser.labelling_page import PATIENCE_MS
from tests.browser.pages import go_to_experiment, go_to_finished_run
from tests.browser.test_layout import CUT_OFF_CONTROLS, OVERFLOWING

pytestmark = pytest.mark.browser

REFRESH_MS = 15_000
"""The history is read again after this time."""


def test_keys_on_slider_select_episodes_of_earlier_agents(open_context, service, full):
    page = open_context(viewport=PHONE, reduced_motion="reduce").new_page()
    go_to_experiment(page, service, full)
    card = page.get_by_role("region", name="Episodes of the agent")
    slider = card.get_by_role("slider", name="Agent after")
    slider.wait_for(timeout=PATIENCE_MS)
    assert slider.get_attribute("aria-valuetext") == "29k steps"
    slider.focus()
    page.keyboard.press("ArrowLeft")
    card.get_by_text("Episode at step 8k, true return 120").wait_for()
    card.get_by_text("Predicted reward, return 1.2").wait_for()
    card.get_by_text("--step 8000").wait_for()
    page.keyboard.press("Home")
    card.get_by_text("Episode at step 1k, true return 10").wait_for()
    assert slider.get_attribute("aria-valuetext") == "1k steps"
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(CUT_OFF_CONTROLS) == []
    page.keyboard.press("End")
    card.get_by_text("Latest episode").wait_for()
    assert_accessible(page)


def test_clip_of_an_earlier_agent_is_loaded_again_after_a_failure(open_context, service, full):
    page = open_context(reduced_motion="reduce").new_page()
    page.clock.install()
    go_to_experiment(page, service, full)
    card = page.get_by_role("region", name="Episodes of the agent")
    slider = card.get_by_role("slider", name="Agent after")
    slider.wait_for(timeout=PATIENCE_MS)
    clips = "**/api/v1/clips/**"
    page.route(clips, lambda route: route.abort())
    with page.expect_event("requestfailed"):
        slider.press("ArrowLeft")
    page.unroute(clips)
    page.clock.fast_forward(REFRESH_MS)
    card.get_by_text("Episode at step 8k").wait_for(timeout=PATIENCE_MS)


def test_missing_clip_of_an_earlier_agent_is_reported(open_context, service, full):
    clip = full.store.episodes.all(full.id)[1]["clip"]
    (service.home / "media" / f"clips/{clip}.poses").unlink()
    page = open_context(reduced_motion="reduce").new_page()
    go_to_experiment(page, service, full)
    card = page.get_by_role("region", name="Episodes of the agent")
    slider = card.get_by_role("slider", name="Agent after")
    slider.press("ArrowLeft", timeout=PATIENCE_MS)
    card.get_by_role("alert").get_by_text(f"Clip {clip} cannot be shown.").wait_for()
    assert card.get_by_text("Latest episode").is_visible()
    assert card.get_by_text("Earlier agent").count() == 0
    slider.press("ArrowLeft")
    card.get_by_text("Episode at step 1k").wait_for(timeout=PATIENCE_MS)
    card.get_by_role("alert").wait_for(state="detached")


def test_agent_before_is_selected_in_a_finished_run(open_context, service, full):
    page = open_context(reduced_motion="reduce").new_page()
    go_to_finished_run(page, service, full)
    results = page.get_by_role("region", name="The run is finished")
    results.get_by_text("Before: step 1k, true return 10").wait_for(timeout=PATIENCE_MS)
    results.get_by_role("slider", name="Agent after").press("End")
    results.get_by_text("Before: step 8k").wait_for(timeout=PATIENCE_MS)
    results.get_by_text("After: step 400k").wait_for()
