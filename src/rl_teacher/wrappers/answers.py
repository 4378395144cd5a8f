"""Timeout for teachers that may never answer."""

import logging
import queue
import threading

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.teachers.teacher import Circumstances, Teacher

logger = logging.getLogger(__name__)


class AnswersInTime:
    """Teacher with a timeout; after the first timeout it is not asked again.

    A Python function cannot be stopped: a thread that hangs in it ends with the process.
    """

    def __init__(self, teacher: Teacher, name: str, timeout_s: float) -> None:
        self._teacher = teacher
        self._name = name
        self._timeout_s = timeout_s
        self._is_gone = False

    def __call__(
        self, left: Segment, right: Segment, circumstances: Circumstances
    ) -> Answer | None:
        """Return the answer, or None after a timeout."""
        if self._is_gone:
            return None
        result: queue.SimpleQueue[Answer | Exception | None] = queue.SimpleQueue()

        def answer() -> None:
            try:
                result.put(self._teacher(left, right, circumstances))
            except Exception as error:
                result.put(error)

        threading.Thread(target=answer, daemon=True, name="teacher").start()
        try:
            answered = result.get(timeout=self._timeout_s)
        except queue.Empty:
            return self._give_up()
        if isinstance(answered, Exception):
            raise answered
        return answered

    def _give_up(self) -> None:
        self._is_gone = True
        logger.warning(
            "The teacher %s has not answered within %g s, and is asked no more; training goes on "
            "with the labels there are. Give it more time with answer_timeout_s.",
            self._name,
            self._timeout_s,
        )
