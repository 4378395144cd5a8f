"""Logged metrics in the database."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from rl_teacher.common.files import jsonable
from rl_teacher.store.database import Database
from rl_teacher.store.records import MetricsRow
from rl_teacher.store.sql import experiment_deleted
from rl_teacher.store.tables import Metrics

ROWS = select(Metrics.id, Metrics.step, Metrics.row).where(
    Metrics.experiment_id == bindparam("experiment_id")
)

LATEST = ROWS.order_by(Metrics.id.desc()).limit(1)

AFTER = ROWS.where(Metrics.id > bindparam("after_id")).order_by(Metrics.id)

NUM_AFTER = AFTER.with_only_columns(func.count()).order_by(None)

NUMBERED = (
    AFTER.with_only_columns(
        Metrics.id, func.row_number().over(order_by=Metrics.id.desc()).label("number")
    )
    .order_by(None)
    .subquery()
)

# Counted from the newest row, which is always included.
EVERY_NTH = (
    select(Metrics.id, Metrics.step, Metrics.row)
    .join(NUMBERED, NUMBERED.c.id == Metrics.id)
    .where((NUMBERED.c.number - 1) % bindparam("stride") == 0)
    .order_by(Metrics.id)
)


class MetricsLog:
    """The metrics of all experiments."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, experiment_id: int, step: int, row: Mapping[str, Any]) -> None:
        """Append the metrics of a step; NaN and infinity become null.

        A row that equals the newest one is skipped: it was committed, but its sender does not know.

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
                newest = connection.execute(LATEST, {"experiment_id": experiment_id}).one_or_none()
                if newest is None or tuple(newest)[1:] != (step, metrics["row"]):
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
