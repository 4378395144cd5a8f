import math

import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.teachers.synthetic import ORACLE, SYNTHETIC, SyntheticTeacher
from rl_teacher.teachers.teacher import TeacherContext, comparison_rng


def segment(*rewards):
    num = len(rewards)
    return Segment(
        "Test-v0",
        np.zeros((num, 1), np.float32),
        np.zeros((num, 1), np.float32),
        np.array(rewards, np.float32),
        np.zeros((num, 0)),
    )


def context(seed=0, mean_return=100.0, mean_steps=10.0):
    return TeacherContext(mean_return, mean_steps, np.random.default_rng(seed))


def share_of_left(teacher, left, right, tries=4000):
    answers = [teacher(left, right, context(seed)) for seed in range(tries)]
    return np.mean([answer is Answer.LEFT for answer in answers])


def test_oracle_prefers_larger_return():
    assert ORACLE(segment(1, 2), segment(1, 1), context()) is Answer.LEFT
    assert ORACLE(segment(1, 1), segment(1, 2), context()) is Answer.RIGHT


def test_oracle_answers_equal_for_equal_returns():
    assert ORACLE(segment(1, 2), segment(2, 1), context()) is Answer.EQUAL


def test_mistake_teacher_errs_with_probability_one_tenth():
    share = share_of_left(SYNTHETIC["mistake"], segment(5), segment(0))
    assert share == pytest.approx(0.9, abs=0.02)


def test_noisy_teacher_answers_by_softmax_of_returns():
    share = share_of_left(SYNTHETIC["noisy"], segment(1.5), segment(0.5))
    assert share == pytest.approx(1 / (1 + math.exp(-1)), abs=0.025)


def test_myopic_teacher_discounts_earlier_steps():
    # 0.9^1 * 10 + 1 = 10 against 0 + 10.5
    left, right = segment(10, 1), segment(0, 10.5)
    assert ORACLE(left, right, context()) is Answer.LEFT
    assert SYNTHETIC["myopic"](left, right, context()) is Answer.RIGHT


def test_myopic_teacher_counts_missing_steps_of_a_terminated_clip_as_the_latest():
    # 0.9^2 + 0.9 + 1 = 2.71 against (0.9 * 1.5 + 1.5) * 0.9 = 2.57, and 2.85 without the last step
    left, right = segment(1, 1, 1), segment(1.5, 1.5)
    assert SYNTHETIC["myopic"](left, right, context()) is Answer.LEFT
    assert SYNTHETIC["myopic"](right, left, context()) is Answer.RIGHT


def test_skip_teacher_cannot_tell_two_poor_clips():
    # the threshold is 0.1 * 100 * 2 / 10 = 2
    teacher = SYNTHETIC["skip"]
    assert teacher(segment(1, 0.9), segment(0, 0), context()) is Answer.CANNOT_TELL
    assert teacher(segment(1, 1.1), segment(0, 0), context()) is Answer.LEFT


def test_equal_teacher_answers_equal_for_near_returns():
    teacher = SYNTHETIC["equal"]
    assert teacher(segment(11, 0), segment(10, 0), context()) is Answer.EQUAL
    assert teacher(segment(13, 0), segment(10, 0), context()) is Answer.LEFT


@pytest.mark.parametrize("swaps", [False, True])
def test_thresholds_are_those_of_the_longer_segment_on_either_side(swaps):
    """A termination cut one short; 20 are expected of two steps, so that both thresholds are 2."""
    pair = segment(0.5), segment(0.9, 1.0)
    left, right = pair[::-1] if swaps else pair
    assert SYNTHETIC["skip"](left, right, context()) is Answer.CANNOT_TELL
    assert SYNTHETIC["equal"](left, right, context()) is Answer.EQUAL


def test_threshold_is_scaled_by_epsilon_once():
    teacher = SYNTHETIC["equal"]
    for _ in range(5):
        assert teacher(segment(11.5, 0), segment(10, 0), context()) is Answer.EQUAL


def test_negative_mean_return_gives_positive_threshold():
    teacher = SYNTHETIC["equal"]
    near = teacher(segment(-11, 0), segment(-10, 0), context(mean_return=-100.0))
    assert near is Answer.EQUAL


def test_equal_threshold_is_0_before_first_step():
    unknown = context(mean_return=math.nan, mean_steps=math.nan)
    assert SYNTHETIC["equal"](segment(1.0), segment(0.9), unknown) is Answer.LEFT


def test_same_comparison_uses_same_random_numbers():
    left, right = segment(1.0), segment(1.1)
    one, other = (comparison_rng(3, left, right).random(4) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(one, comparison_rng(3, right, left).random(4))
    assert not np.array_equal(one, comparison_rng(4, left, right).random(4))


def test_huge_returns_do_not_overflow():
    teacher = SyntheticTeacher(rationality=1.0)
    assert teacher(segment(1e30), segment(0), context()) is Answer.LEFT
