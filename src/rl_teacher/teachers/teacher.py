"""What the reward learner asks of a teacher."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment


@dataclass(frozen=True)
class Circumstances:
    """What a teacher may know beside the two segments.

    Attributes:
        mean_return: true return of the latest episodes; NaN before the first has ended.
        mean_episode_steps: their length; NaN before the first has ended.
        rng: randomness of this one comparison: the same comparison draws the same, whenever and
            however often it is asked.
    """

    mean_return: float
    mean_episode_steps: float
    rng: np.random.Generator


Teacher = Callable[[Segment, Segment, Circumstances], Answer | None]
"""Answers a comparison, or None: somebody will answer later, through the store."""


def rng_of(seed: int, left: Segment, right: Segment) -> np.random.Generator:
    """The randomness that belongs to one comparison."""
    words = [int(segment.content_hash[:15], 16) for segment in (left, right)]
    return np.random.default_rng([seed, 5, *words])
