"""Interface of teachers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment


@dataclass(frozen=True)
class Circumstances:
    """Information for a teacher in addition to the two segments.

    Attributes:
        mean_return: Mean true return of recent episodes; NaN before the first has ended.
        mean_episode_steps: Mean length of recent episodes; NaN before the first has ended.
        rng: Random generator seeded by the comparison, so that asking again gives the same answer.
    """

    mean_return: float
    mean_episode_steps: float
    rng: np.random.Generator


Teacher = Callable[[Segment, Segment, Circumstances], Answer | None]
"""A function that answers a comparison, or returns None if the answer arrives through the store."""


def rng_of(seed: int, left: Segment, right: Segment) -> np.random.Generator:
    """Create the random generator of a comparison."""
    words = [int(segment.content_hash[:15], 16) for segment in (left, right)]
    return np.random.default_rng([seed, 5, *words])
