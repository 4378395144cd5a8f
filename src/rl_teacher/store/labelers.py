"""Labelers: people and synthetic teachers, by name."""

import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from rl_teacher.common.errors import BadLabelerName, LabelerExists, LabelerNotFound
from rl_teacher.store.counters import COMPARISONS_OF_LABELER, recount
from rl_teacher.store.database import Database
from rl_teacher.store.events import EventLog
from rl_teacher.store.records import LabelerView, Role
from rl_teacher.store.sql import columns_of
from rl_teacher.store.tables import Labeler, Lease, Tally

OWNER = "owner"
"""Name of the labeler who holds the credential of the home folder."""

TEACHER_PREFIX = "synthetic:"

IMPORTED_PREFIX = "imported:"
"""Prefix of the names of imported labelers, so that they are not confused with local ones."""

RESERVED_PREFIXES = (TEACHER_PREFIX, IMPORTED_PREFIX)
"""Prefixes of labelers who are not people of this store; nobody can join or act under them."""

LABELER_ROLES = ("owner", "labeler")
"""Roles of people; a synthetic teacher gets its role from its name and needs no credential."""

MAX_NAME_LENGTH = 100

LABELERS = (
    select(
        *columns_of(
            LabelerView,
            Labeler,
            num_labels=func.coalesce(func.sum(Tally.num_labels), 0),
            last_label_at=func.max(Tally.last_label_at),
        )
    )
    .outerjoin(Tally, Tally.labeler_id == Labeler.id)
    .group_by(Labeler.id)
    .order_by(Labeler.id)
)

LABELER_BY_NAME = select(Labeler.id, Labeler.name, Labeler.role, Labeler.excluded_at).where(
    Labeler.name == bindparam("name")
)

LABELER_IDS = select(Labeler.name, Labeler.id).where(
    Labeler.name.in_(bindparam("names", expanding=True))
)

NAMES = select(Labeler.name)

EXCLUDED_IDS = select(Labeler.id).where(Labeler.excluded_at.is_not(None))


class Labelers:
    """The labelers; they are never deleted."""

    def __init__(self, database: Database, events: EventLog) -> None:
        self._database = database
        self._events = events

    def all(self) -> list[LabelerView]:
        """Return every labeler in the order of their first contact."""
        return [LabelerView(**row) for row in self._database.rows(LABELERS)]

    def excluded_ids(self) -> frozenset[int]:
        """Return the ids of labelers whose labels are not used."""
        return frozenset(row["id"] for row in self._database.rows(EXCLUDED_IDS))

    def id_of(self, name: str) -> int:
        """Return the id of a labeler, who is added if unknown."""
        return self.ids_of({name})[name]

    def ids_of(self, names: Collection[str]) -> Mapping[str, int]:
        """Return the ids of labelers by name; unknown ones are added.

        This opens transactions of its own and must not be called inside another one.
        """
        # Reading first: most names are known, and a write would wait for its turn.
        with self._database.reading() as connection:
            found = read_ids(connection, names)
        if new := set(names) - found.keys():
            moment = self._database.now()
            with self._database.writing() as connection:
                found |= read_ids(connection, new)  # another process may have added one
                for name in new - found.keys():
                    row = {"name": name, "role": role_of(name), "created_at": moment}
                    added = insert(Labeler).returning(Labeler.id)
                    found[name] = connection.execute(added, row).scalar_one()
        return found

    def add_within(self, connection: Connection, name: str, role: Role) -> int:
        """Add a labeler within a transaction, and return the id.

        Raises:
            LabelerExists: The name is taken, or one that differs only in case, width or spaces.
            BadLabelerName: The name is not allowed.
        """
        normalised = normalise_name(name, role)
        looks = appearance(normalised)
        taken = (each for each in connection.execute(NAMES).scalars() if appearance(each) == looks)
        if (other := next(taken, None)) is not None:
            raise LabelerExists(other)
        row = {"name": normalised, "role": role, "created_at": self._database.now()}
        return connection.execute(insert(Labeler).returning(Labeler.id), row).scalar_one()

    def set_excluded(self, name: str, is_excluded: bool, *, by: str = OWNER) -> None:
        """Exclude a labeler from training, or include them again; the labels are kept.

        Raises:
            LabelerNotFound: There is no such labeler.
        """
        by_id = self.id_of(by)
        with self._database.writing() as connection:
            labeler = find_labeler(connection, name)
            if (labeler.excluded_at is not None) == is_excluded:
                return
            excluded_at = self._database.now() if is_excluded else None
            change = update(Labeler).where(Labeler.id == labeler.id)
            connection.execute(change.values(excluded_at=excluded_at))
            if is_excluded:
                # Others can answer these comparisons at once.
                held = update(Lease).where(
                    Lease.labeler_id == labeler.id, Lease.expires_at > excluded_at
                )
                connection.execute(held.values(expires_at=excluded_at))
            answered = connection.execute(COMPARISONS_OF_LABELER, {"labeler_id": labeler.id})
            recount(connection, list(answered.scalars()))
            kind = "exclude" if is_excluded else "include"
            self._events.append(connection, kind, {"labeler": name}, by_id)


def read_ids(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """Read the ids of the labelers that exist."""
    found = connection.execute(LABELER_IDS, {"names": sorted(names)})
    return {row.name: row.id for row in found}


def role_of(name: str) -> Role:
    """Return the role that a name implies."""
    if name == OWNER:
        return "owner"
    return "teacher" if name.startswith(TEACHER_PREFIX) else "labeler"


def find_labeler(connection: Connection, name: str) -> Any:
    """Return a row of `LABELER_BY_NAME`, by the stored name or as the person's name was given.

    Raises:
        LabelerNotFound: There is no such labeler.
    """
    for each in (name, composed(name)):
        found = connection.execute(LABELER_BY_NAME, {"name": each}).one_or_none()
        if found is not None:
            return found
    raise LabelerNotFound(name)


def normalise_name(name: str, role: str) -> str:
    """Normalise a name to NFC without surrounding space.

    Raises:
        BadLabelerName: The name is empty, too long, unprintable, or reserved for another role.
    """
    normalised = composed(name)
    is_visible = normalised.isprintable() and appearance(normalised) != ""
    if not is_visible or len(normalised) > MAX_NAME_LENGTH:
        raise BadLabelerName(
            f"{name[:MAX_NAME_LENGTH]!r} cannot be a labeler's name. Give 1 to {MAX_NAME_LENGTH} "
            "printable characters."
        )
    if is_reserved(normalised, role):
        raise BadLabelerName(f"The name {normalised!r} is reserved. Choose another one.")
    return normalised


def composed(name: str) -> str:
    """Return a name in Unicode normal form C without surrounding space."""
    return unicodedata.normalize("NFC", name).strip()


def is_reserved(name: str, role: str) -> bool:
    """Return whether a person of a role cannot have a name."""
    looks = appearance(name)
    return looks.startswith(RESERVED_PREFIXES) or (looks == OWNER and role != "owner")


def appearance(name: str) -> str:
    """Return a text that is equal for names that differ in case, width or spaces alone."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
