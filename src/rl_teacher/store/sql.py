"""SQL shared by the parts of the store: conditions, columns, pagination, upserts and locks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, and_, bindparam, exists, not_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import aliased

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ExperimentNotFound
from rl_teacher.store.records import ClipView, ComparisonView, ExportedLabel, Page
from rl_teacher.store.tables import Base, Clip, Comparison, Experiment, Label, Labeler

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Item = TypeVar("Item")
Record = TypeVar("Record", bound="DataclassInstance")

MAX_ID = 2**31 - 1
"""Largest id that fits PostgreSQL's INTEGER; a larger one cannot exist."""

CHUNK = 1_000
"""Rows per statement; databases accept some ten thousand parameters at most."""

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

OF_EXPERIMENT = Comparison.experiment_id == bindparam("experiment_id")
"""Condition on comparisons: those of one experiment."""

THESE = Comparison.id.in_(bindparam("comparison_ids", expanding=True))
"""Condition on comparisons: those with these ids."""

OF_THESE = Label.comparison_id.in_(bindparam("comparison_ids", expanding=True))
"""Condition on labels: those of the comparisons with these ids."""

WITH_REQUEST_IDS = Label.request_id.in_(bindparam("request_ids", expanding=True))
"""Condition on labels: those with these request ids."""

IS_NOT_EXCLUDED = Labeler.excluded_at.is_(None)


def insert_into(dialect: str, table: type[Base]) -> Any:
    """Return the dialect's INSERT, which supports ON CONFLICT."""
    return {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect](table)


def insert_or_skip(dialect: str, table: type[Base], *unique: str) -> Any:
    """Return an INSERT that skips rows which exist; conflicts on other columns still raise."""
    return insert_into(dialect, table).on_conflict_do_nothing(index_elements=unique)


def in_chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Split items into lists of at most `CHUNK`."""
    for start in range(0, len(items), CHUNK):
        yield list(items[start : start + CHUNK])


def columns_of(record: type, *tables: type[Base], **others: Any) -> list[Any]:
    """Return the columns of a record's fields, under the names of the fields.

    Args:
        record: Dataclass.
        tables: Tables whose columns have the names of fields; the first one that has a name counts.
            Fields that are in no table are left out.
        others: Columns of fields with another name or a computed value.
    """
    named = {
        name: next((getattr(table, name) for table in tables if hasattr(table, name)), None)
        for name in record.__dataclass_fields__
    } | {name: column.label(name) for name, column in others.items()}
    return [column for column in named.values() if column is not None]


def record_of(record: type[Record], row: Mapping[Any, Any], **others: Any) -> Record:
    """Convert a row to a record.

    Args:
        record: Dataclass.
        row: Row with columns under the names of fields, and possibly more.
        others: Values of the other fields.
    """
    names = [name for name in record.__dataclass_fields__ if name in row]
    return record(**{name: row[name] for name in names} | others)


def as_answer(value: str | None) -> Answer | None:
    """Convert a nullable column to an answer."""
    return None if value is None else Answer(value)


def page_of(found: Sequence[Any], limit: int) -> Page[Any]:
    """Cut a page from records, newest first, that include one more if there is a next page."""
    rows = list(found[:limit])
    return Page(rows, rows[-1].id if len(found) > limit else None)


Left, Right = aliased(Clip), aliased(Clip)

CLIP_FIELDS = tuple(ClipView.__dataclass_fields__)

CLIP_COLUMNS = [
    getattr(side, name).label(f"{prefix}_{name}")
    for prefix, side in (("left", Left), ("right", Right))
    for name in CLIP_FIELDS
]
"""Columns of both clips of a comparison, read by `clip_pair`."""

COMPARISONS = (
    select(
        *columns_of(ComparisonView, Comparison, experiment_name=Experiment.name),
        *CLIP_COLUMNS,
    )
    .select_from(Comparison)
    .join(Experiment, Experiment.id == Comparison.experiment_id)
    .join(Left, Left.content_hash == Comparison.left_hash)
    .join(Right, Right.content_hash == Comparison.right_hash)
)

COMPARISONS_BY_ID = COMPARISONS.where(THESE)

EXPORTED_LABELS = (
    select(
        *columns_of(
            ExportedLabel,
            *(Label, Comparison, Labeler),
            comparison_number=Comparison.number,
            labeler=Labeler.name,
            is_current=IS_CURRENT,
            is_excluded=Labeler.excluded_at.is_not(None),
        )
    )
    .join(Comparison, Comparison.id == Label.comparison_id)
    .join(Labeler, Labeler.id == Label.labeler_id)
    .order_by(Label.id)
)


EXPERIMENT_ID = select(Experiment.id).where(Experiment.name == bindparam("name"))


def comparison_view(row: Mapping[Any, Any]) -> ComparisonView:
    """Convert a row of `COMPARISONS`."""
    return record_of(ComparisonView, row, **clip_pair(row))


def clip_pair(row: Mapping[Any, Any]) -> dict[str, ClipView]:
    """Return both clips of a row with `CLIP_COLUMNS`, by side."""
    return {
        side: ClipView(**{name: row[f"{side}_{name}"] for name in CLIP_FIELDS})
        for side in ("left", "right")
    }


def exported_label(row: Mapping[Any, Any]) -> ExportedLabel:
    """Convert a row of `EXPORTED_LABELS`."""
    answers = {name: as_answer(row[name]) for name in ("gold", "answer")}
    return ExportedLabel(**{**row, **answers})


def find_experiment(connection: Connection, name: str) -> int:
    """Return the id of an experiment.

    Raises:
        ExperimentNotFound: There is no such experiment.
    """
    found = connection.execute(EXPERIMENT_ID, {"name": name}).scalar()
    if found is None:
        raise experiment_not_found(name)
    return found


def experiment_not_found(name: str) -> ExperimentNotFound:
    """Return the error for an unknown name."""
    return ExperimentNotFound(
        f"There is no experiment {name[:80]!r} in the store. Look at the list of experiments.",
        unknown=name,
    )


def experiment_deleted(experiment_id: int) -> ExperimentNotFound:
    """Return the error for an experiment that no longer exists."""
    return ExperimentNotFound(
        f"Experiment {experiment_id} is no longer in the store: it was deleted, perhaps "
        "by --force-new in another terminal. Start this one again."
    )
