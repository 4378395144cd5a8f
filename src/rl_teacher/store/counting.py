"""What is counted, kept in the transaction that changes it; nobody ever counts labels to label.

Note: whoever changes what is counted here has taken `writing.in_order` first. Two transactions
never count at the same time, on PostgreSQL either.
"""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import (
    Connection,
    Executable,
    Insert,
    and_,
    bindparam,
    case,
    exists,
    func,
    not_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import aliased

from rl_teacher.clips.answer import Answer
from rl_teacher.store.asking import IS_CURRENT, in_chunks
from rl_teacher.store.tables import Clip, Comparison, Experiment, Label, Labeler, Tally

Earlier, Unshown = aliased(Label), aliased(Clip)

VOTES_OF_COMPARISON = (
    select(func.count())
    .select_from(Label)
    .join(Labeler, Labeler.id == Label.labeler_id)
    .where(Label.comparison_id == Comparison.id, IS_CURRENT, Labeler.excluded_at.is_(None))
    .correlate(Comparison)
)

NUM_LABELS = VOTES_OF_COMPARISON.scalar_subquery()

IS_DISPUTED = (
    VOTES_OF_COMPARISON.with_only_columns(func.count(Label.answer.distinct()) > 1)
    .where(Label.answer != Answer.CANNOT_TELL.value)
    .scalar_subquery()
)

CAN_BE_SHOWN = not_(
    exists().where(
        Unshown.content_hash.in_([Comparison.left_hash, Comparison.right_hash]),
        Unshown.kind.is_(None),
    )
)

IS_OPEN = and_(Comparison.num_labels < Comparison.wanted, CAN_BE_SHOWN)

OF_THESE = Comparison.id.in_(bindparam("comparison_ids", expanding=True))

RECOUNT = update(Comparison).where(OF_THESE).values(num_labels=NUM_LABELS, is_disputed=IS_DISPUTED)

REOPEN = update(Comparison).where(OF_THESE, Comparison.is_open != IS_OPEN).values(is_open=IS_OPEN)

TOTALS = (
    select(
        Comparison.experiment_id,
        func.sum(case((Comparison.num_labels > 0, 1), else_=0)).label("num_answered"),
        func.sum(case((Comparison.is_open, 1), else_=0)).label("num_open"),
    )
    .where(OF_THESE)
    .group_by(Comparison.experiment_id)
)

ADD_TO_EXPERIMENT = (
    update(Experiment)
    .where(Experiment.id == bindparam("of_experiment"))
    .values(
        num_asked=Experiment.num_asked + bindparam("asked"),
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

NEWEST_LABEL = select(func.coalesce(func.max(Label.id), 0))

NEWEST_COMPARISON = select(func.coalesce(func.max(Comparison.id), 0))


TALLY_COLUMNS = (
    "experiment_id",
    "labeler_id",
    "num_labels",
    "num_given",
    "first_label_id",
    "last_label_id",
    "last_label_at",
)


def recount(connection: Connection, comparison_ids: Sequence[int]) -> None:
    """Count the labels of these comparisons anew, and see which are open."""
    _kept_in_step(connection, comparison_ids, [RECOUNT, REOPEN])


def reopen(connection: Connection, comparison_ids: Sequence[int]) -> None:
    """See which of these comparisons are open; nobody has answered in between."""
    _kept_in_step(connection, comparison_ids, [REOPEN])


def _kept_in_step(
    connection: Connection, comparison_ids: Sequence[int], changes: Sequence[Executable]
) -> None:
    """Change comparisons, and their experiments' counts with them."""
    answered: Counter[int] = Counter()
    opened: Counter[int] = Counter()
    for chunk in in_chunks(comparison_ids):
        these = {"comparison_ids": chunk}
        for sign in (-1, 1):
            for row in connection.execute(TOTALS, these):
                answered[row.experiment_id] += sign * row.num_answered
                opened[row.experiment_id] += sign * row.num_open
            if sign < 0:
                for change in changes:
                    connection.execute(change, these)
    for experiment_id in sorted(answered):
        add_to_experiment(
            connection,
            experiment_id,
            answered=answered[experiment_id],
            opened=opened[experiment_id],
        )


def add_to_experiment(
    connection: Connection, experiment_id: int, asked: int = 0, answered: int = 0, opened: int = 0
) -> None:
    """So many more."""
    if asked or answered or opened:
        more = {"asked": asked, "answered": answered, "opened": opened}
        connection.execute(ADD_TO_EXPERIMENT, {"of_experiment": experiment_id, **more})


def tally_since(dialect: str) -> Insert:
    """Add every label that came after one to its labeler's tally.

    A label makes a difference of one to what counts where it and the one before it, of the same
    labeler on the same comparison, are not both an answer, or both none.
    """
    said_before = (
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
    difference = case((Label.answer.is_not(None), 1), else_=0) - case(
        (said_before.is_not(None), 1), else_=0
    )
    new = (
        select(
            Comparison.experiment_id,
            Label.labeler_id,
            func.sum(case((Label.purpose == "answer", difference), else_=0)),
            func.count(Label.answer),
            func.min(Label.id),
            func.max(Label.id),
            func.max(Label.created_at),
        )
        .join(Comparison, Comparison.id == Label.comparison_id)
        .where(Label.id > bindparam("newest_before"))
        .group_by(Comparison.experiment_id, Label.labeler_id)
    )
    add = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect](Tally)
    return add.from_select(TALLY_COLUMNS, new).on_conflict_do_update(
        index_elements=[Tally.experiment_id, Tally.labeler_id],
        set_={
            "num_labels": Tally.num_labels + add.excluded.num_labels,
            "num_given": Tally.num_given + add.excluded.num_given,
            "last_label_id": add.excluded.last_label_id,
            "last_label_at": add.excluded.last_label_at,
        },
    )
