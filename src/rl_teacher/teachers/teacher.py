"""Interface of teachers, and the human teacher."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment


@dataclass(frozen=True)
class TeacherContext:
    """Information for a teacher in addition to the two segments.

    Attributes:
        mean_return: mean true return of recent episodes; before the first has ended, of the running
            episodes so far; NaN before the first step.
        mean_episode_steps: mean length of the same episodes.
        rng: random generator seeded by the comparison, so that asking again gives the same answer.
    """

    mean_return: float
    mean_episode_steps: float
    rng: np.random.Generator


Teacher = Callable[[Segment, Segment, TeacherContext], Answer | None]
"""A function that answers a comparison, or returns None if the answer arrives through the store."""


def comparison_rng(seed: int, left: Segment, right: Segment) -> np.random.Generator:
    """Create the random generator of a comparison from the contents of its segments."""
    # 60 bits of each hash; 5 separates this generator from others with the same seed.
    words = [int(segment.content_hash[:15], 16) for segment in (left, right)]
    return np.random.default_rng([seed, 5, *words])


def human_teacher(left: Segment, right: Segment, context: TeacherContext) -> None:
    """Return None: a person answers later, on the page or at a terminal, through the store."""
