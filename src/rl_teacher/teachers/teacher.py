"""Interface of teachers, the human teacher, and a timeout for slow ones."""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment

logger = logging.getLogger(__name__)


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


class TeacherWithTimeout:
    """Teacher that is not asked again once it has failed to answer in time.

    Python cannot stop a function: the thread of one that hangs ends with the process.
    """

    def __init__(self, teacher: Teacher, name: str, timeout_s: float) -> None:
        self._teacher = teacher
        self._name = name
        self._timeout_s = timeout_s
        self._has_timed_out = False

    def __call__(self, left: Segment, right: Segment, context: TeacherContext) -> Answer | None:
        """Return the answer, or None after a timeout."""
        if self._has_timed_out:
            return None
        results: queue.SimpleQueue[Answer | Exception | None] = queue.SimpleQueue()

        def answer() -> None:
            try:
                results.put(self._teacher(left, right, context))
            except Exception as error:
                results.put(error)

        threading.Thread(target=answer, daemon=True, name="teacher").start()
        try:
            result = results.get(timeout=self._timeout_s)
        except queue.Empty:
            self._has_timed_out = True
            logger.warning(
                "The teacher %s has not answered within %g s and is not asked again. Training "
                "continues with the labels received so far. Increase answer_timeout_s to wait "
                "longer.",
                self._name,
                self._timeout_s,
            )
            return None
        if isinstance(result, Exception):
            raise result
        return result
