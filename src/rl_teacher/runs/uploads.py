"""Background uploads to a storage that may be slow, or not answer for a while."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

from rl_teacher.store.waiting import Wait

Result = TypeVar("Result")

NUM_THREADS = 8
"""Uploads at a time. Each takes a few round trips."""
MAX_UNFINISHED = 64
"""Clips in memory that are rendered and not uploaded."""
RETRY_S, MAX_RETRY_S = 0.5, 30.0


class Uploads:
    """Uploads in threads of their own, repeated until the storage answers."""

    def __init__(self) -> None:
        self._wait = Wait("storage of the media", math.inf, RETRY_S, MAX_RETRY_S)
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="upload")
        self._unfinished = threading.BoundedSemaphore(MAX_UNFINISHED)

    @property
    def waiting_since(self) -> datetime | None:
        """Time since which the storage does not answer; None while it does."""
        return self._wait.since

    @property
    def has_ended(self) -> bool:
        """True after `end`."""
        return self._wait.is_over

    def start(self, function: Callable[..., Result], *args: object) -> Future[Result]:
        """Call a function in a thread; block while `MAX_UNFINISHED` calls have not ended.

        Raises:
            RuntimeError: `end` or `close` was called.
        """
        self._unfinished.acquire()
        try:
            future = self._threads.submit(function, *args)
        except RuntimeError:
            self._unfinished.release()
            raise
        future.add_done_callback(lambda _: self._unfinished.release())
        return future

    def repeat(self, method: Callable[..., Result], *args: object) -> Result:
        """Call a method of the storage until it answers, with exponential backoff.

        Raises:
            StoreUnavailable: `end` was called, or the storage cannot be used for a reason that does
                not pass by itself.
        """
        return self._wait.repeat(method, *args)

    def end(self) -> None:
        """Give up the calls that have not begun, or that wait for the storage."""
        self._wait.end()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Wait until all calls have ended."""
        self._threads.shutdown()
