"""Effect of a person's labels, as the labelling page shows it after each fit."""

import re

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.runs.folder import Experiment
from rl_teacher.store.media import SegmentFiles
from tests.browser.conftest import PHONE
from tests.browser.labelling_page import PATIENCE_MS, LabellingPage, text_on
from tests.browser.processes import Running, as_home, open_store

pytestmark = pytest.mark.browser

WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 640, "height": 800}
SHOW = "Show what your labels changed"


def effect_button(page):
    return page.get_by_role("button", name=SHOW)


def stored_order(experiment, comparison_id, preferred, other):
    """Return the predicted returns of the left and the right clip in their stored order."""
    answer = experiment.store.labels.answers([comparison_id])[comparison_id]
    return (preferred, other) if answer is Answer.LEFT else (other, preferred)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(WIDE, id="wide", marks=pytest.mark.slow),
        pytest.param(NARROW, id="narrow", marks=pytest.mark.slow),
        pytest.param(PHONE, id="phone"),
    ],
)
def test_effect_appears_without_moving_clips_and_opens_contradicted_label(
    open_page, experiment, size
):
    ids = experiment.ask(6)
    labelling = open_page(experiment.name, viewport=size)
    page = labelling.page
    answered = [labelling.answer(Answer.LEFT) for _ in range(3)]
    labelling.wait_until_sent()
    shown = labelling.shown_comparison()
    panes = [labelling.pane(side) for side in (0, 1)]
    assert effect_button(page).count() == 0

    returns = dict(zip(answered, [(1.0, 0.0), (-1.0, 2.0), (0.5, 0.0)], strict=True))
    fitted = {each: stored_order(experiment, each, *returns[each]) for each in answered}
    # The predictor has an opinion about the comparisons that are asked, too.
    experiment.set_predictions({**fitted, **dict.fromkeys(ids[3:], (9.0, -9.0))})
    page.locator("[aria-live]").filter(has_text="It agrees with 2 of your 3 latest").wait_for(
        timeout=PATIENCE_MS
    )
    assert "2 of 3" in effect_button(page).inner_text()
    assert [labelling.pane(side) for side in (0, 1)] == panes
    assert labelling.hook("comparisonId") == shown

    effect_button(page).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=SHOW.removeprefix("Show ").capitalize())
    [contradicted] = (
        dialog.get_by_role("list", name="Labels that the predictor disagrees with")
        .get_by_role("button")
        .all()
    )
    assert dialog.locator(".thumbnail").count() == 2 * 3 + 2
    highest = dialog.get_by_role("list", name="Rated highest now").get_by_role("listitem").all()
    assert [item.inner_text().split("\n")[0] for item in highest] == [
        f"Clip {number} of 3" for number in (1, 2, 3)
    ]
    assert experiment.title_of(answered[1]).match(contradicted.inner_text())
    contradicted.click()
    labelling.wait_for_comparison(answered[1])
    text_on(page, "is better. Answer again to change it.").wait_for()
    labelling.answer(Answer.RIGHT)
    labelling.wait_until_sent()

    effect_button(page).click()
    dialog.get_by_role("heading", name="Labels that the predictor disagrees with").wait_for(
        state="detached"
    )
    page.keyboard.press("Escape")
    experiment.set_predictions(fitted, num_fits=2)
    effect_button(page).filter(has_text="3 of 3").wait_for(timeout=PATIENCE_MS)
    effect_button(page).click()
    dialog.get_by_text("(before: 2 of 3)").wait_for()
    assert [labelling.pane(side) for side in (0, 1)] == panes


@pytest.mark.slow
def test_effect_of_answers_in_a_run_matches_its_predictor(tmp_path, open_context):
    home = tmp_path / "teaching"
    # Paced by labels, the run waits soon after the first fit.
    command = [
        "teach",
        "-p",
        "human",
        "-e",
        "ShortReacher-v1",
        "-n",
        "mine",
        "-L",
        "12",
        "-l",
        "60",
    ]
    command += ["-t", "100000", "-i", "500", "--port", "0", "--no-tensorboard", "--no-browser"]
    run = Running(home, "run", *command)
    try:
        page = open_context(viewport=WIDE).new_page()
        page.goto(run.printed_link())
        labelling = LabellingPage(page)
        # The better clips are on either side: a predictor cannot agree with all labels.
        for _ in range(12):
            labelling.answer(Answer.LEFT)
        labelling.wait_until_sent()
        effect_button(page).click(timeout=PATIENCE_MS)
        dialog = page.get_by_role("dialog")
        [counts] = re.findall(r"It agrees with (\d+) of your (\d+) latest", dialog.inner_text())
        titles = dialog.locator("li strong").all_inner_texts()
    finally:
        run.end()
    with as_home(home), open_store(home) as store:
        folder = Experiment.find("mine").folder
        asked = store.comparisons.asked(store.experiments.get("mine").id)
        predictor, segments = (
            RewardPredictor.load(folder / "predictor"),
            SegmentFiles(home / "segments"),
        )
        # Comparisons with a clip that is still asked about are left out.
        still_asked = {clip for each in asked[12:] for clip in (each.left_hash, each.right_hash)}
        disagreeing, certainly_shown = set(), set()
        for each in asked[:12]:
            pair = (each.left_hash, each.right_hash)
            left_return, right_return = (
                predictor(clip.observations, clip.actions).sum()
                for clip in map(segments.load, pair)
            )
            answer = store.labels.answers([each.id])[each.id]
            if (left_return > right_return) != (answer is Answer.LEFT):
                title = f"Comparison {store.comparisons.get(each.id).number}"
                disagreeing.add(title)
                if not still_asked.intersection(pair):
                    certainly_shown.add(title)
    num_agreed, num_compared = map(int, counts)
    assert num_compared >= 6
    assert len(titles) == num_compared - num_agreed
    assert certainly_shown <= set(titles) <= disagreeing
