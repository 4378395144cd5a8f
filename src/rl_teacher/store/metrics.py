"""Logged metrics, in the database and as JSON lines."""

import json
import os
from collections.abc import Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from sqlalchemy import Select, bindparam, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from rl_teacher.store.database import Database
from rl_teacher.store.files import jsonable, write_atomically
from rl_teacher.store.records import MetricsRow
from rl_teacher.store.sql import experiment_deleted
from rl_teacher.store.tables import Metrics

ROWS = select(Metrics.id, Metrics.step, Metrics.row).where(
    Metrics.experiment_id == bindparam("experiment_id")
)

LATEST = ROWS.order_by(Metrics.id.desc()).limit(1)

AFTER = ROWS.where(Metrics.id > bindparam("after_id")).order_by(Metrics.id)

NUM_AFTER = (
    select(func.count())
    .select_from(Metrics)
    .where(Metrics.experiment_id == bindparam("experiment_id"), Metrics.id > bindparam("after_id"))
)


def every_nth() -> Select[int, int, dict[str, Any]]:
    """Return a query for every n-th row, counted from the newest, which is always included."""
    numbered = (
        select(Metrics.id, func.row_number().over(order_by=Metrics.id.desc()).label("number"))
        .where(
            Metrics.experiment_id == bindparam("experiment_id"), Metrics.id > bindparam("after_id")
        )
        .subquery()
    )
    return (
        select(Metrics.id, Metrics.step, Metrics.row)
        .join(numbered, numbered.c.id == Metrics.id)
        .where((numbered.c.number - 1) % bindparam("stride") == 0)
        .order_by(Metrics.id)
    )


EVERY_NTH = every_nth()


class MetricsLog:
    """The metrics of all experiments."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, experiment_id: int, step: int, row: Mapping[str, Any]) -> None:
        """Append the metrics of a step; NaN and infinity become null.

        Raises:
            ExperimentNotFound: The experiment was deleted.
        """
        metrics = {
            "experiment_id": experiment_id,
            "step": step,
            "row": jsonable(row),
            "created_at": self._database.now(),
        }
        try:
            with self._database.writing() as connection:
                connection.execute(insert(Metrics), metrics)
        except IntegrityError as error:
            raise experiment_deleted(experiment_id) from error

    def drop_after(self, experiment_id: int, step: int) -> None:
        """Delete the metrics of later steps, which a resumed run repeats."""
        later = delete(Metrics).where(Metrics.experiment_id == experiment_id, Metrics.step > step)
        with self._database.writing() as connection:
            connection.execute(later)

    def after(
        self, experiment_id: int, after_id: int = 0, at_most: int | None = None
    ) -> list[MetricsRow]:
        """Return rows, oldest first.

        Args:
            experiment_id: Experiment.
            after_id: Only later rows.
            at_most: Maximum number of rows; more are thinned evenly, and the newest is kept.
        """
        parameters = {"experiment_id": experiment_id, "after_id": after_id}
        with self._database.reading() as connection:
            stride = 1
            if at_most is not None:
                num_rows = connection.execute(NUM_AFTER, parameters).scalar_one()
                stride = max(1, -(-num_rows // at_most))  # rounded up
            rows = (
                connection.execute(AFTER, parameters)
                if stride == 1
                else connection.execute(EVERY_NTH, parameters | {"stride": stride})
            )
            return [MetricsRow(*row) for row in rows]

    def latest(self, experiment_id: int) -> MetricsRow | None:
        """Return the newest row; None if there is none."""
        for row in self._database.rows(LATEST, experiment_id=experiment_id):
            return MetricsRow(**row)
        return None


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
        kept = [row for row in self.rows() if not row.get("step", 0) > step]
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
