"""Denormalised counts, updated in the transaction that changes them.

Serving a comparison must not cost a count over the labels.
"""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import (
    Connection,
    Insert,
    and_,
    bindparam,
    case,
    exists,
    func,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.orm import aliased

from rl_teacher.clips.answer import Answer
from rl_teacher.common.text import counted
from rl_teacher.store.sql import IS_CURRENT, IS_NOT_EXCLUDED, THESE, in_chunks, insert_into
from rl_teacher.store.tables import Clip, Comparison, Experiment, Label, Labeler, Tally

Earlier, Unrendered = aliased(Label), aliased(Clip)

VOTES_OF_COMPARISON = (
    select(func.count())
    .select_from(Label)
    .join(Labeler, Labeler.id == Label.labeler_id)
    .where(Label.comparison_id == Comparison.id, IS_CURRENT, IS_NOT_EXCLUDED)
    .correlate(Comparison)
)

NUM_LABELS = VOTES_OF_COMPARISON.scalar_subquery()

IS_DISPUTED = (
    VOTES_OF_COMPARISON.with_only_columns(func.count(Label.answer.distinct()) > 1)
    .where(Label.answer != Answer.CANNOT_TELL.value)
    .scalar_subquery()
)

IS_RENDERED = not_(
    exists().where(
        Unrendered.content_hash.in_([Comparison.left_hash, Comparison.right_hash]),
        Unrendered.kind.is_(None),
    )
)

STATE_COLUMNS = (
    Comparison.experiment_id,
    (Comparison.num_labels > 0).label("is_answered"),
    Comparison.is_open,
)

STATES = select(*STATE_COLUMNS).where(THESE)

COMPARISON_COUNTS = {
    "num_labels": NUM_LABELS,
    "is_disputed": IS_DISPUTED,
    "is_open": and_(Comparison.wanted > NUM_LABELS, IS_RENDERED),
}

RECOUNT = update(Comparison).where(THESE).values(COMPARISON_COUNTS).returning(*STATE_COLUMNS)

ADD_TO_EXPERIMENT = (
    update(Experiment)
    .where(Experiment.id == bindparam("of_experiment"))
    .values(
        num_answered=Experiment.num_answered + bindparam("answered"),
        num_open=Experiment.num_open + bindparam("opened"),
    )
)

COMPARISONS_WITH_CLIPS = (
    select(Comparison.id)
    .where(Comparison.left_hash.in_(bindparam("hashes", expanding=True)))
    .union(
        select(Comparison.id).where(
            Comparison.right_hash.in_(bindparam("hashes", expanding=True)),
        )
    )
)

COMPARISONS_OF_LABELER = (
    select(Label.comparison_id).where(Label.labeler_id == bindparam("labeler_id")).distinct()
)

PREVIOUS_ANSWER = (
    select(Earlier.answer)
    .where(
        Earlier.comparison_id == Label.comparison_id,
        Earlier.labeler_id == Label.labeler_id,
        Earlier.purpose == "answer",
        Earlier.id < Label.id,
    )
    .order_by(Earlier.id.desc())
    .limit(1)
    .correlate(Label)
    .scalar_subquery()
)

# A label changes the number of answered comparisons by its own answer (1 or 0) minus that of the
# labeler's previous label of the same comparison, so that a withdrawn answer counts -1.
DIFFERENCE = case((Label.answer.is_not(None), 1), else_=0) - case(
    (PREVIOUS_ANSWER.is_not(None), 1), else_=0
)

NEW_TALLIES = (
    select(
        Comparison.experiment_id,
        Label.labeler_id,
        func.sum(case((Label.purpose == "answer", DIFFERENCE), else_=0)).label("num_labels"),
        func.count(Label.answer).label("num_given"),
        func.max(Label.id).label("last_label_id"),
        func.max(Label.created_at).label("last_label_at"),
    )
    .join(Comparison, Comparison.id == Label.comparison_id)
    .where(Label.id >= bindparam("first_new"))
    .group_by(Comparison.experiment_id, Label.labeler_id)
)

WRONG_COMPARISONS = select(Comparison.id).where(
    or_(*(getattr(Comparison, name) != count for name, count in COMPARISON_COUNTS.items()))
)

OF_COUNTED = select(func.count()).where(Comparison.experiment_id == Experiment.id)

EXPERIMENT_COUNTS = {
    "num_asked": OF_COUNTED.scalar_subquery(),
    "num_answered": OF_COUNTED.where(Comparison.num_labels > 0).scalar_subquery(),
    "num_open": OF_COUNTED.where(Comparison.is_open.is_(True)).scalar_subquery(),
}

WRONG_EXPERIMENTS = select(Experiment.name).where(
    or_(*(getattr(Experiment, name) != count for name, count in EXPERIMENT_COUNTS.items()))
)

TALLY_COLUMNS = [each.name for each in NEW_TALLIES.selected_columns]

TALLIES = select(*(getattr(Tally, name) for name in TALLY_COLUMNS))


def find_wrong_counts(connection: Connection) -> list[str]:
    """Compare all counts with a recount of the labels, and describe those that differ.

    Counts of experiments are compared with those of their comparisons.
    """
    comparisons = connection.execute(WRONG_COMPARISONS).scalars().all()
    experiments = connection.execute(WRONG_EXPERIMENTS).scalars().all()
    given = {tuple(row) for row in connection.execute(TALLIES)}
    recounted = {tuple(row) for row in connection.execute(NEW_TALLIES, {"first_new": 0})}
    labelers = {row[:2] for row in given ^ recounted}
    found = {
        counted(len(comparisons), "comparison"): bool(comparisons),
        f"experiments {', '.join(sorted(experiments))}": bool(experiments),
        counted(len(labelers), "labeler"): bool(labelers),
    }
    return [
        f"the counts of {what} differ from a recount"
        for what, is_wrong in found.items()
        if is_wrong
    ]


def recount(connection: Connection, comparison_ids: Sequence[int]) -> None:
    """Recompute the counts and flags of comparisons, and adjust their experiments by the change."""
    answered: Counter[int] = Counter()
    opened: Counter[int] = Counter()
    for chunk in in_chunks(comparison_ids):
        parameters = {"comparison_ids": chunk}
        # The change of an experiment is the state after minus the state before.
        for sign, statement in ((-1, STATES), (1, RECOUNT)):
            for row in connection.execute(statement, parameters):
                answered[row.experiment_id] += sign * row.is_answered
                opened[row.experiment_id] += sign * row.is_open
    for each in sorted(answered):
        if answered[each] or opened[each]:
            change = {"answered": answered[each], "opened": opened[each]}
            connection.execute(ADD_TO_EXPERIMENT, {"of_experiment": each, **change})


def tally_from(dialect: str) -> Insert:
    """Return a statement that adds the labels since an id to their labelers' tallies."""
    add = insert_into(dialect, Tally)
    return add.from_select(TALLY_COLUMNS, NEW_TALLIES).on_conflict_do_update(
        index_elements=[Tally.experiment_id, Tally.labeler_id],
        set_={
            "num_labels": Tally.num_labels + add.excluded.num_labels,
            "num_given": Tally.num_given + add.excluded.num_given,
            "last_label_id": add.excluded.last_label_id,
            # The clock may have been set back since the last label.
            "last_label_at": case(
                (Tally.last_label_at > add.excluded.last_label_at, Tally.last_label_at),
                else_=add.excluded.last_label_at,
            ),
        },
    )
