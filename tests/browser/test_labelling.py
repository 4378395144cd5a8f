"""Journeys of a labeler: by keyboard and touch, online and offline."""

import pytest

from rl_teacher.clips.answer import Answer
from tests.browser.accessibility import assert_accessible
from tests.browser.conftest import PHONE
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage, text_on
from tests.browser.layout import assert_fits

pytestmark = pytest.mark.browser

LABELS = "**/api/v1/labels"

ANSWER_LEFT_AND_RELOAD = """() => {
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft", bubbles: true}))
    location.reload()
    const begun_ms = performance.now()
    while (performance.now() < begun_ms + 500);
}"""

WARNING = "The reward predictor is right about only 45% of the labels that are held out."


def wait_for_announcement(page, text):
    page.locator("[aria-live]", has_text=text).wait_for(state="attached", timeout=PATIENCE_MS)


def end_episode(experiment, step):
    """Report another episode, as a run does."""
    episode = {"clip": experiment.add_model_clip(step), "true_return": 123.0 + step, "step": step}
    rewards = {"predicted_rewards": [0.5] * 30, "predicted_return": 45.6}
    experiment.store.experiments.set_latest_episode(experiment.id, episode | rewards)


def test_keys_answer_undo_and_play_and_are_left_to_fields_and_dialogs(labelling, experiment):
    page = labelling.page
    answers = {}
    for key, answer in {
        "ArrowLeft": Answer.LEFT,
        "ArrowRight": Answer.RIGHT,
        "ArrowDown": Answer.EQUAL,
        "s": Answer.CANNOT_TELL,
    }.items():
        # Only with another comparison ahead is it announced at once.
        labelling.wait_until("hooks.numAhead > 1")
        answers[labelling.hook("comparisonId")] = answer
        page.keyboard.down(key)
        page.keyboard.down(key)  # A held key repeats.
        page.keyboard.up(key)
        labelling.shown_comparison(other_than=list(answers)[-1])
    wait_for_announcement(page, "tell. Next comparison.")
    labelling.press("z")
    last = list(answers)[-1]
    labelling.wait_for_comparison(last)
    labelling.answer(Answer.EQUAL)
    labelling.wait_until_sent()
    answers[last] = Answer.EQUAL
    assert experiment.answers() == answers
    assert len(experiment.log()) == 6

    labelling.press(" ")
    labelling.wait_until("!hooks.isPlaying")
    labelling.press("r")
    labelling.wait_until("hooks.time_s === 0")
    labelling.press(".")
    labelling.wait_until("Math.abs(hooks.time_s - given) < 1e-6", 1 / 20)
    labelling.press("?")
    page.get_by_role("dialog", name="How to label").wait_for()
    labelling.press("ArrowLeft")
    labelling.press("Escape")
    page.evaluate("document.body.append(document.createElement('input'))")
    page.locator("body > input").focus()
    labelling.press("ArrowLeft")
    assert experiment.answers() == answers


def test_offline_answers_survive_reloads_and_are_sent_once(labelling, experiment):
    page = labelling.page
    labelling.wait_until("hooks.numAhead === 3")
    page.context.set_offline(True)
    answers = {labelling.answer(Answer.LEFT): Answer.LEFT for _ in range(2)}
    assert labelling.hook("outboxLength") == 2
    text_on(page, "The server is unreachable").wait_for()
    page.route(LABELS, lambda route: route.abort())
    page.context.set_offline(False)
    for _ in range(2):
        answers[labelling.shown_comparison()] = Answer.LEFT
        with page.expect_navigation():
            page.evaluate(ANSWER_LEFT_AND_RELOAD)
        assert labelling.shown_comparison() not in answers
    labelling.wait_until("hooks.outboxLength === 4")
    assert experiment.answers() == {}
    page.unroute(LABELS)
    labelling.wait_until_sent()
    assert experiment.answers() == answers
    assert len(experiment.log()) == 4


def test_recent_labels_and_links_open_comparisons_whose_answers_can_change(
    labelling, experiment, service
):
    page = labelling.page
    first, second = (labelling.answer(Answer.LEFT) for _ in range(2))
    next_one = labelling.shown_comparison(other_than=second)
    page.get_by_role("button", name=experiment.title_of(first)).click()
    labelling.wait_for_comparison(first)
    text_on(page, "Your label: left is better").wait_for()
    labelling.answer(Answer.RIGHT)
    labelling.wait_for_comparison(next_one)
    linked = max(experiment.ask(3))
    page.goto(f"{page.url}?comparison={linked}")
    labelling.wait_for_comparison(linked)
    labelling.answer(Answer.EQUAL)
    labelling.wait_until_sent()
    answers = {first: Answer.RIGHT, second: Answer.LEFT, linked: Answer.EQUAL}
    assert experiment.answers() == answers

    tabs = [LabellingPage(page.context.new_page()) for _ in range(2)]
    for tab in tabs:
        tab.page.goto(f"{service.label_link(experiment.name)}&comparison={next_one}")
        tab.wait_for_comparison(next_one)
    tabs[0].answer(Answer.LEFT)
    tabs[0].wait_until_sent()
    tabs[1].answer(Answer.RIGHT)
    tabs[1].page.get_by_role("status").filter(has_text="was rejected").wait_for()
    assert experiment.answers() == {**answers, next_one: Answer.LEFT}


def test_idle_page_shows_one_reason_and_the_agent_and_resumes(open_page, experiment):
    first, second = experiment.ask(2)
    other = f"other of {experiment.name}"
    [held] = experiment.store.leases.claim(experiment.id, other, limit=1, exclude=[second])
    experiment.set_status("waiting", "1 more label until training continues", num_missing=1)
    opened = open_page(experiment.name)
    page = opened.page
    opened.wait_for_comparison(second)
    text_on(page, "1 more label until training continues").wait_for()
    opened.answer(Answer.LEFT)
    text_on(page, "Other labelers have the remaining comparisons").wait_for()
    assert text_on(page, "more label").count() == 0
    assert text_on(page, "1 waiting").count() == 0
    answers = page.get_by_role("group", name="Your label").get_by_role("button")
    assert answers.all_inner_texts() == ["Undo\nZ"]
    wait_for_announcement(page, "Nothing to label right now. Other labelers have")
    experiment.store.leases.release(other, [held.lease])
    opened.wait_for_comparison(first)
    opened.answer(Answer.RIGHT)
    # 60 comparisons over 390,000 steps at 650 steps a second.
    experiment.set_status("training", "Training.", steps_per_second=650.0)
    text_on(page, "Next comparison in about 10 s").wait_for(timeout=PATIENCE_MS)
    end_episode(experiment, 1_000)
    page.get_by_text("Latest episode").wait_for(timeout=PATIENCE_MS)
    opened.wait_for_picture(0, lambda picture: picture.std() > 5)
    image = opened.screenshot(0)
    opened.wait_for_picture(0, lambda picture: (picture != image).any())
    [comparison_id] = experiment.ask()
    opened.wait_for_comparison(comparison_id)


def test_owner_is_asked_warned_and_told_that_training_starts(open_page, experiment):
    experiment.store.experiments.describe(experiment.id, "", 60)
    status = {"step": 0, "num_missing": 7, "problems": {"held_out": WARNING}}
    experiment.set_status("waiting", "7 more labels until training starts", **status)
    experiment.ask(2)
    opened = open_page(experiment.name, viewport=PHONE, has_touch=True)
    opened.shown_comparison()
    page = opened.page
    text_on(page, "7 more labels until training starts").wait_for()
    page.get_by_text(WARNING).wait_for()
    assert_fits(page)
    page.get_by_role("button", name="Dismiss the warning").click()
    page.get_by_text(WARNING).wait_for(state="detached")
    page.reload()
    text_on(page, "7 more labels until training starts").wait_for()
    assert not page.get_by_text(WARNING).is_visible()
    page.get_by_label("What should it learn?").fill("Prefer the higher hop.")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("heading", name="Prefer the higher hop.").wait_for(timeout=PATIENCE_MS)
    opened.press("ArrowLeft")
    text_on(page, "6 more labels until training starts").wait_for()
    experiment.set_status("training", "training", num_fits=1)
    text_on(page, "Training starts").wait_for(timeout=PATIENCE_MS)
    wait_for_announcement(page, "Training starts.")


def test_taps_on_phone_prefer_clips_and_notices_leave_the_controls_free(
    open_page, experiment, service
):
    ids = experiment.ask(3)
    phone = open_page(experiment.name, viewport=PHONE, has_touch=True, is_mobile=True)
    page = phone.page
    answers = {}
    for side, answer in ((0, Answer.LEFT), (1, Answer.RIGHT)):
        answers[phone.shown_comparison()] = answer
        x, y, width, height = phone.pane(side)
        page.touchscreen.tap(x + width / 3, y + height / 2)
        phone.shown_comparison(other_than=list(answers)[-1])
        page.wait_for_timeout(300)  # A second tap sooner is a double tap.
    phone.wait_until_sent()
    assert experiment.answers() == answers
    page.get_by_role("button", name="Help").click()
    page.get_by_role("dialog").get_by_text("Top clip is better").wait_for()
    page.keyboard.press("Escape")
    page.goto(service.link(f"/e/{experiment.name}/label?comparison=999999"))
    notice = page.get_by_role("status").filter(has_text="This comparison cannot be shown")
    notice.wait_for(timeout=PATIENCE_MS)
    assert phone.shown_comparison() in ids
    above = notice.bounding_box()
    for name in ("Top is better", "Pause", "Equal", "Undo"):
        box = page.get_by_role("button", name=name, exact=True).bounding_box()
        assert above["y"] + above["height"] <= box["y"], name
        assert box["y"] + box["height"] <= PHONE["height"]
    assert min(phone.pane(side)[3] for side in (0, 1)) > 180


def test_effect_appears_without_moving_clips_and_opens_contradicted_label(open_page, experiment):
    ids = experiment.ask(6)
    labelling = open_page(experiment.name, viewport=PHONE)
    page = labelling.page
    answered = [labelling.answer(Answer.LEFT) for _ in range(3)]
    labelling.wait_until_sent()
    labelling.shown_comparison()
    panes = [labelling.pane(side) for side in (0, 1)]
    stored = experiment.store.labels.answers(answered)
    returns = dict(zip(answered, [(1.0, 0.0), (-1.0, 2.0), (0.5, 0.0)], strict=True))
    fitted = {
        each: pair if stored[each] is Answer.LEFT else pair[::-1] for each, pair in returns.items()
    }
    # The predictor has an opinion about the comparisons that are asked, too.
    experiment.set_predictions({**fitted, **dict.fromkeys(ids[3:], (9.0, -9.0))})
    wait_for_announcement(page, "It agrees with 2 of your 3 latest")
    assert [labelling.pane(side) for side in (0, 1)] == panes
    page.get_by_role("button", name="Show what your labels changed").press("Enter")
    dialog = page.get_by_role("dialog", name="What your labels changed")
    assert dialog.locator(".thumbnail").count() == 2 * 3 + 2
    contradicted = dialog.get_by_role("list", name="Labels that the predictor disagrees with")
    contradicted.get_by_role("button", name=experiment.title_of(answered[1])).click()
    labelling.wait_for_comparison(answered[1])


def test_ranking_by_keys_and_drags_is_stored_and_undone(open_page, experiment):
    experiment.ask(100)
    labelling = open_page(experiment.name, reduced_motion="reduce")
    page = labelling.page
    labelling.shown_comparison()
    page.get_by_role("button", name="Rank 4 clips").click()
    page.locator(".pane.side-3").wait_for(timeout=PATIENCE_MS)

    def order():
        groups = page.locator(".order .group").all()
        return [group.locator(".chip").all_inner_texts() for group in groups]

    def stored_labels(num):
        """Wait until a number of labels, withdrawals included, is stored; return the current."""
        for _ in range(PATIENCE_MS // 50):
            if len(experiment.log()) == num:
                break
            page.wait_for_timeout(50)
        assert len(experiment.log()) == num
        return [each for each in experiment.store.labels.export(experiment.id) if each.is_current]

    def centre(number):
        box = page.locator(f"[data-chip='{number}']").bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def drag(number, x, y):
        page.mouse.move(*centre(number))
        page.mouse.down()
        page.mouse.move(x, y, steps=4)
        page.mouse.up()

    for key in ("3", "1", "Backspace", "=", "4", "2"):
        labelling.press(key)
    assert order() == [["3", "4"], ["2"]]
    assert_accessible(page)
    x, y = centre(3)
    drag(2, x - 30, y)
    drag(1, *centre(2))
    assert order() == [["2", "1"], ["3", "4"]]
    page.locator("[data-chip='1']").focus()
    labelling.press("ArrowRight")
    assert order() == [["2"], ["1"], ["3", "4"]]
    page.get_by_role("button", name="Submit").click()
    labels = stored_labels(6)
    assert [each.answer for each in labels].count(Answer.EQUAL) == 1
    page.get_by_role("button", name="Show again").first.wait_for(timeout=PATIENCE_MS)
    labelling.press("z")
    assert stored_labels(12) == []
    page.locator("[data-clips^=again]").wait_for(timeout=PATIENCE_MS)
    assert order() == [["2"], ["1"], ["3", "4"]]
    page.set_viewport_size({"width": 320, "height": 568})
    assert_fits(page)


@pytest.mark.slow
def test_second_window_follows_the_run_without_rewards(labelling, experiment):
    end_episode(experiment, 1_000)
    with labelling.page.expect_popup() as opened:
        labelling.press("w")
    page = opened.value
    page.get_by_text("After 1k steps").wait_for(timeout=PATIENCE_MS)
    page.keyboard.press(" ")
    end_episode(experiment, 2_000)
    page.get_by_text("A newer episode follows").wait_for(timeout=PATIENCE_MS)
    assert page.get_by_text("After 1k steps").is_visible()
    page.get_by_role("button", name="Show it now").click()
    page.get_by_text("After 2k steps").wait_for()
    text = page.locator("body").inner_text()
    assert "2123" not in text.replace(",", "")
    assert "eward" not in text
    answered = labelling.hook("comparisonId")
    labelling.press("ArrowLeft")
    labelling.shown_comparison(other_than=answered)
    labelling.wait_until_sent()
    assert list(experiment.answers()) == [answered]
