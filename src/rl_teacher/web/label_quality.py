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
from rl_teacher.store.records import LabelerView, LabelSample, SampledLabel
from rl_teacher.web.schemas.review import (
    AlphaEstimate,
    LabelerQuality,
    LabelQuality,
    ShareEstimate,
)

MAX_LABELS = 20_000
"""Newest comparisons to analyse; more would hardly change the estimates and delay requests."""

NUM_PERIODS = 12


def given_label(row: SampledLabel) -> GivenLabel:
    """Convert a label for the quality metrics."""
    return GivenLabel(
        comparison=row.comparison_id,
        labeler=row.labeler_id,
        answer=row.answer,
        at_s=row.created_at.timestamp(),
        is_swapped=row.is_swapped,
        response_ms=row.response_ms,
        is_repeat=row.purpose == "repeat",
        is_ranked=row.is_ranked,
    )


def quality(sample: LabelSample, labelers: Sequence[LabelerView]) -> LabelQuality:
    """Compute agreement and the quality of each labeler, sorted by name."""
    labels = [given_label(each) for each in sample.labels]
    excluded = {each.id for each in labelers if each.excluded_at is not None}
    votes = votes_of(
        [
            each
            for each in labels
            # Older gold comparisons are in the sample for accuracy alone.
            if each.comparison >= sample.from_id and each.labeler not in excluded
        ]
    ).telling
    found = agreement(votes)
    reports = labeler_reports(labels, sample.gold, excluded)
    counts = activity(labels, NUM_PERIODS)
    return LabelQuality(
        num_labels=len(labels),
        is_complete=sample.is_all,
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
                sample.num_answered[each.id],
            )
            for each in sorted(labelers, key=lambda each: each.name)
            if each.id in sample.num_answered
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
