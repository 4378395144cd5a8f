"""Files that are there whole or not at all, and failures of a folder put into words."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rl_teacher.common.errors import RunFolderUnusable

REASONS = {
    errno.EROFS: ("it is on a read-only file system", "Name another place with RL_TEACHER_HOME."),
    errno.EACCES: (
        "you may not write there",
        "Give yourself write permission, or name another place with RL_TEACHER_HOME.",
    ),
    errno.EPERM: (
        "you may not write there",
        "Give yourself write permission, or name another place with RL_TEACHER_HOME.",
    ),
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
"""Why, and what to do."""

TEMPORARY_SUFFIX = ".unfinished"


@contextmanager
def folder_failures_in_words(folder: Path) -> Iterator[None]:
    """Turn the operating system's error into one that says what to do.

    Raises:
        RunFolderUnusable: read-only, forbidden, full, or otherwise unusable.
    """
    try:
        yield
    except OSError as error:
        why, what_to_do = REASONS.get(
            error.errno or 0,
            (error.strerror or str(error), "Name another place with RL_TEACHER_HOME."),
        )
        raise RunFolderUnusable(f"{folder} cannot be used: {why}. {what_to_do}") from error


def write_whole(path: Path, content: bytes, *, is_synced: bool) -> None:
    """Write a file so that no reader, and no crash, ever sees half of it.

    Args:
        path: where; the folder must exist.
        content: all of it.
        is_synced: whether it must outlive a power cut, or only a killed process.
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
    """Write a file, and wait for the disk if asked to."""
    with path.open("wb") as file:
        file.write(content)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename outlive a power cut; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Clear what a killed process left; only for a folder that nobody else writes to now."""
    for path in folder.glob(f".*{TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)
