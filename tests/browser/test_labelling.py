"""A person answers: by keys, by touch, with and without a network."""

import signal

import pytest

from rl_teacher.clips.answer import Answer
from tests.browser.conftest import PHONE
from tests.browser.experiments import Experiment
from tests.browser.labelling_page import LabellingPage
from tests.browser.processes import Service, media_of, open_store

pytestmark = pytest.mark.browser

ANSWER_LEFT_AND_RELOAD = """() => {
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft", bubbles: true}))
    location.reload()
    const begun_ms = performance.now()
    while (performance.now() < begun_ms + 500);
}"""


class TestKeys:
    def test_each_gives_the_answer_that_is_printed_on_its_button(self, labelling, experiment):
        given = {}
        for key, answer in {
            "ArrowLeft": Answer.LEFT,
            "ArrowRight": Answer.RIGHT,
            "ArrowDown": Answer.EQUAL,
            "ArrowUp": Answer.CANNOT_TELL,
            "s": Answer.CANNOT_TELL,
        }.items():
            given[labelling.hook("comparisonId")] = answer
            labelling.press(key)
            labelling.shown_comparison(other_than=list(given)[-1])
        labelling.wait_until_sent()
        assert experiment.answers() == given

    def test_the_next_comparison_is_there_at_once(self, labelling, record_property):
        labelling.wait_until("hooks.numAhead === 3")
        first = labelling.answer(Answer.LEFT)
        labelling.shown_comparison(other_than=first)
        swap_ms = labelling.hook("swap_ms")
        record_property("swap_ms", swap_ms)
        assert swap_ms > 0

    def test_z_takes_the_last_answer_back_and_asks_again(self, labelling, experiment):
        first = labelling.answer(Answer.LEFT)
        second = labelling.answer(Answer.LEFT)
        labelling.press("z")
        labelling.wait_for_comparison(second)
        labelling.answer(Answer.EQUAL)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.LEFT, second: Answer.EQUAL}
        assert len(experiment.log()) == 4

    def test_one_held_down_answers_once(self, labelling, experiment):
        first = labelling.hook("comparisonId")
        for _ in range(4):
            labelling.page.keyboard.down("ArrowDown")
        labelling.page.keyboard.up("ArrowDown")
        labelling.shown_comparison(other_than=first)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.EQUAL}

    def test_they_do_nothing_while_somebody_types(self, labelling, experiment):
        labelling.page.evaluate("document.body.append(document.createElement('input'))")
        labelling.page.locator("body > input").focus()
        for key in ("ArrowLeft", "s", "z", "?", "ArrowUp"):
            labelling.press(key)
        labelling.page.locator("body > input").evaluate("element => element.remove()")
        assert not labelling.page.get_by_role("dialog").is_visible()
        first = labelling.answer(Answer.RIGHT)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.RIGHT}

    def test_a_question_mark_opens_the_help_and_nothing_is_answered_beneath_it(
        self, labelling, experiment
    ):
        labelling.press("?")
        help_page = labelling.page.get_by_role("dialog", name="How to label")
        help_page.wait_for()
        labelling.press("ArrowLeft")
        labelling.press("Escape")
        help_page.wait_for(state="hidden")
        first = labelling.answer(Answer.RIGHT)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.RIGHT}

    def test_space_pauses_and_a_dot_goes_one_frame_on(self, labelling):
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


class TestNothingIsLost:
    def test_what_is_answered_without_a_network_is_sent_once_when_it_is_back(
        self, labelling, experiment
    ):
        labelling.wait_until("hooks.numAhead === 3")
        labelling.page.context.set_offline(True)
        given = {labelling.answer(Answer.LEFT): Answer.LEFT for _ in range(3)}
        assert labelling.hook("outboxLength") == 3
        labelling.page.get_by_text("The server is unreachable.").wait_for()
        assert experiment.answers() == {}
        labelling.page.context.set_offline(False)
        labelling.wait_until_sent()
        assert experiment.answers() == given
        assert len(experiment.log()) == 3

    def test_what_is_not_sent_yet_survives_a_reload(self, labelling, experiment):
        labels = "**/api/v1/labels"
        labelling.page.route(labels, lambda route: route.abort())
        given = {labelling.answer(Answer.RIGHT): Answer.RIGHT for _ in range(2)}
        assert labelling.hook("outboxLength") == 2
        labelling.page.reload()
        assert labelling.shown_comparison() not in given
        labelling.wait_until("hooks.outboxLength === 2")
        labelling.page.unroute(labels)
        labelling.wait_until_sent()
        assert experiment.answers() == given
        assert len(experiment.log()) == 2

    def test_an_answer_in_the_instant_before_a_reload_is_kept(self, labelling, experiment):
        labels = "**/api/v1/labels"
        labelling.page.route(labels, lambda route: route.abort())
        given = {}
        for _ in range(4):
            given[labelling.shown_comparison()] = Answer.LEFT
            with labelling.page.expect_navigation():
                labelling.page.evaluate(ANSWER_LEFT_AND_RELOAD)
            assert labelling.shown_comparison() not in given
        labelling.page.unroute(labels)
        labelling.wait_until_sent()
        assert experiment.answers() == given

    def test_a_service_that_is_killed_gets_every_answer_when_it_is_started_again(
        self, open_context, tmp_path
    ):
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
            given = {labelling.answer(Answer.EQUAL): Answer.EQUAL for _ in range(3)}
            again = Service(home, service.address.port)
            labelling.wait_until_sent()
            assert experiment.answers() == given
            again.end()

    def test_an_answered_comparison_can_be_opened_and_answered_again(self, labelling, experiment):
        first = labelling.answer(Answer.LEFT)
        second = labelling.answer(Answer.LEFT)
        next_one = labelling.shown_comparison(other_than=second)
        labelling.page.get_by_role("button", name=f"Comparison {first}: ").click()
        labelling.wait_for_comparison(first)
        labelling.page.get_by_text("Your label: left is better").wait_for()
        labelling.answer(Answer.RIGHT)
        labelling.wait_for_comparison(next_one)
        labelling.wait_until_sent()
        assert experiment.answers() == {first: Answer.RIGHT, second: Answer.LEFT}

    @pytest.mark.parametrize("is_answered", [True, False])
    def test_a_link_opens_the_comparison_that_it_names(self, labelling, experiment, is_answered):
        shown = labelling.answer(Answer.LEFT) if is_answered else max(experiment.ask(3))
        labelling.wait_until_sent()
        labelling.page.goto(f"{labelling.page.url}?comparison={shown}")
        labelling.wait_for_comparison(shown)
        labelling.answer(Answer.EQUAL)
        labelling.wait_until_sent()
        assert experiment.answers() == {shown: Answer.EQUAL}


class TestWaiting:
    def test_the_page_says_why_nothing_waits_and_goes_on_by_itself(self, open_page, experiment):
        experiment.stand("training", "Training: the next comparisons come soon.")
        opened = open_page(experiment.name)
        opened.wait_until_idle()
        [asked] = experiment.ask()
        opened.wait_for_comparison(asked)
        opened.answer(Answer.LEFT)
        opened.wait_until_sent()
        assert experiment.answers() == {asked: Answer.LEFT}

    def test_the_agents_latest_episode_is_shown_meanwhile(self, open_page, experiment):
        episode = {"clip": experiment.hang_body(1), "true_return": 12.5, "step": 1000}
        experiment.store.experiments.set_latest_episode(experiment.id, episode)
        opened = open_page(experiment.name)
        opened.wait_until_idle()
        opened.page.get_by_text("Latest episode").wait_for()
        assert opened.picture(0).std() > 5


class TestPhone:
    @pytest.fixture
    def phone(self, open_page, experiment):
        experiment.ask(3)
        opened = open_page(experiment.name, viewport=PHONE, has_touch=True, is_mobile=True)
        opened.shown_comparison()
        return opened

    @pytest.mark.parametrize(("side", "answer"), [(0, Answer.LEFT), (1, Answer.RIGHT)])
    def test_a_tap_on_a_clip_prefers_it(self, phone, experiment, side, answer):
        shown = phone.shown_comparison()
        x, y, width, height = phone.pane(side)
        phone.page.touchscreen.tap(x + width / 3, y + height / 2)
        phone.shown_comparison(other_than=shown)
        phone.wait_until_sent()
        assert experiment.answers() == {shown: answer}

    def test_everything_is_within_the_window(self, phone):
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
