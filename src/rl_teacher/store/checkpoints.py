"""Checkpoints: the state of a run in one file, whose name contains its hash."""

import hashlib
import logging
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_teacher.common.errors import INVALID_CONTENT, CorruptCheckpoint
from rl_teacher.common.files import (
    MAX_RATIO,
    folder_errors,
    pack,
    remove_unfinished,
    unpack,
    unpacked_limit,
    write_atomically,
)

log = logging.getLogger(__name__)

KEPT = 2
"""The newest, and one to fall back on."""

COMPRESSED_FROM_BYTES = 1_000_000
"""Size of an array of bytes from which on it is compressed."""

FILE_NAME = re.compile(
    r"checkpoint-(?P<number>\d{6,})-step-(?P<step>\d+)-(?P<digest>[0-9a-f]{64})\.safetensors"
)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run.

    Attributes:
        step: Environment steps taken.
        arrays: Arrays by slash path, such as `agent/policy/0`.
        meta: JSON of everything else.
    """

    step: int
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]


@dataclass(frozen=True)
class CheckpointFile:
    """A file whose name contains its number, its step and its SHA-256."""

    path: Path
    number: int
    step: int
    digest: str


class CheckpointFiles:
    """The checkpoints of a run; only the process that holds the run's lock writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._corrupt: set[Path] = set()

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint that survives a power failure, and delete all but the last two.

        Raises:
            RunFolderUnusable: the folder is read-only or full; earlier checkpoints are untouched.
        """
        arrays, shapes = compress_images(checkpoint.arrays)
        contents = {"step": checkpoint.step, "meta": checkpoint.meta, "compressed": shapes}
        content = pack(arrays, contents)
        # Numbered, since two checkpoints may be of the same step, for example at the end of a run.
        number = max((file.number for file in self.files()), default=0) + 1
        digest = hashlib.sha256(content).hexdigest()
        name = f"checkpoint-{number:06d}-step-{checkpoint.step}-{digest}.safetensors"
        with folder_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / name, content, is_synced=True)
            # Damaged files are deleted first, so that they do not displace the fallback.
            files = self.files()
            kept = [file for file in files if file.path not in self._corrupt][:KEPT]
            for file in files:
                if file not in kept:
                    file.path.unlink(missing_ok=True)
        return self.folder / name

    def load(self) -> Checkpoint | None:
        """Return the newest undamaged checkpoint; None if there are no checkpoints.

        Raises:
            CorruptCheckpoint: There are checkpoints, but all are damaged.
        """
        files = self.files()
        for file in files:
            try:
                return read_checkpoint(file)
            except (OSError, ValueError) as error:
                self._corrupt.add(file.path)
                log.warning("%s", damage_message(file, error, is_last=file is files[-1]))
        if files:
            raise CorruptCheckpoint(
                f"None of the {len(files)} checkpoints in {self.folder} is undamaged. "
                "Put one back from a backup, or delete the experiment with `rl-teacher delete` to "
                "start over."
            )
        return None

    def files(self) -> list[CheckpointFile]:
        """Return every checkpoint, newest first."""
        return list_checkpoints(self.folder)

    def clear_unfinished(self) -> None:
        """Delete what a killed process was writing."""
        if self.folder.exists():
            remove_unfinished(self.folder)


def list_checkpoints(folder: Path) -> list[CheckpointFile]:
    """Return every checkpoint, newest first."""
    matches = [(path, FILE_NAME.fullmatch(path.name)) for path in folder.glob("checkpoint-*")]
    files = [
        CheckpointFile(path, int(match["number"]), int(match["step"]), match["digest"])
        for path, match in matches
        if match
    ]
    return sorted(files, key=lambda file: file.number, reverse=True)


def read_checkpoint(file: CheckpointFile) -> Checkpoint:
    """Read a file and verify its hash.

    Raises:
        ValueError: The file is damaged.
    """
    content = file.path.read_bytes()
    if hashlib.sha256(content).hexdigest() != file.digest:
        raise ValueError("its content does not have the SHA-256 in its name")
    try:
        arrays, contents = unpack(content)
        shapes = contents.get("compressed", {})
        if sum(map(math.prod, shapes.values())) > unpacked_limit(len(content)):
            raise ValueError("it declares more images than a file of its size has")
        for name, shape in shapes.items():
            arrays[name] = decompress_image(arrays[name], shape)
        checkpoint = Checkpoint(contents["step"], arrays, contents["meta"])
        if type(checkpoint.step) is not int or not isinstance(checkpoint.meta, dict):
            raise TypeError("its step or the rest has another type")
        return checkpoint
    except (zlib.error, *INVALID_CONTENT) as error:
        raise ValueError(f"its content is no checkpoint ({error!r:.200})") from error


def decompress_image(compressed: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Decompress an array of bytes, as many as its shape has.

    Raises:
        ValueError: there are fewer or more.
    """
    # One byte more than needed, so that more are noticed, but not allocated.
    content = zlib.decompressobj().decompress(compressed.data, math.prod(shape) + 1)
    # A copy, since arrays of `bytes` cannot be written to.
    return np.frombuffer(content, np.uint8).reshape(shape).copy()


def compress_images(
    arrays: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, ...]]]:
    """Compress large arrays of bytes, which are recorded frames.

    Returns:
        All arrays, and the shapes of those that are compressed.
    """
    shapes = {
        name: array.shape
        for name, array in arrays.items()
        if array.dtype == np.uint8 and array.nbytes >= COMPRESSED_FROM_BYTES
    }
    # The fastest level: frames are mostly uniform, and the run waits.
    packed = {name: zlib.compress(np.ascontiguousarray(arrays[name]).data, 1) for name in shapes}
    # Padded, since very uniform frames would be taken for a bomb.
    compressed = {
        name: np.frombuffer(content.ljust(arrays[name].nbytes // MAX_RATIO, b"\0"), np.uint8)
        for name, content in packed.items()
    }
    return {**arrays, **compressed}, shapes


def damage_message(file: CheckpointFile, error: Exception, *, is_last: bool) -> str:
    """Return the warning about a damaged file."""
    instead = "No earlier one is left." if is_last else "The one before it is used instead."
    return f"The checkpoint of step {file.step} is damaged: {error} ({file.path}). {instead}"
