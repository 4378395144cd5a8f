"""SQL shared by the parts of the store: conditions, chunking, upserts and locks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, and_, exists, func, not_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import aliased

from rl_teacher.clips.answer import Answer
from rl_teacher.store.migrate import MIGRATION_LOCK
from rl_teacher.store.tables import Base, Label, Labeler

Item = TypeVar("Item")

MAX_ID = 2**31 - 1
"""Largest id that fits PostgreSQL's INTEGER; a larger one cannot exist."""

CHUNK = 1_000
"""Rows per statement; databases accept some ten thousand parameters at most."""

LABELS_LOCK = MIGRATION_LOCK + 1
"""Key of the PostgreSQL advisory lock that serialises writers of labels."""

Later = aliased(Label)

IS_CURRENT = and_(
    Label.answer.is_not(None),
    Label.purpose == "answer",
    not_(
        exists().where(
            Later.comparison_id == Label.comparison_id,
            Later.labeler_id == Label.labeler_id,
            Later.purpose == "answer",
            Later.id > Label.id,
        )
    ),
)
"""True for a label with an answer that no later label of the same labeler replaces."""

IS_NOT_EXCLUDED = Labeler.excluded_at.is_(None)


def insert_into(dialect: str, table: type[Base]) -> Any:
    """Return the dialect's INSERT, which supports ON CONFLICT."""
    return {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect](table)


def insert_or_skip(dialect: str, table: type[Base], *unique: str) -> Any:
    """Return an INSERT that skips rows which exist; conflicts on other columns still raise."""
    return insert_into(dialect, table).on_conflict_do_nothing(index_elements=unique)


def lock_labels(connection: Connection) -> None:
    """Serialise transactions that write labels, so that they commit in the order of their ids.

    A reader that has seen a label can then ask for later ids without missing one. SQLite has a
    single writer anyway; PostgreSQL assigns ids before it commits.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(LABELS_LOCK)))


def valid_ids(ids: Iterable[int]) -> list[int]:
    """Return the ids that fit the column; databases reject larger numbers with an error."""
    return [each for each in ids if 0 < each <= MAX_ID]


def in_chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Split items into lists of at most `CHUNK`."""
    for start in range(0, len(items), CHUNK):
        yield list(items[start : start + CHUNK])


def as_answer(value: str | None) -> Answer | None:
    """Convert a nullable column to an answer."""
    return None if value is None else Answer(value)
