"""Quality of the labels of an experiment."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock

from rl_teacher.quality.agreement import Agreement, agreement
from rl_teacher.quality.labelers import (
    GivenLabel,
    LabelerReport,
    Period,
    Share,
    empty_report,
    labeler_reports,
    over_time,
    votes_of,
)
from rl_teacher.store.records import LabelerView, LabelSample, StoredLabel
from rl_teacher.store.store import Store
from rl_teacher.web.experiment_views import finite
from rl_teacher.web.schemas.review import (
    AlphaEstimate,
    LabelerPeriod,
    LabelerQuality,
    LabelQuality,
    ShareEstimate,
)

MAX_LABELS = 20_000
"""Newest labels to analyse; more would hardly change the estimates and delay other requests."""

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


def given_label(row: StoredLabel) -> GivenLabel:
    """Convert a stored label for the quality metrics."""
    return GivenLabel(
        comparison=row.comparison_id,
        labeler=row.labeler_id,
        answer=row.answer,
        at_s=row.created_at.timestamp(),
        is_swapped=row.is_swapped,
        response_ms=row.response_ms,
        is_repeat=row.purpose == "repeat",
    )


def quality(labels: LabelSample, labelers: Sequence[LabelerView]) -> LabelQuality:
    """Compute agreement and the quality of each labeler."""
    who = {each.id: each for each in labelers}
    excluded = {each.id for each in labelers if each.excluded_at is not None}
    counted = [
        given_label(each)
        for each in labels.labels
        if each.comparison_id >= labels.from_id and each.labeler_id not in excluded
    ]
    votes = votes_of(counted).telling
    nominal = agreement(votes, "nominal")
    return LabelQuality(
        num_labels=len(labels.labels),
        is_complete=labels.is_all,
        alpha=alpha_estimate(nominal),
        ordinal_alpha=alpha_estimate(agreement(votes, "ordinal")),
        agreement=ShareEstimate(
            share=finite(nominal.raw), low=None, high=None, count=nominal.num_votes
        ),
        num_shared=nominal.num_comparisons,
        labelers=labelers_out(labels, who),
    )


def labelers_out(labels: LabelSample, who: Mapping[int, LabelerView]) -> list[LabelerQuality]:
    """Compute the quality of each labeler, sorted by name."""
    given_labels = [given_label(each) for each in labels.labels]
    reports = labeler_reports(given_labels, labels.gold)
    periods = over_time(given_labels, NUM_PERIODS, labels.gold)
    known = [who[each] for each in labels.num_answered if each in who]
    return [
        labeler_out(
            each,
            reports.get(each.id) or empty_report(each.id),
            periods,
            labels.num_answered[each.id],
        )
        for each in sorted(known, key=lambda each: each.name)
    ]


def labeler_out(
    labeler: LabelerView, report: LabelerReport, periods: Sequence[Period], num_answers: int
) -> LabelerQuality:
    """Convert one labeler's quality report."""
    return LabelerQuality(
        id=labeler.id,
        name=labeler.name,
        role=labeler.role,
        is_excluded=labeler.excluded_at is not None,
        num_answers=num_answers,
        median_seconds=finite(report.median_seconds),
        left_rate=share_estimate(report.left_shown),
        self_consistency=share_estimate(report.self_consistency),
        gold_accuracy=share_estimate(report.gold_accuracy),
        agreement=share_estimate(report.agreement),
        reliability=finite(report.reliability.estimate),
        periods=[
            labeler_period(each.from_s, each.reports[labeler.id])
            for each in periods
            if labeler.id in each.reports
        ],
    )


def labeler_period(from_s: float, report: LabelerReport) -> LabelerPeriod:
    """Convert one labeler's report for one period."""
    return LabelerPeriod(
        start=datetime.fromtimestamp(from_s, UTC),
        num_answers=report.num_answers,
        median_seconds=finite(report.median_seconds),
        agreement=finite(report.agreement.share),
    )


def share_estimate(share: Share) -> ShareEstimate:
    """Convert a share, with non-finite numbers replaced by None."""
    return ShareEstimate(
        share=finite(share.share), low=finite(share.low), high=finite(share.high), count=share.num
    )


def alpha_estimate(agreement: Agreement) -> AlphaEstimate:
    """Convert Krippendorff's alpha, with non-finite numbers replaced by None."""
    return AlphaEstimate(
        alpha=finite(agreement.alpha), low=finite(agreement.low), high=finite(agreement.high)
    )
