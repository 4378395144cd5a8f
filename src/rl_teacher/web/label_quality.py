"""Quality of the labels of an experiment."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock

from rl_teacher.quality.agreement import agreement
from rl_teacher.quality.labelers import (
    GivenLabel,
    LabelerReport,
    Period,
    empty_report,
    labeler_reports,
    over_time,
    votes_of,
)
from rl_teacher.store.records import LabelerView, LabelSample, SampledLabel
from rl_teacher.store.store import Store
from rl_teacher.web.schemas.review import (
    AlphaEstimate,
    LabelerPeriod,
    LabelerQuality,
    LabelQuality,
    ShareEstimate,
)

MAX_LABELS = 20_000
"""Newest comparisons to analyse; more would hardly change the estimates and delay requests."""

NUM_PERIODS = 12
CACHE_S = 10.0
"""Seconds until a cached result expires."""


class QualityCache:
    """Computes label quality, one experiment at a time, and caches it for a few seconds."""

    def __init__(self, store: Store, clock_s: Callable[[], float]) -> None:
        self._store = store
        self._clock_s = clock_s
        self._computing = Lock()
        self._cache: dict[int, tuple[float, LabelQuality]] = {}

    def of(self, experiment_id: int) -> LabelQuality:
        """Return the quality of an experiment's labels."""
        with self._computing:
            at_s, result = self._cache.get(experiment_id, (float("-inf"), None))
            if result is None or self._clock_s() - at_s >= CACHE_S:
                labels = self._store.labels.sample(experiment_id, MAX_LABELS)
                result = quality(labels, self._store.labelers.all())
                self._cache[experiment_id] = (self._clock_s(), result)
            return result


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
    nominal = agreement(votes, "nominal")
    reports = labeler_reports(labels, sample.gold, excluded)
    periods = over_time(labels, NUM_PERIODS, sample.gold, excluded)
    return LabelQuality(
        num_labels=len(labels),
        is_complete=sample.is_all,
        alpha=AlphaEstimate.model_validate(nominal, from_attributes=True),
        ordinal_alpha=AlphaEstimate.model_validate(
            agreement(votes, "ordinal"), from_attributes=True
        ),
        agreement=ShareEstimate.model_validate(
            {"share": nominal.raw, "low": None, "high": None, "num": nominal.num_votes}
        ),
        num_shared=nominal.num_comparisons,
        labelers=[
            labeler_quality(
                each,
                reports.get(each.id) or empty_report(each.id),
                periods,
                sample.num_answered[each.id],
            )
            for each in sorted(labelers, key=lambda each: each.name)
            if each.id in sample.num_answered
        ],
    )


def labeler_quality(
    labeler: LabelerView, report: LabelerReport, periods: Sequence[Period], num_answers: int
) -> LabelerQuality:
    """Convert one labeler's quality report."""
    fields = vars(report) | {
        "id": labeler.id,
        "name": labeler.name,
        "role": labeler.role,
        "is_excluded": labeler.excluded_at is not None,
        "num_answers": num_answers,
        "reliability": report.reliability.estimate,
        "periods": [
            labeler_period(each.from_s, each.reports.get(labeler.id) or empty_report(labeler.id))
            for each in periods
        ],
    }
    return LabelerQuality.model_validate(fields, from_attributes=True)


def labeler_period(from_s: float, report: LabelerReport) -> LabelerPeriod:
    """Convert one labeler's report for one period."""
    return LabelerPeriod(
        start=datetime.fromtimestamp(from_s, UTC),
        num_answers=report.num_answers,
        median_seconds=report.median_seconds,
        agreement=report.agreement.share,
    )
