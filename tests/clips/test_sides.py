"""Which clip is shown on which side."""

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.sides import is_swapped, turned


def test_about_half_of_the_comparisons_are_swapped():
    swapped = sum(is_swapped(n, "owner") for n in range(1000))
    assert 430 < swapped < 570


def test_labelers_see_different_sides():
    assert any(is_swapped(n, "owner") != is_swapped(n, "guest") for n in range(50))


@pytest.mark.parametrize("answer", [*Answer, None])
def test_turning_twice_changes_nothing(answer):
    assert turned(turned(answer, swapped=True), swapped=True) == answer


def test_left_becomes_right_and_a_tie_stays_a_tie():
    assert turned(Answer.LEFT, swapped=True) is Answer.RIGHT
    assert turned(Answer.LEFT, swapped=False) is Answer.LEFT
    assert turned(Answer.EQUAL, swapped=True) is Answer.EQUAL


def test_the_sides_of_a_comparison_never_change():
    assert [is_swapped(n, "owner") for n in range(1, 9)] == [False] + [True] * 7
