"""What everything that writes to a store shares: a clock, labelers by name, the audit trail."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select

from rl_teacher.store.database import Database
from rl_teacher.store.jsonable import plain
from rl_teacher.store.reading import StoreReader
from rl_teacher.store.records import Role
from rl_teacher.store.tables import Labeler
from rl_teacher.store.writing import ADD_EVENT, insert_or_skip

OWNER = "owner"
"""The labeler who has the home's own credential."""

TEACHER_PREFIX = "synthetic:"

FIND_LABELERS = select(Labeler.name, Labeler.id).where(
    Labeler.name.in_(bindparam("names", expanding=True))
)


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


def role_of(name: str) -> Role:
    """What somebody may do of whom only the name is known."""
    if name == OWNER:
        return "owner"
    return "teacher" if name.startswith(TEACHER_PREFIX) else "labeler"


def ids_of(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """Labelers' ids by name; only of those who are there."""
    found = connection.execute(FIND_LABELERS, {"names": sorted(names)})
    return {row.name: row.id for row in found}


class StoreWriter(StoreReader):
    """A store that may be written; what a method wrote is committed when it returns."""

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(database)
        self._now = now
        self._add_labeler = insert_or_skip(database.dialect, Labeler, "name")
        self._labeler_ids: dict[str, int] = {}

    def _ids_of_labelers(self, names: Collection[str]) -> Mapping[str, int]:
        """Whoever is not there yet is written down first; nobody is ever deleted.

        Note: in transactions of their own, so that it is asked before another one begins.
        """
        if unknown := set(names) - self._labeler_ids.keys():
            with self._database.reading() as connection:
                self._labeler_ids.update(ids_of(connection, unknown))
        if new := unknown - self._labeler_ids.keys():
            moment = self._now()
            rows = [{"name": each, "role": role_of(each), "created_at": moment} for each in new]
            with self._database.writing() as connection:
                connection.execute(self._add_labeler, rows)
                self._labeler_ids.update(ids_of(connection, new))
        return self._labeler_ids

    def _id_of_labeler(self, name: str) -> int:
        return self._ids_of_labelers({name})[name]

    def _write_down(
        self,
        connection: Connection,
        kind: str,
        details: Mapping[str, Any],
        labeler_id: int | None,
        experiment_id: int | None = None,
    ) -> None:
        """Tell the audit trail, in the transaction that makes it true."""
        event = {
            "experiment_id": experiment_id,
            "labeler_id": labeler_id,
            "kind": kind,
            "details": plain(details),
            "created_at": self._now(),
        }
        connection.execute(ADD_EVENT, event)
