"""Queries on comparisons with their clips, shared by the parts of the store."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.orm import aliased

from rl_teacher.common.errors import ComparisonNotFound, ExperimentNotFound
from rl_teacher.store.records import ClipView, ComparisonView, ExportedLabel
from rl_teacher.store.sql import IS_CURRENT, IS_NOT_EXCLUDED, as_answer, valid_ids
from rl_teacher.store.tables import Clip, Comparison, Experiment, Label, Labeler

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

CLIP_FIELDS = tuple(ClipView.__dataclass_fields__)

CLIP_COLUMNS = [
    getattr(side, name).label(f"{prefix}_{name}")
    for prefix, side in (("left", Left), ("right", Right))
    for name in CLIP_FIELDS
]
"""Columns of both clips of a comparison, read by `clip_pair`."""

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

COMPARISONS_BY_ID = COMPARISONS.where(
    Comparison.id.in_(bindparam("comparison_ids", expanding=True))
)

EXPORTED_LABELS = (
    select(
        Label.id,
        Label.request_id,
        Label.comparison_id,
        Comparison.left_hash,
        Comparison.right_hash,
        Comparison.asked_at_step,
        Comparison.gold,
        Label.answer,
        Label.labeler_id,
        Labeler.name.label("labeler"),
        Labeler.role,
        Label.created_at,
        Label.response_ms,
        Label.is_swapped,
        Label.purpose,
        Label.lease,
        Label.details,
        IS_CURRENT.label("is_current"),
        Labeler.excluded_at.is_not(None).label("is_excluded"),
    )
    .join(Comparison, Comparison.id == Label.comparison_id)
    .join(Labeler, Labeler.id == Label.labeler_id)
    .order_by(Label.id)
)


def comparison_view(row: Mapping[Any, Any]) -> ComparisonView:
    """Convert a row of `COMPARISONS`."""
    left, right = clip_pair(row)
    return ComparisonView(
        id=row["id"],
        experiment_name=row["experiment_name"],
        asked_at_step=row["asked_at_step"],
        left=left,
        right=right,
        answer=as_answer(row["current_answer"]),
    )


def clip_pair(row: Mapping[Any, Any]) -> tuple[ClipView, ClipView]:
    """Return the left and the right clip of a row with `CLIP_COLUMNS`."""
    left, right = (
        ClipView(**{name: row[f"{side}_{name}"] for name in CLIP_FIELDS})
        for side in ("left", "right")
    )
    return left, right


def exported_label(row: Mapping[Any, Any]) -> ExportedLabel:
    """Convert a row of `EXPORTED_LABELS`."""
    answers = {name: as_answer(row[name]) for name in ("gold", "answer")}
    return ExportedLabel(**{**row, **answers})


def experiment_of(connection: Connection, comparison_id: int) -> int:
    """Return the id of a comparison's experiment.

    Raises:
        ComparisonNotFound: The comparison does not exist.
    """
    for each in valid_ids([comparison_id]):
        query = select(Comparison.experiment_id).where(Comparison.id == each)
        if (found := connection.execute(query).scalar()) is not None:
            return found
    raise ComparisonNotFound([comparison_id])


def experiment_not_found(name: str) -> ExperimentNotFound:
    """Return the error for an unknown name."""
    return ExperimentNotFound(
        f"There is no experiment {name[:80]!r} in the store. Look at the list of experiments."
    )


def experiment_deleted(experiment_id: int) -> ExperimentNotFound:
    """Return the error for an experiment that no longer exists."""
    return ExperimentNotFound(
        f"Experiment {experiment_id} is no longer in the store: it was deleted, perhaps "
        "by --force-new in another terminal. Start this one again."
    )
