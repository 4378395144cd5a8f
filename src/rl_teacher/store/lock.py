"""One process at a time in a folder, even after a SIGKILL."""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt

    def take(file: IO[str]) -> None:
        """Lock the first byte; OSError if another process has it."""
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

    def share(file: IO[str]) -> None:
        """Lock the first byte, for all who share it: there is no other way here."""
        with contextlib.suppress(OSError):
            take(file)

else:
    import fcntl

    def take(file: IO[str]) -> None:
        """Lock the file; OSError if another process has it."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def share(file: IO[str]) -> None:
        """Lock the file for all who share it; OSError if another process has it alone."""
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


PATIENCE_S = 0.5
"""Whoever only looks whether a lock is free holds it for a moment; wait that out."""

POLL_S = 0.02


class FolderLock:
    """An exclusive lock that the operating system lets go of when its process ends, however.

    Note: a forked child keeps its parent's lock until it ends too.
    """

    _take = staticmethod(take)

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def acquire(self, patience_s: float = PATIENCE_S) -> bool:
        """Take the lock; False if another has it for longer than `patience_s`."""
        deadline_s = time.monotonic() + patience_s
        while not self._try():
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(POLL_S)
        return True

    def release(self) -> None:
        """Let go; harmless if it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def is_held(self) -> bool:
        """Whether this very object has the lock."""
        return self._file is not None

    @property
    def holder(self) -> str:
        """The process that took it last."""
        try:
            return self.path.read_text().strip() or "another process"
        except OSError:
            return "another process"

    def _try(self) -> bool:
        # Note: opened for appending, so that a try leaves the holder's name in the file.
        file = self.path.open("a+")
        try:
            self._take(file)
        except OSError:
            file.close()
            return False
        self._file = file
        return True

    def sign(self) -> None:
        """Write into the file who has the lock."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()}\n")
            self._file.flush()


class SharedLock(FolderLock):
    """One that several may hold at a time, and that keeps out whoever wants it alone."""

    _take = staticmethod(share)


def is_locked(path: Path) -> bool:
    """Whether some process has this lock now."""
    if not path.exists():
        return False
    lock = FolderLock(path)
    try:
        is_free = lock.acquire(patience_s=0.0)
    except OSError:
        return False
    lock.release()
    return not is_free
