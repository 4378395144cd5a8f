"""What each labeler does: how much, how fast, how evenly, how steadily, how well."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from statistics import median

from rl_teacher.clips.answer import Answer
from rl_teacher.quality.reliability import UNKNOWN, Reliability, estimate_reliability
from rl_teacher.quality.votes import Votes

Z = 1.96
"""Standard errors on each side of a 95 % interval."""
DECISIVE = (Answer.LEFT, Answer.RIGHT)


@dataclass(frozen=True)
class GivenLabel:
    """A label as it was given; labels are append-only.

    Attributes:
        comparison: what was asked.
        labeler: who answered.
        answer: in the comparison's own order; None takes back what was said before.
        at_s: when, in seconds since any moment.
        is_swapped: whether the left clip was shown on the right.
        response_ms: how long it took, if that is known.
        is_repeat: asked a second time, to see whether the answer is the same.
    """

    comparison: int
    labeler: int
    answer: Answer | None
    at_s: float
    is_swapped: bool = False
    response_ms: int | None = None
    is_repeat: bool = False


@dataclass(frozen=True)
class Share:
    """A share of some number of cases, with Wilson's 95 % interval; NaN of none.

    Source: Wilson 1927. Unlike mean +- two standard errors it stays within 0 and 1, and says
    something of one case too.
    """

    share: float
    low: float
    high: float
    num: int

    @classmethod
    def of(cls, cases: Iterable[bool]) -> "Share":
        """The share of the cases that are so."""
        counted = list(cases)
        num = len(counted)
        if not num:
            return cls(nan, nan, nan, 0)
        share = sum(counted) / num
        middle = (share + Z**2 / (2 * num)) / (1 + Z**2 / num)
        half = Z * sqrt(share * (1 - share) / num + Z**2 / (4 * num**2)) / (1 + Z**2 / num)
        return cls(share, max(middle - half, 0.0), min(middle + half, 1.0), num)


@dataclass(frozen=True)
class LabelerReport:
    """What one labeler does.

    Attributes:
        labeler: who.
        num_answers: comparisons with a current answer of theirs.
        median_seconds: of an answer; NaN where no time is known.
        left_shown: of their answers for a side, how many were for the one shown on the left; far
            from 1/2 is a habit of the hand.
        self_consistency: of the comparisons asked twice, how many got the same answer.
        gold_accuracy: of the comparisons with a known answer, how many got that.
        agreement: with each other labeler about each comparison, how often they said the same.
        reliability: estimated from all that.
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
    """By comparison and labeler, the label that counts: the newest, unless it was taken back."""
    current: dict[int, dict[int, GivenLabel]] = {}
    for label in labels:
        if not label.is_repeat:
            current.setdefault(label.comparison, {})[label.labeler] = label
    return {
        comparison: {who: label for who, label in given.items() if label.answer is not None}
        for comparison, given in current.items()
    }


def votes_of(labels: Iterable[GivenLabel]) -> Votes:
    """The answers that count now."""
    return Votes.of(
        {
            comparison: {who: label.answer for who, label in given.items() if label.answer}
            for comparison, given in current_answers(labels).items()
        }
    )


def labeler_reports(
    labels: Sequence[GivenLabel], gold: Mapping[int, Answer] | None = None
) -> dict[int, LabelerReport]:
    """A report on each labeler, by labeler.

    Args:
        labels: oldest first. Leave out those of excluded labelers, or they count as others to agree
            with.
        gold: comparisons with a known answer.
    """
    yardstick = Yardstick.of(labels, gold or {})
    return {who: _report(who, theirs, yardstick) for who, theirs in _by_labeler(labels).items()}


def empty_report(labeler: int) -> LabelerReport:
    """The report on somebody none of whose labels are looked at."""
    return _report(labeler, [], Yardstick({}, {}, {}))


@dataclass(frozen=True)
class Yardstick:
    """What a labeler's answers are held against.

    Attributes:
        current: everybody's labels that count, by comparison and labeler.
        gold: comparisons with a known answer.
        reliability: of everybody.
    """

    current: Mapping[int, Mapping[int, GivenLabel]]
    gold: Mapping[int, Answer]
    reliability: Mapping[int, Reliability]

    @classmethod
    def of(cls, labels: Sequence[GivenLabel], gold: Mapping[int, Answer]) -> "Yardstick":
        """From all labels, oldest first."""
        return cls(current_answers(labels), gold, estimate_reliability(votes_of(labels), gold))


def _by_labeler(labels: Iterable[GivenLabel]) -> dict[int, list[GivenLabel]]:
    given: dict[int, list[GivenLabel]] = {}
    for label in labels:
        given.setdefault(label.labeler, []).append(label)
    return given


def _report(who: int, labels: Sequence[GivenLabel], yardstick: Yardstick) -> LabelerReport:
    """On some labels of one labeler."""
    current, gold = yardstick.current, yardstick.gold
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
            if each.answer in DECISIVE
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
        reliability=yardstick.reliability.get(who, UNKNOWN),
    )


@dataclass(frozen=True)
class Period:
    """A stretch of time, and what labelers did in it.

    Attributes:
        from_s: its beginning.
        to_s: its end.
        reports: by labeler.
    """

    from_s: float
    to_s: float
    reports: Mapping[int, LabelerReport]


def over_time(
    labels: Sequence[GivenLabel], num_periods: int, gold: Mapping[int, Answer] | None = None
) -> list[Period]:
    """The same reports on stretches of equal length, so that a drift can be seen.

    A labeler's answers of a stretch are held against what others say at any time. The reliability
    is that of the whole: a stretch alone says too little.
    """
    if not labels:
        return []
    yardstick = Yardstick.of(labels, gold or {})
    begin, end = min(each.at_s for each in labels), max(each.at_s for each in labels)
    length = max(end - begin, 1e-9) / num_periods
    parts: list[list[GivenLabel]] = [[] for _ in range(num_periods)]
    for each in labels:
        parts[min(int((each.at_s - begin) / length), num_periods - 1)].append(each)
    return [
        Period(
            begin + place * length,
            begin + (place + 1) * length,
            {who: _report(who, theirs, yardstick) for who, theirs in _by_labeler(part).items()},
        )
        for place, part in enumerate(parts)
    ]
