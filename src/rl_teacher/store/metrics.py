"""A run's figures, one JSON row per line; a row torn by a killed process is left out."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from rl_teacher.store.files import write_whole

Row = dict[str, Any]

TAIL_BYTES = 1 << 16
"""Enough for the last row, whatever is in it."""


class MetricsFile:
    """A file that grows by one line at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: FileIO | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; it outlives a killed process."""
        content = to_line(row).encode()
        if self._file is None:
            # Note: a torn last line is ended first, or the new row would be torn with it.
            content = self._missing_line_end() + content
            # Note: unbuffered, so that closing has nothing left to write, and nothing to fail at.
            self._file = self.path.open("ab", buffering=0)
        try:
            write_all(self._file, content)
        except OSError:
            self.close()
            raise

    def rows(self) -> list[Row]:
        """Every whole row, oldest first."""
        return parse(self._read().splitlines())

    def last(self) -> Row:
        """The newest whole row, or an empty one."""
        return next(reversed(parse(self._read(TAIL_BYTES).splitlines())), {})

    def drop_after(self, step: int) -> None:
        """Forget the rows of steps that a resumed run is going to take again."""
        self.close()
        rows = self.rows()
        kept = [row for row in rows if not row.get("step", 0) > step]
        if self.path.exists():
            content = "".join(to_line(row) for row in kept).encode()
            write_whole(self.path, content, is_synced=False)

    def close(self) -> None:
        """Close the file; the next row opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _missing_line_end(self) -> bytes:
        return b"" if self._read(tail_bytes=1) in (b"", b"\n") else b"\n"

    def _read(self, tail_bytes: int | None = None) -> bytes:
        """The file's bytes, or only the last ones; nothing if there is no file yet."""
        try:
            with self.path.open("rb") as file:
                size_bytes = file.seek(0, os.SEEK_END)
                wanted_bytes = size_bytes if tail_bytes is None else tail_bytes
                file.seek(max(0, size_bytes - wanted_bytes))
                return file.read(wanted_bytes)
        except FileNotFoundError:
            return b""


def write_all(file: FileIO, content: bytes) -> None:
    """Write every byte; an unbuffered file may take only some at a time."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def to_line(row: Mapping[str, Any]) -> str:
    """A row as JSON; JSON has no NaN, so that becomes null."""
    return json.dumps({key: to_json(value) for key, value in row.items()}, allow_nan=False) + "\n"


def to_json(value: Any) -> Any:
    """A figure as JSON has it."""
    plain = value.item() if isinstance(value, np.generic | np.ndarray) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def parse(lines: Iterable[bytes]) -> list[Row]:
    """The rows among some lines; what is not a row is left out."""
    rows = [parse_line(line) for line in lines]
    return [row for row in rows if row is not None]


def parse_line(line: bytes) -> Row | None:
    """A row, or None for half of one."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
