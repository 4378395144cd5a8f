"""Answers to comparisons, and the sides on which their clips are shown."""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from itertools import combinations


class Answer(StrEnum):
    """The answer to a comparison. EQUAL and CANNOT_TELL differ: only EQUAL is fitted, as a tie."""

    LEFT = "left"
    RIGHT = "right"
    EQUAL = "equal"
    CANNOT_TELL = "cannot_tell"


TARGETS = {Answer.LEFT: 1.0, Answer.EQUAL: 0.5, Answer.RIGHT: 0.0}
"""Training target of an answer; `cannot_tell` has none."""

MIRRORED = {Answer.LEFT: Answer.RIGHT, Answer.RIGHT: Answer.LEFT}


def is_swapped(comparison_id: int, labeler: str) -> bool:
    """Return whether a labeler sees the comparison's left clip on the right.

    The side is random, so that a preference for one side cancels out and can be measured. It is
    derived from a hash, so that a labeler always sees a comparison the same way.
    """
    return hashlib.sha256(f"{comparison_id}:{labeler}".encode()).digest()[0] % 2 == 1


def mirror_answer(answer: Answer | None, *, swapped: bool) -> Answer | None:
    """Convert an answer from the displayed sides to the comparison's own, or back."""
    if answer is None or not swapped:
        return answer
    return MIRRORED.get(answer, answer)


def pairwise_answers(groups: Sequence[Sequence[str]]) -> dict[tuple[str, str], Answer]:
    """Convert an ordering with ties to the answer of every pair.

    Args:
        groups: Clips from best to worst; those of one group are equally good.

    Returns:
        K (K - 1) / 2 answers for K clips, by left and right clip, in the order of the groups.
    """
    ranked = [(place, clip) for place, group in enumerate(groups) for clip in group]
    return {
        (left, right): Answer.EQUAL if place == other else Answer.LEFT
        for (place, left), (other, right) in combinations(ranked, 2)
    }
