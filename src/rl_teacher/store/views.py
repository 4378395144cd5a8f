"""What whoever labels and watches reads: experiments, the comparisons that wait, the labels given.

A comparison waits when both its clips can be shown and fewer labelers have answered it than shall.
"""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, and_, bindparam, select
from sqlalchemy.orm import aliased

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ComparisonNotFound, ExperimentNotFound, MediaNotFound
from rl_teacher.store.label_queries import IS_CURRENT, IS_NOT_EXCLUDED, MAX_ID
from rl_teacher.store.records import (
    AskedComparison,
    ClipView,
    ComparisonView,
    Counts,
    ExperimentView,
    LabelView,
)
from rl_teacher.store.tables import Clip, Comparison, Experiment, Label, Labeler, Tally

Left, Right = aliased(Clip), aliased(Clip)

CURRENT_ANSWER = (
    select(Label.answer)
    .join(Labeler, Labeler.id == Label.labeler_id)
    .where(Label.comparison_id == Comparison.id, IS_CURRENT, IS_NOT_EXCLUDED)
    .order_by(Label.id.desc())
    .limit(1)
    .correlate(Comparison)
    .scalar_subquery()
)

IS_SHOWN = and_(Left.kind.is_not(None), Right.kind.is_not(None))

COUNTS = select(Experiment.num_asked, Experiment.num_answered).where(
    Experiment.id == bindparam("experiment_id")
)

EXPERIMENTS = select(
    Experiment.id,
    Experiment.name,
    Experiment.env_id,
    Experiment.config,
    Experiment.instructions,
    Experiment.target_labels,
    Experiment.status,
    Experiment.status_at,
    Experiment.latest_episode,
    Experiment.created_at,
    Experiment.num_asked.label("asked"),
    Experiment.num_answered.label("answered"),
    Experiment.num_open.label("waiting"),
)

NEWEST_EXPERIMENTS_FIRST = EXPERIMENTS.order_by(Experiment.id.desc())

ONE_EXPERIMENT = EXPERIMENTS.where(Experiment.name == bindparam("name"))

CLIP_FIELDS = tuple(ClipView.__dataclass_fields__)

ONE_CLIP = select(*(getattr(Clip, name) for name in CLIP_FIELDS)).where(
    Clip.content_hash == bindparam("content_hash")
)

CLIP_COLUMNS = [
    getattr(side, name).label(f"{prefix}_{name}")
    for prefix, side in (("left", Left), ("right", Right))
    for name in CLIP_FIELDS
]
"""Both clips of a comparison; see `both_clips`."""

COMPARISONS = (
    select(
        Comparison.id,
        Experiment.name.label("experiment_name"),
        Comparison.asked_at_step,
        CURRENT_ANSWER.label("current_answer"),
        *CLIP_COLUMNS,
    )
    .select_from(Comparison)
    .join(Experiment, Experiment.id == Comparison.experiment_id)
    .join(Left, Left.content_hash == Comparison.left_hash)
    .join(Right, Right.content_hash == Comparison.right_hash)
)

ONE_COMPARISON = COMPARISONS.where(Comparison.id == bindparam("comparison_id"))

WAITING = (
    COMPARISONS.where(
        Comparison.experiment_id == bindparam("experiment_id"),
        Comparison.is_open,
    )
    .order_by(Comparison.asked_at_step.desc(), Comparison.id)
    .limit(bindparam("limit"))
)

ASKED_COMPARISONS = (
    select(
        Comparison.id,
        Comparison.left_hash,
        Comparison.right_hash,
        IS_SHOWN.label("is_shown"),
        (Comparison.num_labels > 0).label("is_answered"),
    )
    .join(Left, Left.content_hash == Comparison.left_hash)
    .join(Right, Right.content_hash == Comparison.right_hash)
    .where(Comparison.experiment_id == bindparam("experiment_id"))
    .order_by(Comparison.id)
)

LABELER_ID = select(Labeler.id).where(Labeler.name == bindparam("labeler")).scalar_subquery()

LABELS_OF = (
    COMPARISONS.add_columns(Label.request_id, Label.created_at, Label.answer.label("said"))
    .join(Label, Label.comparison_id == Comparison.id)
    .where(
        Comparison.experiment_id == bindparam("experiment_id"),
        Label.labeler_id == LABELER_ID,
        IS_CURRENT,
    )
    .order_by(Label.id.desc())
    .limit(bindparam("limit"))
)

NUM_LABELS_OF = select(Tally.num_labels).where(
    Tally.experiment_id == bindparam("experiment_id"), Tally.labeler_id == LABELER_ID
)

SHARED_CLIPS = (
    select(Clip.content_hash)
    .where(Clip.env_id == bindparam("env_id"), Clip.num_steps == bindparam("num_steps"))
    .order_by(Clip.created_at, Clip.content_hash)
)
SHARED_SHOWN_CLIPS = SHARED_CLIPS.where(Clip.kind.is_not(None))


def counts(connection: Connection, experiment_id: int) -> Counts:
    """How many were asked, and how many of them are answered now."""
    row = connection.execute(COUNTS, {"experiment_id": experiment_id}).one_or_none()
    return Counts(*row) if row else Counts(0, 0)


def experiments(connection: Connection) -> list[ExperimentView]:
    """Every experiment, the newest first."""
    rows = connection.execute(NEWEST_EXPERIMENTS_FIRST).mappings()
    return [ExperimentView(**row) for row in rows]


def experiment(connection: Connection, name: str) -> ExperimentView:
    """One experiment.

    Raises:
        ExperimentNotFound: there is none of this name.
    """
    row = connection.execute(ONE_EXPERIMENT, {"name": name}).mappings().one_or_none()
    if row is None:
        raise no_experiment(name)
    return ExperimentView(**row)


def no_experiment(name: str) -> ExperimentNotFound:
    """What is said of an experiment that is not there."""
    return ExperimentNotFound(
        f"There is no experiment {name[:80]!r} in the store. Look at the list of experiments."
    )


def waiting(
    connection: Connection, experiment_id: int, limit: int, exclude: Collection[int]
) -> list[ComparisonView]:
    """The comparisons to answer next, without those that somebody has at hand already."""
    at_hand = set(exclude)
    # Note: left out here, since nobody knows how many a statement would have to name.
    sought = {"experiment_id": experiment_id, "limit": limit + len(at_hand)}
    rows = connection.execute(WAITING, sought).mappings()
    return [comparison_view(row) for row in rows if row["id"] not in at_hand][:limit]


def asked_comparisons(connection: Connection, experiment_id: int) -> list[AskedComparison]:
    """Every comparison of an experiment, in the order asked."""
    rows = connection.execute(ASKED_COMPARISONS, {"experiment_id": experiment_id})
    return [AskedComparison(**row._mapping) for row in rows]


def comparison(connection: Connection, comparison_id: int) -> ComparisonView:
    """One comparison.

    Raises:
        ComparisonNotFound: it was never asked, or was deleted.
    """
    row = None
    if 0 < comparison_id <= MAX_ID:
        found = connection.execute(ONE_COMPARISON, {"comparison_id": comparison_id})
        row = found.mappings().one_or_none()
    if row is None:
        raise ComparisonNotFound([comparison_id])
    return comparison_view(row)


def clip(connection: Connection, content_hash: str) -> ClipView:
    """One clip.

    Raises:
        MediaNotFound: the store does not know it.
    """
    found = connection.execute(ONE_CLIP, {"content_hash": content_hash})
    row = found.mappings().one_or_none()
    if row is None:
        raise MediaNotFound(
            f"There is no clip {content_hash[:80]!r} in the store. Ask for the comparison again."
        )
    return ClipView(**row)


def labels_of(
    connection: Connection, experiment_id: int, labeler: str, limit: int
) -> list[LabelView]:
    """The current labels of one labeler, the newest first."""
    sought = {"experiment_id": experiment_id, "labeler": labeler, "limit": limit}
    return [
        LabelView(
            row["request_id"],
            comparison_view(row),
            Answer(row["said"]),
            row["created_at"],
        )
        for row in connection.execute(LABELS_OF, sought).mappings()
    ]


def counts_of(connection: Connection, experiment_id: int, labeler: str) -> int:
    """How many comparisons have this labeler's answer now."""
    sought = {"experiment_id": experiment_id, "labeler": labeler}
    return connection.execute(NUM_LABELS_OF, sought).scalar() or 0


def shared_clips(
    connection: Connection, env_id: str, num_steps: int, *, only_shown: bool
) -> list[str]:
    """Content hashes of an environment's clips of one length, the oldest first."""
    sought = {"env_id": env_id, "num_steps": num_steps}
    statement = SHARED_SHOWN_CLIPS if only_shown else SHARED_CLIPS
    return list(connection.execute(statement, sought).scalars())


def comparison_view(row: Mapping[Any, Any]) -> ComparisonView:
    """A comparison as a row of `COMPARISONS` has it."""
    left, right = both_clips(row)
    said = row["current_answer"]
    return ComparisonView(
        id=row["id"],
        experiment_name=row["experiment_name"],
        asked_at_step=row["asked_at_step"],
        left=left,
        right=right,
        answer=None if said is None else Answer(said),
    )


def both_clips(row: Mapping[Any, Any]) -> tuple[ClipView, ClipView]:
    """The left and the right clip, as `CLIP_COLUMNS` has them."""
    left, right = (
        ClipView(**{name: row[f"{side}_{name}"] for name in CLIP_FIELDS})
        for side in ("left", "right")
    )
    return left, right
