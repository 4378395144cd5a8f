"""Which clip is shown on which side: by chance, and the same each time a labeler sees it."""

import hashlib

from rl_teacher.clips.answer import Answer

MIRRORED = {Answer.LEFT: Answer.RIGHT, Answer.RIGHT: Answer.LEFT}


def is_swapped(comparison_id: int, labeler: str) -> bool:
    """Whether the comparison's left clip is shown on the right.

    So a habit of preferring one side cancels out, and can be measured.
    """
    return hashlib.sha256(f"{comparison_id}:{labeler}".encode()).digest()[0] % 2 == 1


def turned(answer: Answer | None, *, swapped: bool) -> Answer | None:
    """An answer from the shown sides to the comparison's own, or back."""
    if answer is None or not swapped:
        return answer
    return MIRRORED.get(answer, answer)
