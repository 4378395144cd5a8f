"""A trainer's figures in the store, for whoever draws them elsewhere."""

from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, func, select

from rl_teacher.store.records import MetricsRow
from rl_teacher.store.tables import Metrics

DROP_AFTER = delete(Metrics).where(
    Metrics.experiment_id == bindparam("of_experiment"), Metrics.step > bindparam("last_step")
)

OF_EXPERIMENT = select(Metrics.id, Metrics.step, Metrics.row).where(
    Metrics.experiment_id == bindparam("experiment_id")
)

LATEST = OF_EXPERIMENT.order_by(Metrics.id.desc()).limit(1)

AFTER = OF_EXPERIMENT.where(Metrics.id > bindparam("after_id")).order_by(Metrics.id)

NUM_AFTER = (
    select(func.count())
    .select_from(Metrics)
    .where(Metrics.experiment_id == bindparam("experiment_id"), Metrics.id > bindparam("after_id"))
)


def every_nth() -> Select[int, int, dict[str, Any]]:
    """Every n-th row counted from the newest, so that the newest is always among them."""
    numbered = (
        select(Metrics.id, func.row_number().over(order_by=Metrics.id.desc()).label("place"))
        .where(
            Metrics.experiment_id == bindparam("experiment_id"), Metrics.id > bindparam("after_id")
        )
        .subquery()
    )
    return (
        select(Metrics.id, Metrics.step, Metrics.row)
        .join(numbered, numbered.c.id == Metrics.id)
        .where((numbered.c.place - 1) % bindparam("stride") == 0)
        .order_by(Metrics.id)
    )


EVERY_NTH = every_nth()


def metrics(
    connection: Connection, experiment_id: int, after_id: int, at_most: int | None
) -> list[MetricsRow]:
    """The rows after one, the oldest first; evenly thinned if there are too many."""
    sought = {"experiment_id": experiment_id, "after_id": after_id}
    stride = 1
    if at_most is not None:
        stride = max(1, -(-connection.execute(NUM_AFTER, sought).scalar_one() // at_most))
    rows = (
        connection.execute(AFTER, sought)
        if stride == 1
        else connection.execute(EVERY_NTH, sought | {"stride": stride})
    )
    return [MetricsRow(*row) for row in rows]


def latest_metrics(connection: Connection, experiment_id: int) -> MetricsRow | None:
    """The newest row, if there is one."""
    row = connection.execute(LATEST, {"experiment_id": experiment_id}).one_or_none()
    return None if row is None else MetricsRow(*row)
