"""Labelling by keyboard and touch, online and offline."""

import signal

import pytest

from rl_teacher.clips.answer import Answer
from tests.browser.conftest import PHONE
from tests.browser.experiments import Experiment
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage, text_on
from tests.browser.processes import Service, media_of, open_store

pytestmark = pytest.mark.browser

ANSWER_LEFT_AND_RELOAD = """() => {
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft", bubbles: true}))
    location.reload()
    const begun_ms = performance.now()
    while (performance.now() < begun_ms + 500);
}"""


RECORD_ANNOUNCEMENTS = """() => {
    const region = document.querySelector("[aria-live]")
    window.announced = [region.textContent]
    new MutationObserver(() => {
        const text = region.textContent
        if (window.announced.at(-1) !== text) window.announced.push(text)
    }).observe(region, { childList: true, characterData: true, subtree: true })
}"""


class TestKeys:
    def test_each_key_gives_the_answer_on_its_button(self, labelling, experiment):
        answers = {}
        for key, answer in {
            "ArrowLeft": Answer.LEFT,
            "ArrowRight": Answer.RIGHT,
            "ArrowDown": Answer.EQUAL,
            "ArrowUp": Answer.CANNOT_TELL,
            "s": Answer.CANNOT_TELL,
        }.items():
            answers[labelling.hook("comparisonId")] = answer
            labelling.press(key)
            labelling.shown_comparison(other_than=list(answers)[-1])
        labelling.wait_until_sent()
        assert experiment.answers() == answers

    def test_prefetched_comparison_appears_at_once(self, labelling, record_property):
        labelling.wait_until("hooks.numAhead === 3")
        first = labelling.answer(Answer.LEFT)
        labelling.shown_comparison(other_than=first)
        swap_ms = labelling.hook("swap_ms")
        record_property("swap_ms", swap_ms)
        assert swap_ms > 0

    def test_z_withdraws_last_answer_and_asks_again(self, labelling, experiment):
        first = labelling.answer(Answer.LEFT)
        second = labelling.answer(Answer.LEFT)
        labelling.press("z")
        labelling.wait_for_comparison(second)
        labelling.answer(Answer.EQUAL)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.LEFT, second: Answer.EQUAL}
        assert len(experiment.log()) == 4

    def test_held_key_answers_once(self, labelling, experiment):
        first = labelling.hook("comparisonId")
        for _ in range(4):
            labelling.page.keyboard.down("ArrowDown")
        labelling.page.keyboard.up("ArrowDown")
        labelling.shown_comparison(other_than=first)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.EQUAL}

    def test_keys_are_ignored_in_text_fields(self, labelling, experiment):
        labelling.page.evaluate("document.body.append(document.createElement('input'))")
        labelling.page.locator("body > input").focus()
        for key in ("ArrowLeft", "s", "z", "?", "ArrowUp"):
            labelling.press(key)
        labelling.page.locator("body > input").evaluate("element => element.remove()")
        assert not labelling.page.get_by_role("dialog").is_visible()
        first = labelling.answer(Answer.RIGHT)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.RIGHT}

    def test_question_mark_opens_help_that_blocks_answers(self, labelling, experiment):
        labelling.press("?")
        help_page = labelling.page.get_by_role("dialog", name="How to label")
        help_page.wait_for()
        labelling.press("ArrowLeft")
        labelling.press("Escape")
        help_page.wait_for(state="hidden")
        first = labelling.answer(Answer.RIGHT)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.RIGHT}

    def test_space_pauses_and_dot_steps_one_frame(self, labelling):
        labelling.press(" ")
        labelling.wait_until("!hooks.isPlaying")
        labelling.press("r")
        labelling.wait_until("hooks.time_s === 0")
        labelling.press(".")
        labelling.wait_until("Math.abs(hooks.time_s - given) < 1e-6", 1 / 20)
        labelling.press(",")
        labelling.wait_until("hooks.time_s === 0")
        labelling.press(" ")
        labelling.wait_until("hooks.isPlaying && hooks.time_s > 0")


class TestOutbox:
    def test_offline_answers_are_sent_once_after_reconnect(self, labelling, experiment):
        labelling.wait_until("hooks.numAhead === 3")
        labelling.page.context.set_offline(True)
        answers = {labelling.answer(Answer.LEFT): Answer.LEFT for _ in range(3)}
        assert labelling.hook("outboxLength") == 3
        text_on(labelling.page, "The server is unreachable.").wait_for()
        assert experiment.answers() == {}
        labelling.page.context.set_offline(False)
        labelling.wait_until_sent()
        assert experiment.answers() == answers
        assert len(experiment.log()) == 3

    def test_unsent_answers_survive_reload(self, labelling, experiment):
        labels = "**/api/v1/labels"
        labelling.page.route(labels, lambda route: route.abort())
        answers = {labelling.answer(Answer.RIGHT): Answer.RIGHT for _ in range(2)}
        assert labelling.hook("outboxLength") == 2
        labelling.page.reload()
        assert labelling.shown_comparison() not in answers
        labelling.wait_until("hooks.outboxLength === 2")
        labelling.page.unroute(labels)
        labelling.wait_until_sent()
        assert experiment.answers() == answers
        assert len(experiment.log()) == 2

    def test_answer_immediately_before_reload_is_kept(self, labelling, experiment):
        labels = "**/api/v1/labels"
        labelling.page.route(labels, lambda route: route.abort())
        answers = {}
        for _ in range(4):
            answers[labelling.shown_comparison()] = Answer.LEFT
            with labelling.page.expect_navigation():
                labelling.page.evaluate(ANSWER_LEFT_AND_RELOAD)
            assert labelling.shown_comparison() not in answers
        labelling.page.unroute(labels)
        labelling.wait_until_sent()
        assert experiment.answers() == answers

    def test_restarted_service_receives_every_answer(self, open_context, tmp_path):
        home = tmp_path / "killed"
        with open_store(home) as store:
            experiment = Experiment(store, media_of(home), "killed")
            experiment.ask(4)
            service = Service(home)
            page = open_context().new_page()
            page.goto(service.label_link("killed"))
            labelling = LabellingPage(page)
            labelling.shown_comparison()
            labelling.wait_until("hooks.numAhead === 3")
            service.end(signal.SIGKILL)
            answers = {labelling.answer(Answer.EQUAL): Answer.EQUAL for _ in range(3)}
            again = Service(home, service.address.port)
            labelling.wait_until_sent()
            assert experiment.answers() == answers
            again.end()

    def test_answered_comparison_can_be_answered_again(self, labelling, experiment):
        first = labelling.answer(Answer.LEFT)
        second = labelling.answer(Answer.LEFT)
        next_one = labelling.shown_comparison(other_than=second)
        labelling.page.get_by_role("button", name=experiment.title_of(first)).click()
        labelling.wait_for_comparison(first)
        text_on(labelling.page, "Your label: left is better").wait_for()
        labelling.answer(Answer.RIGHT)
        labelling.wait_for_comparison(next_one)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.RIGHT, second: Answer.LEFT}

    @pytest.mark.parametrize("is_answered", [True, False])
    def test_link_opens_its_comparison(self, labelling, experiment, is_answered):
        comparison_id = labelling.answer(Answer.LEFT) if is_answered else max(experiment.ask(3))
        labelling.wait_until_sent()
        labelling.page.goto(f"{labelling.page.url}?comparison={comparison_id}")
        labelling.wait_for_comparison(comparison_id)
        labelling.answer(Answer.EQUAL)
        labelling.wait_until_sent()
        assert experiment.answers() == {comparison_id: Answer.EQUAL}


def test_second_tab_is_shown_the_answer_of_the_first(open_context, service, experiment):
    [comparison_id] = experiment.ask()
    context = open_context()
    first, second = (LabellingPage(context.new_page()) for _ in range(2))
    for tab in (first, second):
        tab.page.goto(service.label_link(experiment.name))
        tab.wait_for_comparison(comparison_id)
    first.answer(Answer.LEFT)
    first.wait_until_sent()
    second.answer(Answer.RIGHT)
    second.page.get_by_role("status").filter(has_text="was rejected").wait_for()
    recent = second.page.get_by_role("button", name=experiment.title_of(comparison_id))
    assert "left is better" in (recent.get_attribute("aria-label") or "")
    assert experiment.answers() == {comparison_id: Answer.LEFT}


class TestIdlePage:
    def test_idle_page_shows_reason_and_resumes(self, open_page, experiment):
        experiment.set_status("training", "Training: the next comparisons come soon.")
        opened = open_page(experiment.name)
        opened.wait_until_idle()
        [comparison_id] = experiment.ask()
        opened.wait_for_comparison(comparison_id)
        opened.answer(Answer.LEFT)
        opened.wait_until_sent()
        assert experiment.answers() == {comparison_id: Answer.LEFT}

    def test_idle_page_announces_that_others_hold_the_rest(self, open_page, experiment):
        first, second = experiment.ask(2)
        other = f"other of {experiment.name}"
        [held] = experiment.store.leases.claim(experiment.id, other, limit=1, exclude=[second])
        opened = open_page(experiment.name)
        opened.wait_for_comparison(second)
        opened.page.evaluate(RECORD_ANNOUNCEMENTS)
        opened.answer(Answer.LEFT)
        opened.page.wait_for_function(
            "() => announced.at(-1).includes("
            "'Nothing to label right now. Other labelers have the remaining')"
        )
        experiment.store.leases.release(other, [held.lease])
        opened.wait_for_comparison(first)

    def test_idle_page_shows_latest_episode(self, open_page, experiment):
        episode = {"clip": experiment.add_model_clip(1), "true_return": 12.5, "step": 1000}
        experiment.store.experiments.set_latest_episode(experiment.id, episode)
        opened = open_page(experiment.name)
        opened.wait_until_idle()
        opened.page.get_by_text("Latest episode").wait_for()
        opened.wait_for_picture(0, lambda picture: picture.std() > 5)
        first = opened.screenshot(0)
        opened.wait_for_picture(0, lambda picture: (picture != first).any())

    def test_idle_page_says_when_next_comparison_comes(self, open_page, experiment):
        more = {"steps_per_second": 650.0, "step": 10_000, "num_steps": 400_000}
        experiment.set_status("training", "Training.", **more)
        opened = open_page(experiment.name)
        opened.wait_until_idle()
        # 60 comparisons over 390,000 steps at 650 steps a second.
        text_on(opened.page, "Next comparison in about 10 s").wait_for()

    def test_idle_page_hides_answers_but_not_undo(self, open_page, experiment):
        [comparison_id] = experiment.ask()
        opened = open_page(experiment.name)
        opened.answer(Answer.LEFT)
        opened.wait_until_idle()
        answers = opened.page.get_by_role("group", name="Your label").get_by_role("button")
        assert answers.all_inner_texts() == ["Undo\nZ"]
        text_on(opened.page, "Previous comparison").first.wait_for()
        answers.click()
        opened.wait_for_comparison(comparison_id)
        assert answers.count() == 5


class TestAnnouncements:
    def test_equal_answers_are_announced_again_and_then_removed(self, labelling):
        labelling.page.evaluate(RECORD_ANNOUNCEMENTS)
        said = "Equal. Next comparison."
        for count in (1, 2):
            labelling.answer(Answer.EQUAL)
            labelling.page.wait_for_function(
                "([said, count]) => announced.filter(text => text === said).length === count",
                arg=[said, count],
            )
        announced = labelling.page.wait_for_function(
            "() => window.announced.at(-1) === '' && window.announced.length > 3 && announced"
        ).json_value()
        assert [text for text in announced if text != "A comparison is ready."][-4:] == [
            said,
            "",
            said,
            "",
        ]

    def test_practice_announces_feedback_and_next_comparison(
        self, open_context, service, experiment
    ):
        page = open_context().new_page()
        page.goto(service.link(f"/e/{experiment.name}/label?tutorial"))
        page.get_by_role("button", name="Skip").wait_for(timeout=PATIENCE_MS)
        page.evaluate(RECORD_ANNOUNCEMENTS)
        page.keyboard.press("ArrowLeft")
        page.wait_for_function("() => announced.at(-1).startsWith('Right. The figure hops')")
        page.keyboard.press("Enter")
        page.wait_for_function("() => announced.at(-1).startsWith('Practice 2 of 3. Prefer')")


class TestPhone:
    @pytest.fixture
    def phone(self, open_page, experiment):
        experiment.ask(3)
        opened = open_page(experiment.name, viewport=PHONE, has_touch=True, is_mobile=True)
        opened.shown_comparison()
        return opened

    @pytest.mark.parametrize(("side", "answer"), [(0, Answer.LEFT), (1, Answer.RIGHT)])
    def test_tap_on_clip_prefers_it(self, phone, experiment, side, answer):
        comparison_id = phone.shown_comparison()
        x, y, width, height = phone.pane(side)
        phone.page.touchscreen.tap(x + width / 3, y + height / 2)
        phone.shown_comparison(other_than=comparison_id)
        phone.wait_until_sent()
        assert experiment.answers() == {comparison_id: answer}

    def test_help_names_top_and_bottom_clip(self, phone):
        phone.page.get_by_role("button", name="Help").click()
        help_page = phone.page.get_by_role("dialog", name="How to label")
        help_page.get_by_text("Top clip is better").wait_for()
        assert help_page.get_by_text("Left clip is better").count() == 0

    def test_clicked_speed_button_does_not_keep_the_focus(self, phone):
        phone.page.get_by_role("button", name="Speed 1, change to 2").click()
        phone.page.get_by_role("button", name="Speed 2, change to 4").wait_for()
        assert phone.page.evaluate("() => document.activeElement === document.body")

    def test_notice_leaves_the_controls_free(self, phone, service, experiment):
        page = phone.page
        page.goto(service.link(f"/e/{experiment.name}/label?comparison=999999"))
        notice = page.get_by_role("status").filter(has_text="This comparison cannot be shown")
        notice.wait_for(timeout=PATIENCE_MS)
        phone.shown_comparison()
        above = notice.bounding_box()
        for name in ("Top is better", "Pause", "Equal", "Undo"):
            box = page.get_by_role("button", name=name, exact=True).bounding_box()
            assert above["y"] + above["height"] <= box["y"], name

    def test_buttons_fit_the_window(self, phone):
        page = phone.page
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        boxes = [button.bounding_box() for button in page.get_by_role("button").all()]
        visible = [box for box in boxes if box is not None]
        assert len(visible) >= 5
        for box in visible:
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]
            assert box["y"] + box["height"] <= PHONE["height"]
        (_, _, wide, high), (_, lower, *_) = phone.pane(0), phone.pane(1)
        assert wide > 300
        assert high > 180
        assert lower > 180
