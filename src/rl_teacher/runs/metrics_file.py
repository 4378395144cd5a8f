"""Logged metrics as JSON lines, a copy of those in the database."""

import json
import os
from collections.abc import Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from rl_teacher.common.files import is_finite, jsonable, write_atomically

Row = dict[str, Any]

TAIL_BYTES = 1 << 16
"""More than any single row needs."""


class MetricsFile:
    """A file that grows by one line at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: FileIO | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row, which survives SIGKILL."""
        content = to_line(row).encode()
        if self._file is None:
            # A torn last line is ended first, or the new row would be lost with it.
            if self._read(tail_bytes=1) not in (b"", b"\n"):
                content = b"\n" + content
            # Unbuffered, so that closing has nothing left to write and cannot fail.
            self._file = self.path.open("ab", buffering=0)
        try:
            write_all(self._file, content)
        except OSError:
            self.close()
            raise

    def rows(self) -> list[Row]:
        """Return every complete row, oldest first."""
        return parse(self._read().splitlines())

    def last(self) -> Row:
        """Return the newest complete row; empty if there is none."""
        return next(reversed(parse(self._read(TAIL_BYTES).splitlines())), {})

    def drop_after(self, step: int) -> None:
        """Delete the rows of later steps, which a resumed run repeats."""
        self.close()
        kept = [row for row in self.rows() if number_in(row, "step") <= step]
        if self.path.exists():
            content = "".join(map(to_line, kept)).encode()
            write_atomically(self.path, content, is_synced=False)

    def close(self) -> None:
        """Close the file; the next row opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, tail_bytes: int | None = None) -> bytes:
        """Read the file or its tail; empty if it does not exist."""
        try:
            with self.path.open("rb") as file:
                size_bytes = file.seek(0, os.SEEK_END)
                wanted_bytes = size_bytes if tail_bytes is None else tail_bytes
                file.seek(max(0, size_bytes - wanted_bytes))
                return file.read(wanted_bytes)
        except FileNotFoundError:
            return b""


def number_in(row: Row, key: str) -> float:
    """Return a number of a row; 0 if it is missing or damaged."""
    value = row.get(key)
    return value if is_finite(value) else 0


def write_all(file: FileIO, content: bytes) -> None:
    """Write every byte; a write to an unbuffered file may be partial."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def to_line(row: Mapping[str, Any]) -> str:
    """Encode a row as a line of JSON."""
    return json.dumps(jsonable(row), allow_nan=False) + "\n"


def parse(lines: Iterable[bytes]) -> list[Row]:
    """Decode lines, skipping those that are not a JSON object."""
    rows: list[Row] = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
