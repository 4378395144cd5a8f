"""What was asked and what was answered, as the trainer needs it: many at a time, by id."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, bindparam, select, tuple_

from rl_teacher.clips.answer import Answer
from rl_teacher.store.labelling import IS_CURRENT, MAX_ID
from rl_teacher.store.records import AnsweredComparison, LabelRow
from rl_teacher.store.tables import Comparison, Label

Item = TypeVar("Item")

CHUNK = 1_000
"""Rows named in one statement; a database takes some ten thousand parameters, not more."""

FIND_COMPARISONS = select(Comparison.id, Comparison.left_hash, Comparison.right_hash).where(
    Comparison.experiment_id == bindparam("experiment_id"),
    tuple_(Comparison.left_hash, Comparison.right_hash).in_(bindparam("pairs", expanding=True)),
)

ANSWERS_OLDEST_FIRST = (
    select(Label.comparison_id, Label.answer)
    .where(Label.comparison_id.in_(bindparam("comparison_ids", expanding=True)))
    .order_by(Label.id)
)

ANSWERED_COMPARISONS = (
    select(Comparison.id, Comparison.left_hash, Comparison.right_hash, Label.answer)
    .join(Label, Label.comparison_id == Comparison.id)
    .where(Comparison.experiment_id == bindparam("experiment_id"), IS_CURRENT)
    .order_by(Comparison.id)
)

KNOWN_COMPARISONS = select(Comparison.id).where(
    Comparison.id.in_(bindparam("comparison_ids", expanding=True))
)

# Note: the comparison is looked up from the label, or SQLite might begin with all comparisons.
EXPERIMENT_OF_LABEL = (
    select(Comparison.experiment_id)
    .where(Comparison.id == Label.comparison_id)
    .correlate(Label)
    .scalar_subquery()
)

LABELS_SINCE = (
    select(Label.id, Label.comparison_id, Label.answer)
    .where(Label.id > bindparam("label_id"), bindparam("experiment_id") == EXPERIMENT_OF_LABEL)
    .order_by(Label.id)
)


def find_comparisons(
    connection: Connection, experiment_id: int, pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """The id of each pair that was asked."""
    id_of: dict[tuple[str, str], int] = {}
    for chunk in in_chunks(pairs):
        sought = {"experiment_id": experiment_id, "pairs": chunk}
        rows = connection.execute(FIND_COMPARISONS, sought)
        id_of.update({(row.left_hash, row.right_hash): row.id for row in rows})
    return id_of


def answers(connection: Connection, comparison_ids: Iterable[int]) -> dict[int, Answer]:
    """The current answer to each of these comparisons; those without one are left out."""
    newest: dict[int, str | None] = {}
    for chunk in in_chunks(possible(comparison_ids)):
        rows = connection.execute(ANSWERS_OLDEST_FIRST, {"comparison_ids": chunk})
        newest.update({row.comparison_id: row.answer for row in rows})
    return {each: Answer(answer) for each, answer in newest.items() if answer is not None}


def answered_comparisons(connection: Connection, experiment_id: int) -> list[AnsweredComparison]:
    """Every comparison that has an answer, oldest question first."""
    rows = connection.execute(ANSWERED_COMPARISONS, {"experiment_id": experiment_id})
    return [
        AnsweredComparison(row.id, row.left_hash, row.right_hash, Answer(row.answer))
        for row in rows
    ]


def labels_since(connection: Connection, experiment_id: int, label_id: int) -> list[LabelRow]:
    """An experiment's labels that came after one, oldest first."""
    sought = {"experiment_id": experiment_id, "label_id": label_id}
    return [
        LabelRow(row.id, row.comparison_id, None if row.answer is None else Answer(row.answer))
        for row in connection.execute(LABELS_SINCE, sought)
    ]


def unknown_among(connection: Connection, comparison_ids: Iterable[int]) -> list[int]:
    """Those that are not in the store, each once."""
    ids = dict.fromkeys(comparison_ids)
    known: set[int] = set()
    for chunk in in_chunks(possible(ids)):
        known.update(connection.execute(KNOWN_COMPARISONS, {"comparison_ids": chunk}).scalars())
    return [each for each in ids if each not in known]


def possible(comparison_ids: Iterable[int]) -> list[int]:
    """Those that may be ids at all; a database refuses numbers that it has no room for."""
    return [each for each in comparison_ids if 0 < each <= MAX_ID]


def in_chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The same items, at most `CHUNK` at a time."""
    for start in range(0, len(items), CHUNK):
        yield list(items[start : start + CHUNK])
