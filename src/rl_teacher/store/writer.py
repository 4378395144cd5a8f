"""What everything that writes to a store shares: a clock, labelers by name, the audit trail."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select

from rl_teacher.store.database import Database
from rl_teacher.store.plain import plain
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


class StoreWriter(StoreReader):
    """A store that may be written; what a method wrote is committed when it returns."""

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(database)
        self._now = now
        self._add_labeler = insert_or_skip(database.dialect, Labeler, "name")
        self._labeler_ids: dict[str, int] = {}

    def _ids_of_labelers(self, names: Collection[str]) -> Mapping[str, int]:
        """Whoever is not known yet is written down first; nobody is ever deleted.

        Note: in a transaction of its own, so that it is asked before another one begins.
        """
        unknown = sorted(set(names) - self._labeler_ids.keys())
        if unknown:
            moment = self._now()
            with self._database.writing() as connection:
                rows = [
                    {"name": name, "role": role_of(name), "created_at": moment} for name in unknown
                ]
                connection.execute(self._add_labeler, rows)
                found = connection.execute(FIND_LABELERS, {"names": unknown})
                ids = {row.name: row.id for row in found}
            self._labeler_ids.update(ids)
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
