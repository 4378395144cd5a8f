"""Ranking of the clips of an experiment, cached until its answers change."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from rl_teacher.clips.answer import TARGETS, Answer
from rl_teacher.quality.reliability import estimate_reliability
from rl_teacher.quality.votes import CODES, Votes
from rl_teacher.queries.ranking import (
    RankingAnswers,
    answer_probabilities,
    fit_qualities,
    standard_deviations,
)
from rl_teacher.store.records import AskedComparison, ExperimentView
from rl_teacher.store.store import Store

MAX_CLIPS_WITH_INTERVALS = 2_000
"""Clips up to which intervals are computed, which takes O(N^3)."""
CONTRADICTION = 0.1
"""Probability below which an answer contradicts the ranking."""


@dataclass(frozen=True)
class ClipPosition:
    """A clip in the ranking.

    Attributes:
        hash: content hash.
        quality: posterior mode of its quality.
        standard_deviation: of the quality; None if there are too many clips.
        num_answers: number of answers that compare it, except `cannot_tell`.
        num_open: number of its comparisons that need more labels.
    """

    hash: str
    quality: float
    standard_deviation: float | None
    num_answers: int
    num_open: int


@dataclass(frozen=True)
class FittedRanking:
    """Ranking of an experiment's clips.

    Attributes:
        clips: clips, best first.
        comparisons: ids of the comparisons of each clip, oldest first.
        probabilities: probability of each answer if its labeler made no error, by comparison id
            and labeler id.
        contradictions: keys of the probabilities below `CONTRADICTION`, the lowest first.
    """

    clips: list[ClipPosition]
    comparisons: dict[str, list[int]]
    probabilities: dict[tuple[int, int], float]
    contradictions: list[tuple[int, int]]


class RankingCache:
    """Computes rankings, one experiment at a time, and caches them until their answers change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._computing = Lock()
        self._cache: dict[int, tuple[Any, FittedRanking]] = {}

    def of(self, experiment: ExperimentView) -> FittedRanking:
        """Return the ranking of an experiment's clips."""
        experiment_id = experiment.id
        with self._computing:
            # Read before the answers: if some arrive in between, the next request recomputes.
            newest_id = self._store.labels.newest_id(experiment_id)
            gold = self._store.labels.gold(experiment_id)
            excluded = self._store.labelers.excluded_ids()
            version = newest_id, gold, excluded, experiment.asked, experiment.waiting
            cached = self._cache.get(experiment_id)
            if cached is not None and cached[0] == version:
                return cached[1]
            # Labels first: their comparisons are in the store then.
            answers: dict[tuple[int, int], Answer | None] = {
                (label.comparison_id, label.labeler_id): label.answer
                for label in self._store.labels.since(experiment_id, 0)
            }
            asked = self._store.comparisons.asked(experiment_id)
            ranking = fit_ranking(asked, answers, gold, excluded)
            self._cache[experiment_id] = version, ranking
            return ranking


def fit_ranking(
    asked: Sequence[AskedComparison],
    answers: Mapping[tuple[int, int], Answer | None],
    gold: Mapping[int, Answer],
    excluded: Collection[int],
) -> FittedRanking:
    """Fit a ranking to the answers of labelers who are not excluded.

    Args:
        asked: comparisons, oldest first.
        answers: newest answers by comparison and labeler.
        gold: known answers by comparison.
        excluded: ids of labelers.
    """
    comparisons: dict[str, list[int]] = {}
    for each in asked:
        comparisons.setdefault(each.left_hash, []).append(each.id)
        comparisons.setdefault(each.right_hash, []).append(each.id)
    hashes = list(comparisons)
    number = {content_hash: index for index, content_hash in enumerate(hashes)}
    ends = {each.id: (number[each.left_hash], number[each.right_hash]) for each in asked}
    rows = [
        (comparison_id, labeler_id, answer)
        for (comparison_id, labeler_id), answer in answers.items()
        # Of an experiment that was deleted after its answers were read, comparisons are missing.
        if answer is not None
        and answer in TARGETS
        and labeler_id not in excluded
        and comparison_id in ends
    ]
    votes = Votes.from_triples((each, labeler, CODES[answer]) for each, labeler, answer in rows)
    to_rank = RankingAnswers.of(
        ((*ends[each], answer, labeler) for each, labeler, answer in rows),
        estimate_reliability(votes, gold),
    )
    quality = fit_qualities(to_rank, np.zeros(len(hashes)))
    deviations: list[float | None] = [None] * len(hashes)
    if len(hashes) <= MAX_CLIPS_WITH_INTERVALS:
        deviations = [*standard_deviations(to_rank, quality).tolist()]
    num_answers = np.bincount(np.append(to_rank.left, to_rank.right), minlength=len(hashes))
    open_ends = [ends[each.id] for each in asked if each.is_open]
    num_open = np.bincount(np.array(open_ends, np.int64).ravel(), minlength=len(hashes))
    # Errors of the labeler would make any answer probable.
    sure = replace(to_rank, error_rate=np.zeros(len(rows)))
    chances = answer_probabilities(sure, quality).tolist()
    probabilities = {row[:2]: chance for row, chance in zip(rows, chances, strict=True)}
    unlikely = [key for key, chance in probabilities.items() if chance < CONTRADICTION]
    return FittedRanking(
        clips=[
            ClipPosition(
                hashes[clip],
                float(quality[clip]),
                deviations[clip],
                int(num_answers[clip]),
                int(num_open[clip]),
            )
            for clip in np.argsort(-quality, kind="stable").tolist()
        ],
        comparisons=comparisons,
        probabilities=probabilities,
        contradictions=sorted(unlikely, key=probabilities.__getitem__),
    )
