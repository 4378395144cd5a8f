"""Atomic writes, and explanations of file system errors."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rl_teacher.common.errors import RunFolderUnusable

NO_PERMISSION = (
    "you may not write there",
    "Give yourself write permission, or name another place with RL_TEACHER_HOME.",
)

REASONS = {
    errno.EROFS: ("it is on a read-only file system", "Name another place with RL_TEACHER_HOME."),
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
    errno.ENOSPC: ("the disk is full", "Free some space, and the same command continues."),
    errno.EDQUOT: (
        "your disk quota is used up",
        "Free some space, and the same command continues.",
    ),
    errno.ENOTDIR: (
        "a file is where a folder is needed",
        "Move that file, or name another place with RL_TEACHER_HOME.",
    ),
}
"""Reason and remedy by error number."""

TEMPORARY_SUFFIX = ".unfinished"


@contextmanager
def folder_errors(folder: Path) -> Iterator[None]:
    """Convert errors of the operating system to one that explains what to do.

    Raises:
        RunFolderUnusable: The folder is read-only, forbidden, full, or otherwise unusable.
    """
    try:
        yield
    except OSError as error:
        reason, remedy = REASONS.get(
            error.errno or 0,
            (error.strerror or str(error), "Name another place with RL_TEACHER_HOME."),
        )
        raise RunFolderUnusable(f"{folder} cannot be used: {reason}. {remedy}") from error


def write_atomically(path: Path, content: bytes, *, is_synced: bool) -> None:
    """Write a file so that neither a reader nor a crash ever sees a part of it.

    Args:
        path: Path in an existing folder.
        content: The whole content.
        is_synced: Survive a power failure, not only a killed process.
    """
    unfinished = path.with_name(
        f".{path.name}.{os.getpid()}.{threading.get_ident()}{TEMPORARY_SUFFIX}"
    )
    try:
        write(unfinished, content, is_synced=is_synced)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    if is_synced:
        sync_folder(path.parent)


def write(path: Path, content: bytes, *, is_synced: bool) -> None:
    """Write a file, and wait for the disk if requested."""
    with path.open("wb") as file:
        file.write(content)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power failure; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Delete what killed processes left; no other process may write to the folder."""
    for path in folder.glob(f".*{TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)
