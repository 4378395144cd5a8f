"""Current answers as arrays.

V: votes, C: comparisons, J: labelers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from rl_teacher.clips.answer import Answer

CODES = {Answer.LEFT: 0, Answer.EQUAL: 1, Answer.RIGHT: 2, Answer.CANNOT_TELL: 3}
"""Codes of answers."""


@dataclass(frozen=True)
class Votes:
    """Current answers; each labeler has at most one per comparison.

    Attributes:
        comparison: [V] comparison ids.
        labeler: [V] labeler ids.
        answer: [V] codes, see `CODES`.
    """

    comparison: Int64[np.ndarray, " vote"]
    labeler: Int64[np.ndarray, " vote"]
    answer: Int64[np.ndarray, " vote"]

    @classmethod
    def of(cls, answers: Mapping[int, Mapping[int, Answer]]) -> "Votes":
        """Convert answers by comparison and labeler."""
        return cls.from_triples(
            (comparison, labeler, CODES[answer])
            for comparison, by_labeler in answers.items()
            for labeler, answer in by_labeler.items()
        )

    @classmethod
    def from_triples(cls, triples: Iterable[tuple[int, int, int]]) -> "Votes":
        """Convert tuples of comparison, labeler and code."""
        return cls(*np.array(list(triples), np.int64).reshape(-1, 3).T)

    def __len__(self) -> int:
        return len(self.answer)

    def where(self, is_chosen: np.ndarray) -> "Votes":
        """Return the votes selected by a mask."""
        return Votes(self.comparison[is_chosen], self.labeler[is_chosen], self.answer[is_chosen])

    @property
    def telling(self) -> "Votes":
        """Votes other than `cannot_tell`."""
        return self.where(self.answer != CODES[Answer.CANNOT_TELL])

    @property
    def decisive(self) -> "Votes":
        """Votes for left or right."""
        sides = (CODES[Answer.LEFT], CODES[Answer.RIGHT])
        return self.where(np.isin(self.answer, sides))
