"""Ranking of an experiment's clips on the owner's page, by keyboard, mouse and touch."""

import re

import pytest

from rl_teacher.clips.answer import Answer
from tests.browser.conftest import PHONE
from tests.browser.labelling_page import PATIENCE_MS

pytestmark = pytest.mark.browser

NUM_CLIPS = 200
CLIPS = "main ol li button"
FETCH = "path => fetch(path).then(response => response.json())"


@pytest.fixture
def ranked(experiment):
    """Experiment with 200 clips, and one answer that contradicts the others."""
    experiment.rank_clips(NUM_CLIPS)
    return experiment


@pytest.fixture
def open_ranking(open_context, service, ranked):
    """Return a function that opens the ranking in a new browser context."""

    def make(**options):
        page = open_context(**options).new_page()
        page.goto(service.link(f"/e/{ranked.name}?tab=ranking"))
        page.locator(CLIPS).first.wait_for(timeout=PATIENCE_MS)
        return page

    return make


def focused_rank(page):
    name = page.evaluate("document.activeElement.getAttribute('aria-label')")
    (rank,) = re.findall(r"^Rank (\d+) of 200", name)
    return int(rank)


def shown_ranks(page):
    names = page.locator(CLIPS).evaluate_all("all => all.map(one => one.ariaLabel)")
    return [int(name.split()[1]) for name in names]


def positions(page):
    """Return the middle of each shown clip in the window, by rank."""
    return {
        int(rank): x
        for rank, x in page.locator(CLIPS).evaluate_all(
            """all => all.map(one => {
                const { left, width } = one.getBoundingClientRect()
                return [one.ariaLabel.split(' ')[1], left + width / 2]
            })"""
        )
    }


class Fingers:
    """Fingers on a touch screen; Playwright itself can only tap."""

    def __init__(self, page):
        self._page = page
        self._session = page.context.new_cdp_session(page)

    def press(self, *points):
        self._send("touchStart", points)

    def move(self, *points):
        self._send("touchMove", points)

    def release(self):
        self._send("touchEnd", ())

    def _send(self, kind, points):
        touches = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self._session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})


def test_keys_go_through_clips_zoom_and_open_answers(open_ranking):
    page = open_ranking()
    before = shown_ranks(page)
    assert before[0] == 1
    assert len(before) < 50
    page.locator(CLIPS).first.focus()
    for rank in (2, 3):
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "rank => document.activeElement.ariaLabel?.startsWith(`Rank ${rank} `)", arg=rank
        )
    for _ in range(6):
        page.keyboard.press("+")
    page.wait_for_function(f"() => document.querySelectorAll('{CLIPS}').length > 1")
    assert {2, 3, 4} <= set(shown_ranks(page))
    page.keyboard.press("End")
    page.wait_for_function("() => document.activeElement.ariaLabel?.startsWith('Rank 200 ')")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Clip of rank 200")
    dialog.get_by_text("Ada: this clip is worse").first.wait_for(timeout=PATIENCE_MS)


def test_mouse_zooms_pans_and_opens(open_ranking):
    page = open_ranking()
    box = page.locator(".stage").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.wheel(0, -3000)
    page.wait_for_function(
        f"() => !document.querySelector('{CLIPS}').ariaLabel.startsWith('Rank 1 ')"
    )
    zoomed = shown_ranks(page)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + 20, steps=5)
    page.mouse.up()
    page.wait_for_function(
        f"rank => +document.querySelector('{CLIPS}').ariaLabel.split(' ')[1] < rank", arg=zoomed[0]
    )
    assert page.get_by_role("dialog").count() == 0
    page.get_by_role("button", name="Show all clips").click()
    page.locator(CLIPS).first.click()
    page.get_by_role("dialog", name="Clip of rank").wait_for()


def test_tap_opens_clip_on_phone(open_ranking):
    page = open_ranking(viewport=PHONE, has_touch=True)
    page.locator(CLIPS).first.tap()
    page.get_by_role("dialog", name="Clip of rank 1").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_pinch_zooms_around_its_middle_and_one_finger_pans(open_ranking):
    page = open_ranking(viewport=PHONE, has_touch=True, is_mobile=True)
    stage = page.locator(".stage").bounding_box()
    y, centre = stage["y"] + 40, stage["x"] + stage["width"] / 2
    before = positions(page)
    middle = min(before.values(), key=lambda x: abs(x - centre))
    left = max(each for each, x in before.items() if x < middle + 1)
    right = min(each for each, x in before.items() if x > middle - 1)
    fingers = Fingers(page)
    fingers.press((middle - 20, y), (middle + 20, y))
    # Without waiting for frames, and one finger far ahead of the other.
    for left_reach, right_reach in ((20, 90), (90, 90), (90, 150), (150, 150)):
        fingers.move((middle - left_reach, y), (middle + right_reach, y))
    fingers.release()
    page.wait_for_function(
        f"() => !document.querySelector('{CLIPS}').ariaLabel.startsWith('Rank 1 ')"
    )
    pinched = positions(page)
    assert set(pinched) - set(before)
    # What is between the fingers stays there, though other clips may be drawn.
    assert min(pinched) <= right
    assert max(pinched) >= left
    assert all(x < middle + 5 for each, x in pinched.items() if each <= left)
    assert all(x > middle - 5 for each, x in pinched.items() if each >= right)
    fingers.press((middle, y))
    for x in range(0, 101, 10):
        fingers.move((middle + x, y))
    fingers.release()
    page.wait_for_function(
        f"rank => +document.querySelector('{CLIPS}').ariaLabel.split(' ')[1] < rank",
        arg=min(pinched),
    )
    panned = positions(page)
    shared = set(panned) & set(pinched)
    assert shared
    assert {round(panned[rank] - pinched[rank], -1) for rank in shared} == {100}
    assert page.get_by_role("dialog").count() == 0
    assert page.evaluate("window.visualViewport.scale") == 1


def test_wheel_zoom_keeps_clip_under_mouse(open_ranking):
    page = open_ranking()
    rank, x = min(positions(page).items(), key=lambda item: abs(item[1] - 600))
    page.mouse.move(x, page.locator(".stage").bounding_box()["y"] + 20)
    for _ in range(8):
        page.mouse.wheel(0, -400)
    page.wait_for_function("() => document.querySelectorAll('main ol li').length < 20")
    assert positions(page)[rank] == pytest.approx(x, abs=5)


def test_zoom_stops_clips_that_move_to_new_ranks(open_ranking, ranked):
    page = open_ranking(viewport=PHONE, has_touch=True, is_mobile=True)
    # The first fit of the service may still change the ranking.
    page.locator("main ol:not(.moving)").wait_for()
    stage = page.locator(".stage").bounding_box()
    middle, y = stage["x"] + stage["width"] / 2, stage["y"] + 40
    fingers = Fingers(page)
    fingers.press((middle - 20, y), (middle + 20, y))
    ranked.store.labels.add(ranked.ask(1)[0], Answer.LEFT, "Ben")
    page.locator("main ol.moving").wait_for(timeout=PATIENCE_MS)
    # Hold later rankings, which would move the clips again.
    page.route("**/ranking", lambda route: None)
    fingers.move((middle - 100, y), (middle + 100, y))
    fingers.release()
    zoomed = positions(page)
    page.wait_for_timeout(500)
    settled = positions(page)
    assert settled == pytest.approx(zoomed, abs=1)


def test_changed_answer_ranks_again(open_ranking, ranked):
    page = open_ranking()
    contradictions = page.get_by_role("region", name="Answers that contradict the ranking")
    contradictions.get_by_role("button").first.click()
    dialog = page.get_by_role("dialog", name="Comparison")
    dialog.get_by_role("group", name="Your label").get_by_role("button", name="Left").click()
    text = dialog.get_by_role("region", name="Labels")
    text.get_by_text("owner").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text(re.compile(r"of [\d,]+ answers, the least probable first")).wait_for()
    page.get_by_text(f"of {len(ranked.log()):,} answers, the least").wait_for(timeout=PATIENCE_MS)


def test_owner_withdraws_own_answer_in_dialog_and_ranking_follows(open_ranking, ranked):
    page = open_ranking()

    def qualities():
        ranking = page.evaluate(FETCH, f"/api/v1/experiments/{ranked.name}/ranking")
        return {each["hash"]: each["quality"] for each in ranking["clips"]}

    before, num_answers = qualities(), len(ranked.log())
    contradictions = page.get_by_role("region", name="Answers that contradict the ranking")
    contradictions.get_by_role("button").first.click()
    dialog = page.get_by_role("dialog", name="Comparison")
    own = dialog.get_by_role("group", name="Your label")
    own.get_by_role("button", name="Right").click()
    dialog.get_by_role("region", name="Labels").get_by_text("owner").wait_for()
    assert max(abs(quality - before[each]) for each, quality in qualities().items()) > 0.1
    own.get_by_role("button", pressed=True).click()
    dialog.get_by_role("region", name="Labels").get_by_text("owner").wait_for(state="detached")
    page.keyboard.press("Escape")
    page.get_by_text(f"of {num_answers:,} answers, the least").wait_for(timeout=PATIENCE_MS)
    assert [answer for _, answer in ranked.log()[num_answers:]][1:] == [None]
    assert qualities() == pytest.approx(before, abs=0.01)


def test_ranking_follows_answers_of_others(open_ranking, ranked):
    page = open_ranking()
    new = ranked.ask(1)
    ranked.store.labels.add(new[0], Answer.LEFT, "Ben")
    page.get_by_text("of 202 clips").wait_for(timeout=PATIENCE_MS)


def test_ranking_follows_answer_that_another_labeler_changes(open_ranking, ranked):
    """No number of comparisons or answers changes."""
    page = open_ranking()
    contradictions = page.get_by_role("region", name="Answers that contradict the ranking")
    listed = contradictions.get_by_text("Ada: right is better")
    listed.wait_for(timeout=PATIENCE_MS)
    wrong = ranked.store.comparisons.pairs(ranked.id)[-1]
    ranked.store.labels.add(wrong.id, Answer.LEFT, "Ada")
    listed.wait_for(state="detached", timeout=PATIENCE_MS)


def test_ranking_without_answers_says_so(open_context, service, experiment):
    page = open_context().new_page()
    page.goto(service.link(f"/e/{experiment.name}?tab=ranking"))
    page.get_by_text("No answers yet").wait_for(timeout=PATIENCE_MS)
