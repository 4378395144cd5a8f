"""Ranking several clips on one screen by keyboard, mouse and touch."""

import pytest

from rl_teacher.clips.answer import Answer
from tests.browser.accessibility import assert_accessible
from tests.browser.conftest import PHONE
from tests.browser.labelling_page import PATIENCE_MS, text_on
from tests.browser.test_layout import CUT_OFF_CONTROLS, NEXT_FRAMES, OVERFLOWING

pytestmark = pytest.mark.browser

WINDOWS = [(320, 568), (640, 360), (320, 256), (1920, 1080)]


@pytest.fixture
def open_ranking(open_page, experiment):
    """Return a function that opens the page of 200 clips with four of them on a screen."""

    def opened(**options):
        experiment.ask(100)
        labelling = open_page(experiment.name, **options)
        labelling.shown_comparison()
        choose(labelling, 4)
        return labelling

    return opened


def choose(labelling, size):
    labelling.page.get_by_role("button", name=f"Rank {size} clips").click()
    labelling.page.locator(f".pane.side-{size - 1}").wait_for(timeout=PATIENCE_MS)
    labelling.shown_comparison()


def order(labelling):
    """Return the groups of clip numbers, best first."""
    groups = labelling.page.locator(".order .group").all()
    return [group.locator(".chip").all_inner_texts() for group in groups]


def wait_for_announcement(labelling, text):
    labelling.page.locator("[aria-live]", has_text=text).wait_for(
        state="attached", timeout=PATIENCE_MS
    )


def wait_for_log(labelling, experiment, num):
    """Wait until a number of labels, withdrawals included, is stored, and return the current."""
    for _ in range(PATIENCE_MS // 50):
        if len(experiment.log()) == num:
            break
        labelling.page.wait_for_timeout(50)
    assert len(experiment.log()) == num
    return [each for each in experiment.store.labels.export(experiment.id) if each.is_current]


def chip_center(labelling, number):
    box = labelling.page.locator(f"[data-chip='{number}']").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(labelling, number, x, y):
    mouse = labelling.page.mouse
    mouse.move(*chip_center(labelling, number))
    mouse.down()
    mouse.move(x, y, steps=4)
    mouse.up()


def test_keys_rank_tie_take_back_submit_and_undo(open_ranking, experiment):
    labelling = open_ranking()
    for key in ("3", "1", "Backspace", "=", "4", "2"):
        labelling.press(key)
    assert order(labelling) == [["3", "4"], ["2"]]
    labelling.press("1")
    wait_for_announcement(labelling, "Clip 1: place 3")
    labelling.press("Enter")
    labels = wait_for_log(labelling, experiment, 6)
    assert [each.answer for each in labels].count(Answer.EQUAL) == 1
    assert len({each.details["ranking"] for each in labels}) == 1
    wait_for_announcement(labelling, "4 clips are ready")
    assert order(labelling) == []
    labelling.page.get_by_role("button", name="Show again").first.wait_for(timeout=PATIENCE_MS)
    labelling.press("z")
    assert wait_for_log(labelling, experiment, 12) == []
    labelling.page.locator("[data-clips^=again]").wait_for(timeout=PATIENCE_MS)
    assert order(labelling) == [["3", "4"], ["2"], ["1"]]
    labelling.press("Enter")
    assert len(wait_for_log(labelling, experiment, 18)) == 6


def test_focused_clip_is_ranked_and_moved_by_arrow_keys(open_ranking):
    labelling = open_ranking()
    for number in (1, 2, 3):
        labelling.page.locator(f"[data-chip='{number}']").focus()
        labelling.press("Enter")
    assert order(labelling) == [["1"], ["2"], ["3"]]
    labelling.page.locator("[data-chip='3']").focus()
    for expected in ([["1"], ["2", "3"]], [["1"], ["3"], ["2"]], [["1", "3"], ["2"]]):
        labelling.press("ArrowLeft")
        labelling.page.wait_for_function("() => document.activeElement.dataset.chip === '3'")
        assert order(labelling) == expected
    labelling.press("Delete")
    assert order(labelling) == [["1"], ["2"]]


def test_mouse_drags_clips_into_order(open_ranking, experiment):
    labelling = open_ranking()
    for _ in range(4):
        # Clips without a place stand in the order of their numbers.
        area = labelling.page.locator(".order").bounding_box()
        first = labelling.page.locator(".pool .chip").first.inner_text()
        drag(labelling, first, area["x"] + area["width"] - 60, area["y"] + area["height"] / 2)
    assert order(labelling) == [["1"], ["2"], ["3"], ["4"]]
    x, y = chip_center(labelling, 1)
    drag(labelling, 3, x - 30, y)
    drag(labelling, 4, *chip_center(labelling, 2))
    assert order(labelling) == [["3"], ["1"], ["2", "4"]]
    labelling.page.get_by_role("button", name="Submit").click()
    labels = wait_for_log(labelling, experiment, 6)
    assert {each.details["input"] for each in labels} == {"key"}


def test_taps_rank_clips_and_leave_one_out(open_ranking, experiment):
    phone = open_ranking(viewport=PHONE, has_touch=True, is_mobile=True)
    for side in (1, 0, 3):
        x, y, width, height = phone.pane(side)
        phone.page.touchscreen.tap(x + width / 2, y + height * 2 / 3)
    assert order(phone) == [["2"], ["1"], ["4"]]
    phone.page.get_by_role("button", name="Submit").tap()
    labels = wait_for_log(phone, experiment, 4)
    assert [each.answer for each in labels].count(Answer.CANNOT_TELL) == 1
    assert {each.details["input"] for each in labels} == {"touch"}


def test_double_click_leaves_out_one_screen(open_ranking, experiment):
    labelling = open_ranking()
    button = labelling.page.locator("[aria-keyshortcuts='ArrowUp S']")
    first = labelling.page.locator("[data-clips]").get_attribute("data-clips")
    button.click()
    labelling.page.locator(f"[data-clips]:not([data-clips='{first}'])").wait_for()
    button.hover()  # which waits until the button stays in its place
    labelling.page.mouse.down(click_count=2)
    labelling.page.mouse.up(click_count=2)
    for key in ("1", "2", "Enter"):
        labelling.press(key)
    labels = wait_for_log(labelling, experiment, 4)
    # Of the second screen, the comparison of the clips without a place.
    assert [each.answer for each in labels].count(Answer.CANNOT_TELL) == 3


def test_choice_survives_reload_and_falls_back_to_pair(open_page, experiment):
    experiment.ask(1)
    labelling = open_page(experiment.name)
    labelling.shown_comparison()
    labelling.page.get_by_role("button", name="Rank 5 clips").click()
    labelling.page.reload()
    labelling.shown_comparison()
    text_on(labelling.page, "Fewer than two comparisons are open").wait_for()
    first = labelling.answer(Answer.RIGHT)
    labelling.wait_until_sent()
    assert experiment.answers() == {first: Answer.RIGHT}


def test_ranking_is_accessible_and_fits_every_window(open_ranking):
    labelling = open_ranking(reduced_motion="reduce")
    choose(labelling, 5)
    for key in ("2", "=", "1", "4"):
        labelling.press(key)
    assert_accessible(labelling.page)
    for width, height in WINDOWS:
        labelling.page.set_viewport_size({"width": width, "height": height})
        labelling.page.evaluate(NEXT_FRAMES)
        assert labelling.page.evaluate(OVERFLOWING) == []
        assert labelling.page.evaluate(CUT_OFF_CONTROLS) == []
        assert min(labelling.pane(4)[2:]) >= 60
