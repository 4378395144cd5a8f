"""Atomic writes, encodings of arrays and JSON, and explanations of file system errors."""

import errno
import json
import logging
import math
import os
import secrets
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeGuard

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rl_teacher.common.errors import BadInput, RunFolderUnusable

TOO_LARGE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, a quota, and a limit on the size of files."""

OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""Permissions of everybody but the owner."""

logger = logging.getLogger(__name__)

TEMPORARY_SUFFIX = ".unfinished"
MAX_RATIO = 100
"""Bytes that each byte of a compressed file may unpack to, beyond `FREE_BYTES`."""
FREE_BYTES = 2**24


@contextmanager
def write_errors(failure: str, remedy: str) -> Iterator[None]:
    """Convert errors of the operating system to one that explains what to do.

    Args:
        failure: what cannot be written, and where.
        remedy: what the user can do, unless the disk is full.

    Raises:
        RunFolderUnusable: It cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in TOO_LARGE:
            remedy = "Free some space, and run the same command again."
        raise RunFolderUnusable(f"{failure}: {error.strerror or error}. {remedy}") from error


def folder_errors(folder: Path) -> AbstractContextManager[None]:
    """Convert errors of the operating system in a folder of a run, see `write_errors`."""
    remedy = "Get permission to write, or name another place with RL_TEACHER_HOME."
    return write_errors(f"{folder} cannot be used", remedy)


def make_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can read; one that exists keeps its permissions."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_private_home(home: Path) -> None:
    """Create a home that only its owner can read, or make one that exists private."""
    make_private_folder(home)
    make_private(home)


def make_private(path: Path) -> None:
    """Remove the access of other users to a file or a folder, or log a warning if it stays.

    Folders of another user, and those that all users share, such as /tmp, are left as they are.
    """
    if os.name != "posix":
        return
    found = path.stat()
    if not found.st_mode & OTHERS:
        return
    is_own = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
    try:
        if is_own:
            path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
            return
    except OSError:
        pass  # such as a read-only file system
    logger.warning(
        "Other users of this machine have access to %s. Change that with chmod go= or name another "
        "place with RL_TEACHER_HOME.",
        path,
    )


def check_writable(folder: Path, flag: str) -> None:
    """Check that files can be written to a folder that the user named; it is created if missing.

    Args:
        folder: the folder.
        flag: option that names it.

    Raises:
        RunFolderUnusable: They cannot.
    """
    failure = f"{flag} {folder} was given, but files cannot be written there"
    with write_errors(failure, f"Name another folder with {flag}."):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass


def write_atomically(path: Path, content: bytes, *, is_synced: bool) -> None:
    """Write a file so that neither a reader nor a crash ever sees a part of it.

    Args:
        path: Path in an existing folder.
        content: The whole content.
        is_synced: Survive a power failure, not only a killed process.
    """
    with replaced_atomically(path) as unfinished:
        write(unfinished, content, is_synced=is_synced)
    if is_synced:
        sync_folder(path.parent)


@contextmanager
def replaced_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces a file when the block succeeds, and is deleted if not.

    Args:
        path: Path in an existing folder.
    """
    # Unique among the processes and threads that may write the same file, and short, since the name
    # of the file may be as long as the file system accepts.
    unfinished = path.with_name(f".{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write(path: Path, content: bytes, *, is_synced: bool) -> None:
    """Write a file, and wait for the disk if requested."""
    with path.open("wb") as file:
        file.write(content)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Make a file that another library has written survive a power failure."""
    with path.open("rb+") as file:
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


def check_no_other_files(folder: Path, known: Collection[str], remedy: str) -> None:
    """Check that a folder to write into holds only files that will be replaced, if it exists.

    Raises:
        BadInput: It contains other files.
    """
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    for name in names:
        if name not in known:
            raise BadInput(f"{folder} has other files in it, such as {name}. {remedy}")


def remove_unfinished(folder: Path) -> None:
    """Delete what killed processes left; no other process may write to the folder."""
    for path in folder.glob(f".*{TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)


HEADER_LENGTH_BYTES = 8
META_KEY = "meta"


def pack(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> bytes:
    """Encode arrays of any shape and JSON metadata as a safetensors file."""
    # np.ascontiguousarray would turn a 0-d array into a 1-d array.
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(contiguous, metadata={META_KEY: json.dumps(meta)})


def unpack(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Decode the result of `pack`.

    Raises:
        ValueError: The content is not a safetensors file with metadata.
    """
    try:
        # safetensors.numpy.load drops the metadata, so it is read from the header.
        length = int.from_bytes(content[:HEADER_LENGTH_BYTES], "little")
        arrays = load(content)
        header = json.loads(content[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
        return arrays, json.loads(header["__metadata__"][META_KEY])
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"not a safetensors file of rl-teacher: {error}") from error


def unpacked_limit(size_bytes: int) -> int:
    """Return how many bytes a compressed file may unpack to, so that small ones need no memory."""
    return FREE_BYTES + MAX_RATIO * size_bytes


def is_finite(value: Any) -> TypeGuard[float]:
    """Return whether a value is a number that a float can represent."""
    largest = sys.float_info.max
    # False for NaN, too.
    return isinstance(value, int | float | np.number) and bool(-largest <= value <= largest)


def jsonable(value: Any) -> Any:
    """Convert arrays and their numbers at any depth to JSON types; NaN and infinity become None."""
    match value:
        case Mapping():
            return {str(key): jsonable(each) for key, each in value.items()}
        case list() | tuple():
            return [jsonable(each) for each in value]
        case _ if hasattr(value, "tolist"):
            # NumPy, JAX and PyTorch have it.
            return jsonable(value.tolist())
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
