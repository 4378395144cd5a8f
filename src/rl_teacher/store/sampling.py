"""The newest labels of an experiment: enough to say how good its labels are, however many it has.

Comparisons are taken whole, each with all its labels, so that agreement is that of everybody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, exists, func, select

from rl_teacher.clips.answer import Answer
from rl_teacher.store.tables import Comparison, Label, Tally

MOST_GOLD = 1_000
"""Comparisons with a known answer that are looked at besides, the newest."""

OF_EXPERIMENT = Comparison.experiment_id == bindparam("experiment_id")

NUM_LABELS_OF_COMPARISON = (
    select(func.count())
    .select_from(Label)
    .where(Label.comparison_id == Comparison.id)
    .correlate(Comparison)
    .scalar_subquery()
)

NEWEST = (
    select(Comparison.id, NUM_LABELS_OF_COMPARISON.label("num_labels"))
    .where(OF_EXPERIMENT, exists().where(Label.comparison_id == Comparison.id))
    .order_by(Comparison.id.desc())
    .limit(bindparam("limit"))
)

GOLD = (
    select(Comparison.id, Comparison.gold)
    .where(OF_EXPERIMENT, Comparison.gold.is_not(None))
    .order_by(Comparison.id.desc())
    .limit(MOST_GOLD)
)

LABELS = select(
    Label.id,
    Label.comparison_id,
    Label.labeler_id,
    Label.answer,
    Label.created_at,
    Label.is_swapped,
    Label.response_ms,
    Label.purpose,
)

LABELS_FROM = LABELS.join(Comparison, Comparison.id == Label.comparison_id).where(
    OF_EXPERIMENT, Comparison.id >= bindparam("from_id")
)

LABELS_OF = LABELS.where(Label.comparison_id.in_(bindparam("comparison_ids", expanding=True)))

GIVEN = select(Tally.labeler_id, Tally.num_labels).where(
    Tally.experiment_id == bindparam("experiment_id")
)


@dataclass(frozen=True)
class SampledLabel:
    """A label, as far as its quality goes."""

    id: int
    comparison_id: int
    labeler_id: int
    answer: Answer | None
    created_at: datetime
    is_swapped: bool
    response_ms: int | None
    purpose: str


@dataclass(frozen=True)
class LabelSample:
    """Labels of an experiment, and what is counted of all.

    Attributes:
        labels: oldest first; of the newest comparisons, and of those with a known answer.
        from_id: the oldest of the newest comparisons; what came before it is there for its known
            answer alone.
        gold: known answers, by comparison.
        num_answered: comparisons that have somebody's answer now, by labeler, of all there are.
        is_all: nothing was left out.
    """

    labels: Sequence[SampledLabel]
    from_id: int
    gold: Mapping[int, Answer]
    num_answered: Mapping[int, int]
    is_all: bool


def sample(connection: Connection, experiment_id: int, most: int) -> LabelSample:
    """The newest comparisons that have so many labels together, and at least one of them."""
    sought = {"experiment_id": experiment_id}
    newest = connection.execute(NEWEST, sought | {"limit": most}).all()
    from_id, num_labels, num_taken = 0, 0, 0
    for comparison_id, num in newest:
        if num_taken and num_labels + num > most:
            break
        from_id, num_labels, num_taken = comparison_id, num_labels + num, num_taken + 1
    gold = {row.id: Answer(row.gold) for row in connection.execute(GOLD, sought)}
    older = [each for each in gold if each < from_id]
    rows = [
        *connection.execute(LABELS_FROM, sought | {"from_id": from_id}),
        *connection.execute(LABELS_OF, {"comparison_ids": older}),
    ]
    labels = [SampledLabel(*row[:3], maybe_answer(row.answer), *row[4:]) for row in rows]
    return LabelSample(
        labels=sorted(labels, key=lambda label: label.id),
        from_id=from_id,
        gold=gold,
        num_answered={row.labeler_id: row.num_labels for row in connection.execute(GIVEN, sought)},
        is_all=num_taken == len(newest) < most,
    )


def maybe_answer(said: str | None) -> Answer | None:
    """An answer as the database has it."""
    return None if said is None else Answer(said)
