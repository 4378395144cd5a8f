"""A run's figures, one JSON row per line; a row torn by a killed process is left out."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from rl_teacher.store.files import write_whole

Row = dict[str, Any]

TAIL_BYTES = 1 << 16
"""Enough for the last row, whatever is in it."""


class MetricsFile:
    """A file that grows by one line at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; it outlives a killed process."""
        if self._file is None:
            self._file = self._open_for_appending()
        self._file.write(to_line(row))
        self._file.flush()

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

    def _open_for_appending(self) -> IO[str]:
        """Note: a torn last line is ended first, or the new row would be torn with it."""
        is_torn = self._read(tail_bytes=1) not in (b"", b"\n")
        file = self.path.open("a", encoding="utf-8")
        if is_torn:
            file.write("\n")
        return file

    def _read(self, tail_bytes: int | None = None) -> bytes:
        """The file's bytes, or only the last ones; nothing if there is no file yet."""
        try:
            with self.path.open("rb") as file:
                size_bytes = file.seek(0, 2)
                file.seek(max(0, size_bytes - tail_bytes) if tail_bytes else 0)
                return file.read()
        except FileNotFoundError:
            return b""


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
