"""Processes that serve together: they are started again when they die, and stop together."""

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rl_teacher.common.runtime import blocked_interrupts

STOP_TIMEOUT_S = 5.0
"""Seconds until a process that does not stop is killed."""
SHORT_LIFE_S = 60.0
"""Life after which a process is started again without a pause."""
MAX_DOUBLINGS = 6
"""Doublings of the pause, of 1 s, between starts of a process that dies again and again."""

logger = logging.getLogger(__name__)


class Worker:
    """Process that is started again when it dies."""

    def __init__(self, number: int, target: Callable[..., None], arguments: Sequence[Any]) -> None:
        """Start the process.

        Args:
            number: Number of the process, from 1.
            target: Function of a module; it calls `send` of its last argument when it is ready.
            arguments: Its first arguments.
        """
        self.number = number
        self._target = target
        self._arguments = arguments
        self._num_short_lives = 0
        self._restart_s: float | None = None
        self._start()

    @property
    def is_ready(self) -> bool:
        """True once the process is ready."""
        return self.process.is_alive() and self._ready.poll()

    def restart_if_dead(self) -> None:
        """Restart the process if it has ended; repeated early exits delay the restart."""
        now_s = time.monotonic()
        if self._restart_s is None and not self.process.is_alive():
            is_short = now_s - self._started_s < SHORT_LIFE_S
            self._num_short_lives = self._num_short_lives + 1 if is_short else 0
            pause_s = 2 ** min(self._num_short_lives, MAX_DOUBLINGS) - 1
            self._restart_s = now_s + pause_s
            logger.error(
                "Service process %d (pid %d) ended with exit code %s. It is started again in %d s.",
                self.number,
                self.process.pid,
                self.process.exitcode,
                pause_s,
            )
        if self._restart_s is not None and now_s >= self._restart_s:
            self._start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the process has ended, and kill it after a timeout."""
        self.process.join(timeout_s)
        self.process.kill()
        self.process.join()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready, ready = context.Pipe(duplex=False)
        self.process = context.Process(target=self._target, args=(*self._arguments, ready))
        with blocked_interrupts():
            self.process.start()
        ready.close()
        self._started_s = time.monotonic()
        self._restart_s = None


@contextlib.contextmanager
def running(workers: Sequence[Worker]) -> Iterator[None]:
    """Terminate all processes at the end of the block."""
    try:
        yield
    finally:
        for each in workers:
            each.process.terminate()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for each in workers:
            each.wait(max(0.0, deadline_s - time.monotonic()))


def terminate_with_parent() -> None:
    """Terminate this process when its parent has ended, even if that was killed."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None  # noqa: S101 - called in a worker
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_TIMEOUT_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
