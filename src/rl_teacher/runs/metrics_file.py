"""Logged metrics as JSON lines, a copy of those in the database."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rl_teacher.common.files import folder_errors, is_finite, jsonable, write_atomically

Row = dict[str, Any]

TAIL_BYTES = 1 << 16
"""More than any single row needs."""


class MetricsFile:
    """A file that grows by one line at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row, which survives SIGKILL; NaN is stored as null.

        Raises:
            RunFolderUnusable: the folder is read-only or full.
        """
        with folder_errors(self.path.parent), self.path.open("ab") as file:
            file.write(to_line(row).encode())

    def rows(self) -> list[Row]:
        """Return every complete row, oldest first."""
        return parse(self._lines())

    def last(self) -> Row:
        """Return the newest complete row; empty if there is none."""
        return next(reversed(parse(self._lines(TAIL_BYTES))), {})

    def drop_after(self, step: int) -> None:
        """Delete the rows of later steps, which a resumed run repeats, and damaged lines."""
        kept = [row for row in self.rows() if number_in(row, "step") <= step]
        if self.path.exists():
            content = "".join(map(to_line, kept)).encode()
            with folder_errors(self.path.parent):
                write_atomically(self.path, content, is_synced=False)

    def _lines(self, tail_bytes: int | None = None) -> list[bytes]:
        """Read the lines of the file or of its tail; none if it does not exist."""
        try:
            with self.path.open("rb") as file:
                if tail_bytes is not None:
                    file.seek(max(0, file.seek(0, os.SEEK_END) - tail_bytes))
                return file.readlines()
        except FileNotFoundError:
            return []


def number_in(row: Row, key: str) -> float:
    """Return a number of a row; 0 if it is missing or damaged."""
    value = row.get(key)
    return value if is_finite(value) else 0


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
