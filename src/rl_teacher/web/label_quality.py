"""Quality of the labels of an experiment."""

from collections.abc import Sequence

from rl_teacher.quality.agreement import agreement
from rl_teacher.quality.labelers import (
    GivenLabel,
    LabelerReport,
    activity,
    empty_report,
    labeler_reports,
    votes_of,
)
from rl_teacher.store.labels import RANKING
from rl_teacher.store.records import ExportedLabel, LabelerView
from rl_teacher.store.store import Store
from rl_teacher.web.schemas.review import (
    AlphaEstimate,
    LabelerQuality,
    LabelQuality,
    ShareEstimate,
)

MAX_LABELS = 20_000
"""Newest labels to analyse; more would hardly change the estimates and delay requests."""

NUM_PERIODS = 12


def given_label(row: ExportedLabel) -> GivenLabel:
    """Convert a label for the quality metrics."""
    return GivenLabel(
        comparison=row.comparison_id,
        labeler=row.labeler_id,
        answer=row.answer,
        at_s=row.created_at.timestamp(),
        is_swapped=row.is_swapped,
        response_ms=row.response_ms,
        is_repeat=row.purpose == "repeat",
        is_ranked=RANKING in (row.details or {}),
    )


def quality(store: Store, experiment_id: int) -> LabelQuality:
    """Compute agreement and the quality of each labeler, sorted by name."""
    before_id = store.labels.newest_id(experiment_id) - MAX_LABELS
    given = store.labels.export(experiment_id, before_id, MAX_LABELS)
    labels = [given_label(each) for each in given]
    gold = {each.comparison_id: each.gold for each in given if each.gold is not None}
    labelers = store.labelers.all()
    counted = store.labels.count_by_experiment({each.name for each in labelers})
    num_answers = {name: num for (each, name), num in counted.items() if each == experiment_id}
    excluded = {each.id for each in labelers if each.excluded_at is not None}
    votes = votes_of([each for each in labels if each.labeler not in excluded]).telling
    found = agreement(votes)
    reports = labeler_reports(labels, gold, excluded)
    counts = activity(labels, NUM_PERIODS)
    return LabelQuality(
        num_labels=len(labels),
        is_complete=before_id <= 0,
        alpha=AlphaEstimate.model_validate(found, from_attributes=True),
        agreement=ShareEstimate.model_validate(
            {"share": found.raw, "low": None, "high": None, "num": found.num_votes}
        ),
        num_shared=found.num_comparisons,
        labelers=[
            labeler_quality(
                each,
                reports.get(each.id) or empty_report(each.id),
                counts.get(each.id, [0] * NUM_PERIODS),
                num_answers[each.name],
            )
            for each in sorted(labelers, key=lambda each: each.name)
            if each.name in num_answers
        ],
    )


def labeler_quality(
    labeler: LabelerView, report: LabelerReport, counts: Sequence[int], num_answers: int
) -> LabelerQuality:
    """Convert one labeler's quality report."""
    fields = vars(report) | {
        "id": labeler.id,
        "name": labeler.name,
        "role": labeler.role,
        "is_excluded": labeler.excluded_at is not None,
        "num_answers": num_answers,
        "reliability": report.reliability.estimate,
        "activity": counts,
    }
    return LabelerQuality.model_validate(fields, from_attributes=True)
