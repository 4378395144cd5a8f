"""Answers to comparisons, and the sides on which their clips are shown."""

import hashlib
from enum import StrEnum


class Answer(StrEnum):
    """The answer to a comparison. EQUAL and CANNOT_TELL differ: only EQUAL is fitted, as a tie."""

    LEFT = "left"
    RIGHT = "right"
    EQUAL = "equal"
    CANNOT_TELL = "cannot_tell"


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
