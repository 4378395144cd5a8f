"""Statistics of each labeler: volume, speed, side bias, consistency, accuracy and agreement."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from statistics import median

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.quality.reliability import UNKNOWN, Reliability, estimate_reliability
from rl_teacher.quality.votes import Votes

Z = 1.96
"""Normal quantile of a 95 % interval."""
DECISIVE = (Answer.LEFT, Answer.RIGHT)


@dataclass(frozen=True)
class GivenLabel:
    """An entry of the append-only label log.

    Attributes:
        comparison: Comparison id.
        labeler: Labeler id.
        answer: Answer in the comparison's own order; None withdraws the earlier answer.
        at_s: Time in seconds, from any origin.
        is_swapped: The left clip was shown on the right.
        response_ms: Response time, if known.
        is_repeat: The labeler was asked again, to measure consistency.
        is_ranked: It is from a ranking of several clips, which are not on two sides.
    """

    comparison: int
    labeler: int
    answer: Answer | None
    at_s: float
    is_swapped: bool = False
    response_ms: int | None = None
    is_repeat: bool = False
    is_ranked: bool = False


@dataclass(frozen=True)
class Share:
    """A proportion with its 95 % Wilson interval; NaN without cases.

    Source: Wilson 1927. Unlike the normal approximation, the interval stays within 0 and 1 and is
    meaningful for a single case.
    """

    share: float
    low: float
    high: float
    num: int

    @classmethod
    def of(cls, cases: Iterable[bool]) -> "Share":
        """Compute the share of true cases."""
        counted = list(cases)
        return cls.estimate(sum(counted) / max(len(counted), 1), len(counted))

    @classmethod
    def estimate(cls, share: float, num: int) -> "Share":
        """Compute the interval of a share of this number of independent cases."""
        if not num:
            return cls(nan, nan, nan, 0)
        # (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)
        middle = (share + Z**2 / (2 * num)) / (1 + Z**2 / num)
        half = Z * sqrt(share * (1 - share) / num + Z**2 / (4 * num**2)) / (1 + Z**2 / num)
        return cls(share, max(middle - half, 0.0), min(middle + half, 1.0), num)


@dataclass(frozen=True)
class LabelerReport:
    """Statistics of one labeler.

    Attributes:
        labeler: Labeler id.
        num_answers: Number of comparisons with a current answer.
        median_seconds: Median response time; NaN if unknown.
        left_shown: Share of decisive answers for the clip shown on the left, rankings left out; a
            value far from 1/2 indicates a side bias.
        self_consistency: Share of repeats with the same answer.
        gold_accuracy: Share of gold comparisons with the known answer.
        agreement: Share of equal answers over pairs with other labelers.
        reliability: Estimated probability of being right.
    """

    labeler: int
    num_answers: int
    median_seconds: float
    left_shown: Share
    self_consistency: Share
    gold_accuracy: Share
    agreement: Share
    reliability: Reliability


def current_answers(labels: Iterable[GivenLabel]) -> dict[int, dict[int, GivenLabel]]:
    """Return the newest label by comparison and labeler, unless it withdraws the answer."""
    current: dict[int, dict[int, GivenLabel]] = {}
    for label in labels:
        if not label.is_repeat:
            current.setdefault(label.comparison, {})[label.labeler] = label
    return {
        comparison: {who: label for who, label in given.items() if label.answer is not None}
        for comparison, given in current.items()
    }


def votes_of(labels: Iterable[GivenLabel]) -> Votes:
    """Return the current answers as arrays."""
    return Votes.of(
        {
            comparison: {who: label.answer for who, label in given.items() if label.answer}
            for comparison, given in current_answers(labels).items()
        }
    )


def labeler_reports(
    labels: Sequence[GivenLabel],
    gold: Mapping[int, Answer] | None = None,
    excluded: Collection[int] = (),
) -> dict[int, LabelerReport]:
    """Compute a report per labeler.

    Args:
        labels: Labels, oldest first.
        gold: Known answers by comparison.
        excluded: Labelers with whom nobody is compared; they are compared with the others.
    """
    gold = gold or {}
    counted = [each for each in labels if each.labeler not in excluded]
    reference = Reference.of(counted, gold)
    given: dict[int, list[GivenLabel]] = {}
    for each in labels:
        given.setdefault(each.labeler, []).append(each)
    return {
        who: _report(
            who, theirs, Reference.of([*counted, *theirs], gold) if who in excluded else reference
        )
        for who, theirs in given.items()
    }


def empty_report(labeler: int) -> LabelerReport:
    """Return the report on a labeler without labels."""
    return _report(labeler, [], Reference({}, {}, {}))


@dataclass(frozen=True)
class Reference:
    """Answers against which a labeler is measured.

    Attributes:
        current: Current labels by comparison and labeler.
        gold: Known answers by comparison.
        reliability: Reliability by labeler.
    """

    current: Mapping[int, Mapping[int, GivenLabel]]
    gold: Mapping[int, Answer]
    reliability: Mapping[int, Reliability]

    @classmethod
    def of(cls, labels: Sequence[GivenLabel], gold: Mapping[int, Answer]) -> "Reference":
        """Compute the reference from all labels, oldest first."""
        return cls(current_answers(labels), gold, estimate_reliability(votes_of(labels), gold))


def _report(who: int, labels: Sequence[GivenLabel], reference: Reference) -> LabelerReport:
    """Compute a report from some labels of one labeler."""
    current, gold = reference.current, reference.gold
    # By identity: an earlier label of the same comparison may have equal fields.
    own = [each for each in labels if current.get(each.comparison, {}).get(who) is each]
    newest = {each.comparison: each for each in labels if each.is_repeat}
    repeats = [each for each in newest.values() if each.answer is not None]
    seen = [*own, *repeats]
    times = [each.response_ms / 1e3 for each in seen if each.response_ms is not None]
    return LabelerReport(
        labeler=who,
        num_answers=len(own),
        median_seconds=median(times) if times else nan,
        left_shown=Share.of(
            (each.answer is Answer.LEFT) != each.is_swapped
            for each in seen
            if each.answer in DECISIVE and not each.is_ranked
        ),
        self_consistency=Share.of(
            each.answer is current[each.comparison][who].answer
            for each in repeats
            if who in current.get(each.comparison, {})
        ),
        gold_accuracy=Share.of(
            each.answer is gold[each.comparison] for each in own if each.comparison in gold
        ),
        agreement=Share.of(
            each.answer is other.answer
            for each in own
            for them, other in current[each.comparison].items()
            if them != who and Answer.CANNOT_TELL not in (each.answer, other.answer)
        ),
        reliability=reference.reliability.get(who, UNKNOWN),
    )


def activity(labels: Sequence[GivenLabel], num_periods: int) -> dict[int, list[int]]:
    """Count the labels of each labeler in periods of equal length, the earliest first."""
    if not labels:
        return {}
    times = np.array([each.at_s for each in labels])
    labelers = np.array([each.labeler for each in labels])
    # Around a single moment, NumPy makes the periods a total of one second long.
    span = times.min(), times.max()
    return {
        who: np.histogram(times[labelers == who], num_periods, span)[0].tolist()
        for who in np.unique(labelers).tolist()
    }
