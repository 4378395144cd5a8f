import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.quality.reliability import (
    Reliability,
    estimate_reliability,
)
from rl_teacher.quality.votes import Votes

TRUTH = (0.95, 0.9, 0.8, 0.7, 0.6)


def simulated(num_comparisons, reliabilities=TRUTH, seed=0, answering=3):
    """Simulate votes of labelers with given reliabilities, `answering` of them per comparison."""
    rng = np.random.default_rng(seed)
    answers = {}
    for i in range(num_comparisons):
        sides = (Answer.LEFT, Answer.RIGHT) if rng.random() < 0.5 else (Answer.RIGHT, Answer.LEFT)
        chosen = rng.choice(len(reliabilities), answering, replace=False)
        answers[i] = {int(j): sides[int(rng.random() >= reliabilities[j])] for j in chosen}
    return Votes.of(answers)


@pytest.mark.parametrize("seed", range(5))
def test_known_reliabilities_are_recovered_within_5_points(seed):
    found = estimate_reliability(simulated(2000, seed=seed))
    for j, truth in enumerate(TRUTH):
        assert found[j].estimate == pytest.approx(truth, abs=0.05)
        assert found[j].num == pytest.approx(1200, rel=0.1)


def test_small_study_separates_best_from_worst_labeler():
    """90 comparisons with three answers each, as 30 % of 300: 54 answers per labeler."""
    for seed in range(10):
        found = estimate_reliability(simulated(90, seed=seed))
        assert found[0].estimate > found[4].estimate


def test_single_answers_change_no_estimate():
    shared = simulated(200)
    alone = Votes.of({1000 + i: {0: Answer.LEFT} for i in range(500)})
    both = Votes(
        *(
            np.concatenate([getattr(shared, name), getattr(alone, name)])
            for name in ("comparison", "labeler", "answer")
        )
    )
    assert estimate_reliability(both) == estimate_reliability(shared)


def test_single_labeler_has_prior_reliability():
    assert estimate_reliability(Votes.of({0: {7: Answer.LEFT}})) == {7: Reliability(0.8, 0)}


def test_gold_only_reliability_is_share_of_correct_answers_with_prior():
    """3 of 4 correct with a prior of 4 in 5: 7/9. An equal gold answer is ignored."""
    said = [Answer.LEFT, Answer.LEFT, Answer.RIGHT, Answer.LEFT, Answer.LEFT]
    votes = Votes.of({i: {0: answer} for i, answer in enumerate(said)})
    gold = {0: Answer.LEFT, 1: Answer.LEFT, 2: Answer.RIGHT, 3: Answer.RIGHT, 4: Answer.EQUAL}
    found = estimate_reliability(votes, gold)[0]
    assert found.estimate == pytest.approx(7 / 9)
    assert found.num == 4


def test_gold_answers_reveal_wrong_majority():
    votes = Votes.of({i: {0: Answer.LEFT, 1: Answer.RIGHT, 2: Answer.RIGHT} for i in range(40)})
    assert estimate_reliability(votes)[0].estimate < 0.2
    found = estimate_reliability(votes, dict.fromkeys(range(40), Answer.LEFT))
    assert found[0].estimate > 0.9
    assert found[1].estimate < 0.2


def test_no_votes_give_no_reliabilities():
    votes = Votes.of({})
    assert estimate_reliability(votes) == {}


def test_swapping_sides_keeps_reliabilities():
    votes = simulated(100)
    mirrored = Votes(votes.comparison, votes.labeler, 2 - votes.answer)
    found, other = estimate_reliability(votes), estimate_reliability(mirrored)
    for j in found:
        assert found[j].estimate == pytest.approx(other[j].estimate)
