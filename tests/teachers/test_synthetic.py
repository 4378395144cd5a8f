import math

import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.teachers.synthetic import SYNTHETIC, SyntheticTeacher
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


@pytest.mark.parametrize(
    ("name", "left", "right", "answer"),
    [
        ("oracle", [1, 2], [1, 1], "left"),
        ("oracle", [1, 1], [1, 2], "right"),
        ("oracle", [1, 2], [2, 1], "equal"),
        # 0.9^1 * 10 + 1 = 10 against 0 + 10.5
        ("oracle", [10, 1], [0, 10.5], "left"),
        ("myopic", [10, 1], [0, 10.5], "right"),
        # A termination cut one short, whose missing steps count as the latest: 0.9^2 + 0.9 + 1 =
        # 2.71 against (0.9 * 1.5 + 1.5) * 0.9 = 2.57, and 2.85 without the last step.
        ("myopic", [1, 1, 1], [1.5, 1.5], "left"),
        ("myopic", [1.5, 1.5], [1, 1, 1], "right"),
        # 100 in 10 steps are 20 in two, of which a tenth is 2.
        ("skip", [1, 0.9], [0, 0], "cannot_tell"),
        ("skip", [1, 1.1], [0, 0], "left"),
        ("equal", [11.5, 0], [10, 0], "equal"),
        ("equal", [13, 0], [10, 0], "left"),
        # The thresholds are those of the longer segment, on either side.
        ("skip", [0.5], [0.9, 1.0], "cannot_tell"),
        ("skip", [0.9, 1.0], [0.5], "cannot_tell"),
        ("equal", [0.5], [0.9, 1.0], "equal"),
        ("equal", [0.9, 1.0], [0.5], "equal"),
    ],
)
def test_teacher_compares_true_returns(name, left, right, answer):
    assert SYNTHETIC[name](segment(*left), segment(*right), context()) == answer


def test_mistake_teacher_errs_with_probability_one_tenth():
    share = share_of_left(SYNTHETIC["mistake"], segment(5), segment(0))
    assert share == pytest.approx(0.9, abs=0.02)


def test_noisy_teacher_answers_by_softmax_of_returns():
    share = share_of_left(SYNTHETIC["noisy"], segment(1.5), segment(0.5))
    assert share == pytest.approx(1 / (1 + math.exp(-1)), abs=0.025)


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
