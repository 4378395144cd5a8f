import pytest

from rl_teacher.clips.answer import Answer, is_swapped, mirror_answer


def test_half_of_comparisons_are_swapped():
    swapped = sum(is_swapped(n, "owner") for n in range(1000))
    assert 430 < swapped < 570


def test_sides_differ_between_labelers():
    assert any(is_swapped(n, "owner") != is_swapped(n, "guest") for n in range(50))


@pytest.mark.parametrize("answer", [*Answer, None])
def test_mirroring_twice_restores_answer(answer):
    assert mirror_answer(mirror_answer(answer, swapped=True), swapped=True) == answer


def test_mirroring_exchanges_left_and_right_and_keeps_tie():
    assert mirror_answer(Answer.LEFT, swapped=True) is Answer.RIGHT
    assert mirror_answer(Answer.LEFT, swapped=False) is Answer.LEFT
    assert mirror_answer(Answer.EQUAL, swapped=True) is Answer.EQUAL


def test_sides_of_comparison_never_change():
    assert [is_swapped(n, "owner") for n in range(1, 9)] == [False] + [True] * 7
