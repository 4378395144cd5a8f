import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.quality.agreement import agreement
from rl_teacher.quality.votes import CODES, Votes

# Krippendorff 2011, section C: four observers, twelve units, 0 for a missing answer.
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
    [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
]
PUBLISHED = Votes.from_triples(
    (unit, observer, value)
    for observer, values in enumerate(OBSERVERS)
    for unit, value in enumerate(values)
    if value
)


def votes_of(*comparisons):
    """Return votes from tuples with the answers of labelers 0, 1, ... to each comparison."""
    return Votes.of(
        {i: dict(enumerate(map(Answer, answers))) for i, answers in enumerate(comparisons)}
    )


def test_alpha_of_krippendorffs_example_matches_published_value():
    assert agreement(PUBLISHED).alpha == pytest.approx(0.743, abs=0.0005)


def test_counts_of_krippendorffs_example_match():
    """40 values are pairable, and the diagonal of the coincidence matrix sums to 32 of 40."""
    found = agreement(PUBLISHED)
    assert (found.num_comparisons, found.num_votes) == (11, 40)
    assert found.raw == pytest.approx(0.8)
    assert found.alpha == pytest.approx((39 * 32 - 344) / (40 * 39 - 344))


def test_alpha_of_two_labelers_matches_hand_computation():
    """LL LR RR: 6 values, 3 of each; D_o = 2/6, D_e = 2 * 3 * 3 / (6 * 5); 1 - 10/18."""
    votes = votes_of(("left", "left"), ("left", "right"), ("right", "right"))
    assert agreement(votes).alpha == pytest.approx(4 / 9)


def test_perfect_agreement_is_1_and_systematic_disagreement_below_0():
    assert agreement(votes_of(("left", "left"), ("right", "right"))).alpha == 1
    assert agreement(votes_of(*[("left", "right")] * 10)).alpha < 0


def test_alpha_is_nan_for_single_or_identical_answers():
    for votes in (votes_of(), votes_of(("left",), ("right",)), votes_of(("left", "left"))):
        found = agreement(votes)
        assert np.isnan([found.alpha, found.low, found.high]).all()
    assert agreement(votes_of(("left",))).num_comparisons == 0


def test_cannot_tell_is_left_out():
    votes = votes_of(("left", "cannot_tell"), ("left", "right"))
    assert len(votes.telling) == 3
    assert CODES[Answer.CANNOT_TELL] not in votes.telling.answer


def test_random_answers_have_alpha_near_0_within_interval():
    rng = np.random.default_rng(0)
    votes = Votes.from_triples((i, j, int(rng.integers(2))) for i in range(2000) for j in range(2))
    found = agreement(votes)
    assert found.alpha == pytest.approx(0, abs=0.06)
    assert found.low < 0 < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 / np.sqrt(2000), rel=0.2)


def test_interval_covers_truth_in_95_percent_of_samples():
    """Two labelers, each correct with probability 0.9: D_o = 0.18, D_e = 0.5, alpha = 0.64."""
    rng, held = np.random.default_rng(1), 0
    for _ in range(200):
        truth = rng.integers(2, size=150)
        votes = Votes.from_triples(
            (i, j, int(side if rng.random() < 0.9 else 1 - side))
            for i, side in enumerate(truth)
            for j in range(2)
        )
        found = agreement(votes, resamples=300)
        held += found.low < 0.64 < found.high
    assert 0.88 <= held / 200 <= 0.99
