"""Over-estimation and pairs of ranked clips, against numbers computed by hand."""

import numpy as np
import pytest

from rl_teacher.predictor.diagnostics import (
    RewardReference,
    ordered_pairs,
)


def array(*values):
    return np.array(values, np.float32)


# Two members whose rewards of the labelled steps have mean 2 and 20, standard deviation 1 and 10;
# the true rewards have mean 5 and standard deviation 2.
MEMBERS = array([1, 3], [10, 30])
TRUE = array(3, 7)


def reference() -> RewardReference:
    measured = RewardReference.measure(MEMBERS, TRUE)
    assert measured is not None
    return measured


def test_over_estimation_is_difference_of_standardised_rises():
    """The members rose by 3 and 1 standard deviations, 2 on average; the true reward by 0.5."""
    members, true = array([4, 5, 6], [20, 30, 40]), array(5, 6, 7)
    assert reference().over_estimation(members, true) == pytest.approx(2 - 0.5)


def test_over_estimation_is_invariant_to_zero_and_unit_of_each_reward():
    members, true = array([4, 5], [20, 30]), array(1, 6)
    unit = array([3], [0.1])
    scaled = RewardReference.measure(unit * MEMBERS + 7, 2 * TRUE - 1)
    assert scaled is not None
    expected = reference().over_estimation(members, true)
    assert scaled.over_estimation(unit * members + 7, 2 * true - 1) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("members", "true"),
    [
        (MEMBERS, array(1, 1)),
        (array([1, 3], [2, 2]), TRUE),
        (np.empty((2, 0), np.float32), np.empty(0, np.float32)),
    ],
    ids=["constant true reward", "constant member", "no steps"],
)
def test_constant_or_unknown_rewards_have_no_reference(members, true):
    assert RewardReference.measure(members, true) is None


def test_ranked_clips_become_all_comparisons_between_two():
    """Clip 0 ranks above clips 1 and 2, which are tied; the first member trained on clip 2."""
    is_held_out = np.array([[True, True, False], [True, True, True]])
    differences, targets, both_held_out = ordered_pairs(
        array([3, 1, 0], [1, 2, 4]), array(1, 0, 0), is_held_out
    )
    np.testing.assert_array_equal(differences, [[2, 3, 1], [-1, -3, -2]])
    np.testing.assert_array_equal(targets, [1, 1, 0.5])
    np.testing.assert_array_equal(both_held_out, [[True, False, False], [True, True, True]])
