"""The second window with the agent's latest episode."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.browser.labelling_page import PATIENCE_MS, LabellingPage
from tests.browser.pages import go_to_latest_episode

pytestmark = pytest.mark.browser


def end_episode(experiment, step):
    """Report another episode, as a run does."""
    episode = {"clip": experiment.add_model_clip(step), "true_return": 123.0 + step, "step": step}
    rewards = {"predicted_rewards": [0.5] * 30, "predicted_return": 45.6}
    experiment.store.experiments.set_latest_episode(experiment.id, episode | rewards)


@pytest.fixture
def watched(labelling, experiment):
    """Second window, opened by its button beside the labelling page."""
    end_episode(experiment, 1_000)
    with labelling.page.expect_popup() as opened:
        labelling.page.get_by_role("link", name="Watch the agent").click()
    opened.value.get_by_text("After 1k steps").wait_for(timeout=PATIENCE_MS)
    return LabellingPage(opened.value)


def test_window_shows_moving_agent_while_labels_are_given(watched, labelling, experiment):
    assert watched.page.title() == f"Latest episode · {experiment.name} · rl-teacher"
    watched.wait_for_picture(0, lambda picture: picture.std() > 5)
    first = watched.screenshot(0)
    watched.wait_for_picture(0, lambda picture: (picture != first).any())
    answered = labelling.hook("comparisonId")
    labelling.press("ArrowLeft")
    labelling.shown_comparison(other_than=answered)
    labelling.wait_until_sent()
    assert list(experiment.answers()) == [answered]


def test_window_follows_run_after_loop_has_ended(watched, experiment):
    watched.press("5")  # four times as fast
    watched.press(" ")
    assert not watched.hook("isPlaying")
    end_episode(experiment, 2_000)
    watched.page.get_by_text("A newer episode follows").wait_for(timeout=PATIENCE_MS)
    assert watched.page.get_by_text("After 1k steps").is_visible()
    watched.press(" ")
    watched.page.get_by_text("After 2k steps").wait_for()
    watched.page.get_by_text("Newer episodes appear here").wait_for()


def test_newer_episode_is_shown_at_once_on_request(watched, experiment):
    watched.press(" ")
    end_episode(experiment, 2_000)
    watched.page.get_by_role("button", name="Show it now").click(timeout=PATIENCE_MS)
    watched.page.get_by_text("After 2k steps").wait_for()


def test_key_opens_window_and_brings_it_to_the_front(labelling, experiment):
    end_episode(experiment, 1_000)
    with labelling.page.expect_popup() as opened:
        labelling.press("w")
    opened.value.get_by_text("After 1k steps").wait_for(timeout=PATIENCE_MS)
    opened.value.evaluate("window.isKept = true")
    labelling.press("w")
    labelling.page.wait_for_timeout(500)
    assert len(labelling.page.context.pages) == 2
    assert opened.value.evaluate("window.isKept")
    with opened.value.expect_event("close"):
        opened.value.evaluate("setTimeout(() => window.close())")
    with labelling.page.expect_popup():
        labelling.press("w")


def test_window_of_run_without_episode_waits_for_the_first(open_context, service, experiment):
    page = open_context().new_page()
    page.goto(service.link(f"/e/{experiment.name}/watch"))
    page.get_by_text("The first episode appears here").wait_for(timeout=PATIENCE_MS)
    end_episode(experiment, 1_000)
    page.get_by_text("After 1k steps").wait_for(timeout=PATIENCE_MS)


def test_invited_labeler_watches_without_rewards(open_context, service, store, experiment):
    end_episode(experiment, 1_000)
    expires_at = datetime.now(UTC) + timedelta(days=1)
    invite = store.access.invite(experiment=experiment.name, expires_at=expires_at)
    credential = store.access.accept_invite(invite.token, f"Ada of {experiment.name}")[1]
    page = open_context().new_page()
    with page.expect_response(f"**/experiments/{experiment.name}") as response:
        page.goto(f"{service.address.url}/e/{experiment.name}/watch?token={credential}")
    page.get_by_text("After 1k steps").wait_for(timeout=PATIENCE_MS)
    # The browser may have discarded the body, so the same request is made again.
    summary = page.request.get(response.value.url).json()
    assert summary["latest_episode"]["step"] == 1_000
    assert summary["latest_episode"]["true_return"] is None
    assert summary["latest_episode"]["predicted_rewards"] is None
    text = page.locator("body").inner_text()
    assert "1123" not in text.replace(",", "")
    assert "45.6" not in text


def test_owner_sees_no_rewards_that_would_bias_labels(open_context, service, full):
    page = open_context().new_page()
    go_to_latest_episode(page, service, full)
    text = page.locator("body").inner_text()
    assert "240" not in text
    assert "eward" not in text
