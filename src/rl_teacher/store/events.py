"""Append-only audit log."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from rl_teacher.common.files import jsonable
from rl_teacher.store.database import Database
from rl_teacher.store.records import EventView, Page
from rl_teacher.store.sql import MAX_ID, columns_of, page_of
from rl_teacher.store.tables import Event, Experiment, Labeler

EVENTS = (
    select(*columns_of(EventView, Event, experiment=Experiment.name, labeler=Labeler.name))
    .outerjoin(Experiment, Experiment.id == Event.experiment_id)
    .outerjoin(Labeler, Labeler.id == Event.labeler_id)
    .where(Event.id < bindparam("before_id"))
    .order_by(Event.id.desc())
    .limit(bindparam("limit"))
)

EVENTS_OF_EXPERIMENT = EVENTS.where(Event.experiment_id == bindparam("experiment_id"))


class EventLog:
    """The audit log: who did what, and when."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        kind: str,
        details: Mapping[str, Any],
        experiment_id: int | None = None,
        labeler_id: int | None = None,
    ) -> None:
        """Append an event in a transaction of its own."""
        with self._database.writing() as connection:
            self.append(connection, kind, details, labeler_id, experiment_id)

    def append(
        self,
        connection: Connection,
        kind: str,
        details: Mapping[str, Any],
        labeler_id: int | None,
        experiment_id: int | None = None,
    ) -> None:
        """Append an event in the transaction that performs the action."""
        event = {
            "experiment_id": experiment_id,
            "labeler_id": labeler_id,
            "kind": kind,
            "details": jsonable(details),
            "created_at": self._database.now(),
        }
        connection.execute(insert(Event), event)

    def page(
        self, experiment_id: int | None = None, after: int | None = None, limit: int = 50
    ) -> Page[EventView]:
        """Return a page of events, newest first.

        Args:
            experiment_id: Experiment; None for all events.
            after: `next` of the previous page.
            limit: Maximum number of rows.
        """
        parameters = {"before_id": MAX_ID if after is None else after, "limit": limit + 1}
        statement = EVENTS
        if experiment_id is not None:
            statement = EVENTS_OF_EXPERIMENT
            parameters["experiment_id"] = experiment_id
        events = [EventView(**row) for row in self._database.rows(statement, **parameters)]
        return page_of(events, limit)
