"""Lifetime of a service that a run has started: it ends some time after the last run has ended.

A run holds a lock, which the operating system releases however the run ends.
"""

import time
from collections.abc import Callable
from pathlib import Path

from rl_teacher.store.lock import FolderLock, SharedLock

FILE_NAME = "service-in-use"


def shown(home: Path) -> SharedLock:
    """Return the lock that a run holds while it shows the page."""
    return SharedLock(home / FILE_NAME)


def exclusive_page_lock(home: Path) -> FolderLock:
    """Return the lock that is available only while no run shows the page."""
    return FolderLock(home / FILE_NAME)


class Lifetime:
    """Lifetime of a service that stops by itself."""

    def __init__(
        self, home: Path, end_after_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Start the countdown.

        Args:
            home: Home of the runs.
            end_after_s: Seconds without a run that shows the page until the service stops.
            now: Monotonic clock in seconds.
        """
        self._exclusive_lock = exclusive_page_lock(home)
        self._end_after_s = end_after_s
        self._now = now
        self._shown_s = now()

    def is_over(self) -> bool:
        """Return whether no run has shown the page for the configured time.

        The lock is then held until `close`: a run that starts meanwhile waits, and then starts its
        own service.
        """
        try:
            is_shown = not self._exclusive_lock.acquire(timeout_s=0.0)
        except FileNotFoundError:  # the home was deleted
            is_shown = False
        if is_shown:
            self._shown_s = self._now()
            return False
        is_over = self._now() - self._shown_s >= self._end_after_s
        if not is_over:
            self._exclusive_lock.release()
        return is_over

    def close(self) -> None:
        """Release the lock after the service has stopped."""
        self._exclusive_lock.release()
