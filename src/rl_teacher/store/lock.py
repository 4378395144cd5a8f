"""Locks on a folder, which the operating system releases when a process ends, even by SIGKILL."""

import os
import time
from pathlib import Path
from typing import IO

import portalocker
from portalocker import LockFlags

TIMEOUT_S = 0.5
"""A process that only checks whether a lock is free holds it for a moment."""

POLL_S = 0.02


class FolderLock:
    """An exclusive lock; a forked child holds the lock of its parent until both have ended."""

    _flags = LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def acquire(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Acquire the lock; return False if another process holds it until the timeout."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            # Opened for appending, so that an attempt keeps the holder's name in the file.
            file = self.path.open("a+")
            try:
                portalocker.lock(file, self._flags)
            except portalocker.LockException:
                file.close()
            else:
                if is_at(file, self.path):
                    self._file = file
                    return True
                file.close()  # It was deleted meanwhile, and another process may lock a new one.
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(POLL_S)

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def is_held(self) -> bool:
        """True while this object holds the lock."""
        return self._file is not None

    @property
    def holder(self) -> str:
        """The process that signed the lock last."""
        try:
            return self.path.read_text().strip() or "another process"
        except OSError:
            return "another process"

    def sign(self) -> None:
        """Write the name of this process into the lock file."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()}\n")
            self._file.flush()


class SharedLock(FolderLock):
    """A lock that several processes may hold, while none holds it exclusively."""

    _flags = LockFlags.SHARED | LockFlags.NON_BLOCKING


def is_at(file: IO[str], path: Path) -> bool:
    """Return whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Return True if a process holds the lock."""
    if not path.exists():
        return False
    lock = FolderLock(path)
    try:
        is_free = lock.acquire(timeout_s=0.0)
    except OSError:
        return False
    lock.release()
    return not is_free
