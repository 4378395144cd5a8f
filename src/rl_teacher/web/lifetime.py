"""How long a service lives that a run began: while any run shows its page, and a little longer.

A run says so with a lock, which the operating system takes back however the run ends.
"""

import time
from collections.abc import Callable
from pathlib import Path

from rl_teacher.store.lock import FolderLock, SharedLock

FILE_NAME = "service-in-use"


def shown(home: Path) -> SharedLock:
    """What a run holds for as long as it shows the page."""
    return SharedLock(home / FILE_NAME)


def exclusive_page_lock(home: Path) -> FolderLock:
    """What can be had only while no run shows the page; none begins to while it is held."""
    return FolderLock(home / FILE_NAME)


class Lifetime:
    """Of a service that is to end by itself."""

    def __init__(
        self, home: Path, end_after_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin.

        Args:
            home: whose runs are looked at.
            end_after_s: how long no run shows the page before it is over.
            now: seconds, from any start.
        """
        self._nobody = exclusive_page_lock(home)
        self._end_after_s = end_after_s
        self._now = now
        self._shown_s = now()

    def is_over(self) -> bool:
        """Whether no run has shown the page for so long.

        Note: the lock is kept then until `close`: a run that begins meanwhile waits for that, and
        begins a service of its own.
        """
        try:
            is_shown = not self._nobody.acquire(patience_s=0.0)
        except FileNotFoundError:  # the home was deleted
            is_shown = False
        if is_shown:
            self._shown_s = self._now()
            return False
        is_over = self._now() - self._shown_s >= self._end_after_s
        if not is_over:
            self._nobody.release()
        return is_over

    def close(self) -> None:
        """The service has ended."""
        self._nobody.release()
