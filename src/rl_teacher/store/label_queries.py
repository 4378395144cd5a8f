"""What was asked and what was answered, as the trainer needs it: many at a time, by id."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, and_, bindparam, exists, not_, select, tuple_
from sqlalchemy.orm import aliased

from rl_teacher.clips.answer import Answer
from rl_teacher.store.records import AnsweredComparison, LabelRow
from rl_teacher.store.tables import Comparison, Label, Labeler

Item = TypeVar("Item")

MAX_ID = 2**31 - 1
"""The largest id that PostgreSQL has room for; whatever is larger was never given away."""

CHUNK = 1_000
"""Rows named in one statement; a database takes some ten thousand parameters, not more."""

FIND_COMPARISONS = select(Comparison.id, Comparison.left_hash, Comparison.right_hash).where(
    Comparison.experiment_id == bindparam("experiment_id"),
    tuple_(Comparison.left_hash, Comparison.right_hash).in_(bindparam("pairs", expanding=True)),
)

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
"""Of a label: it answers, and none of the same labeler came after it."""

IS_NOT_EXCLUDED = Labeler.excluded_at.is_(None)

VOTES = (
    select(Label.comparison_id, Label.labeler_id, Label.answer)
    .join(Labeler, Labeler.id == Label.labeler_id)
    .where(
        Label.comparison_id.in_(bindparam("comparison_ids", expanding=True)),
        IS_CURRENT,
        IS_NOT_EXCLUDED,
    )
    .order_by(Label.id)
)

# Note: in the order of the comparisons, and for each the newest last, which is the one that stays.
ANSWERED_COMPARISONS = (
    select(Comparison.id, Comparison.left_hash, Comparison.right_hash, Label.answer)
    .join(Label, Label.comparison_id == Comparison.id)
    .join(Labeler, Labeler.id == Label.labeler_id)
    .where(Comparison.experiment_id == bindparam("experiment_id"), IS_CURRENT, IS_NOT_EXCLUDED)
    .order_by(Comparison.id, Label.id)
)

EXCLUDED = select(Labeler.id).where(Labeler.excluded_at.is_not(None))

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
    select(Label.id, Label.comparison_id, Label.answer, Label.labeler_id)
    .where(
        Label.id > bindparam("label_id"),
        bindparam("experiment_id") == EXPERIMENT_OF_LABEL,
        Label.purpose == "answer",
    )
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
    """The newest current answer to each of these comparisons; those without one are left out."""
    said: dict[int, Answer] = {}
    for chunk in in_chunks(possible(comparison_ids)):
        rows = connection.execute(VOTES, {"comparison_ids": chunk})
        said.update({row.comparison_id: Answer(row.answer) for row in rows})
    return said


def votes(connection: Connection, comparison_ids: Iterable[int]) -> dict[int, dict[int, Answer]]:
    """What every labeler, not excluded, says now, by comparison and labeler."""
    said: dict[int, dict[int, Answer]] = {}
    for chunk in in_chunks(possible(comparison_ids)):
        for row in connection.execute(VOTES, {"comparison_ids": chunk}):
            said.setdefault(row.comparison_id, {})[row.labeler_id] = Answer(row.answer)
    return said


def answered_comparisons(connection: Connection, experiment_id: int) -> list[AnsweredComparison]:
    """Every comparison that has an answer, oldest question first."""
    rows = connection.execute(ANSWERED_COMPARISONS, {"experiment_id": experiment_id})
    newest = {
        row.id: AnsweredComparison(row.id, row.left_hash, row.right_hash, Answer(row.answer))
        for row in rows
    }
    return list(newest.values())


def labels_since(connection: Connection, experiment_id: int, label_id: int) -> list[LabelRow]:
    """An experiment's labels that came after one, oldest first; repeats are not among them."""
    sought = {"experiment_id": experiment_id, "label_id": label_id}
    return [
        LabelRow(
            row.id,
            row.comparison_id,
            None if row.answer is None else Answer(row.answer),
            row.labeler_id,
        )
        for row in connection.execute(LABELS_SINCE, sought)
    ]


def excluded_ids(connection: Connection) -> frozenset[int]:
    """Labelers whose labels nothing learns from."""
    return frozenset(connection.execute(EXCLUDED).scalars())


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
