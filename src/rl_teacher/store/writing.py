"""The statements that write, and the rows that they write."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Delete, Insert, delete, exists, func, insert, not_, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from rl_teacher.clips.answer import Answer
from rl_teacher.store.jsonable import plain
from rl_teacher.store.migrate import MIGRATION_LOCK
from rl_teacher.store.records import NewLabel
from rl_teacher.store.tables import Base, Clip, Comparison, Event, Experiment, Metrics

LABELS_LOCK = MIGRATION_LOCK + 1
"""The name of PostgreSQL's lock on the end of the labels."""

WAIT_FOR_OTHER_LABELS = select(func.pg_advisory_xact_lock(LABELS_LOCK))

ADD_METRICS = insert(Metrics)

ADD_EVENT = insert(Event)

SHOWN_COLUMNS = ("kind", "media_key", "scene_hash", "num_frames", "fps")

LONGEST_MS = 2**31 - 1
"""Some 24 days; nobody thinks longer, and PostgreSQL has no more room."""


def insert_or_skip(dialect: str, table: type[Base], *unique: str) -> Insert:
    """An insert that leaves a row alone which is there already: SQL has no common word for it.

    Note: the columns that say which row it is are named, so that no other conflict is skipped.
    """
    add = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect](table)
    return add.on_conflict_do_nothing(index_elements=unique)


def insert_or_show(dialect: str) -> Insert:
    """An insert that completes a clip which is there already."""
    add = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect](Clip)
    shown = {name: add.excluded[name] for name in SHOWN_COLUMNS}
    return add.on_conflict_do_update(index_elements=[Clip.content_hash], set_=shown)


def in_order(connection: Connection) -> None:
    """Let labels be committed in the order of their ids.

    Whoever has seen a label may then ask for those after it, and misses none. SQLite has one writer
    at a time anyhow; PostgreSQL hands out ids before it commits.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(WAIT_FOR_OTHER_LABELS)


def forget_experiment(name: str) -> Delete:
    """Delete an experiment; the database's foreign keys take its comparisons and labels along."""
    return delete(Experiment).where(Experiment.name == name)


def forget_unused_clip(content_hash: str) -> Delete:
    """Delete a clip, unless a comparison is about it or it is an experiment's latest episode."""
    compared = exists().where(
        or_(Comparison.left_hash == content_hash, Comparison.right_hash == content_hash)
    )
    watched = exists().where(Experiment.latest_episode["clip"].as_string() == content_hash)
    return delete(Clip).where(Clip.content_hash == content_hash, not_(compared), not_(watched))


def as_row(label: NewLabel, labeler_id: int, moment: datetime) -> dict[str, Any]:
    """A label as the table has it."""
    return {
        "comparison_id": label.comparison_id,
        "answer": None if label.answer is None else Answer(label.answer).value,
        "labeler_id": labeler_id,
        "request_id": label.request_id,
        "created_at": moment,
        "is_swapped": label.is_swapped,
        "response_ms": None if label.response_ms is None else min(label.response_ms, LONGEST_MS),
        "details": None if label.details is None else plain(label.details),
        "purpose": "answer",
        "lease": "none" if label.lease is None else "late",
    }
