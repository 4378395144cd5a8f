"""Ranking of the clips of an experiment, cached until its answers change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.quality.reliability import estimate_reliability
from rl_teacher.quality.votes import Votes
from rl_teacher.queries.ranking import (
    TARGETS,
    RankingAnswers,
    answer_probabilities,
    fit_qualities,
    standard_deviations,
)
from rl_teacher.store.records import ComparedPair, ExperimentView
from rl_teacher.store.store import Store

MAX_CLIPS_WITH_INTERVALS = 2_000
"""Clips up to which intervals are computed, which takes O(N^3)."""
CONTRADICTION = 0.1
"""Probability below which an answer contradicts the ranking."""


@dataclass(frozen=True)
class ClipPosition:
    """A clip in the ranking.

    Attributes:
        content_hash: content hash.
        quality: posterior mode of its quality.
        standard_deviation: of the quality; None if there are too many clips.
        num_answers: number of answers that compare it, except `cannot_tell`.
        num_open: number of its comparisons that need more labels.
    """

    content_hash: str
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
            version = (
                self._store.labels.newest_id(experiment_id),
                self._store.labels.gold(experiment_id),
                self._store.labelers.excluded_ids(),
                (experiment.asked, experiment.waiting),
            )
            cached = self._cache.get(experiment_id)
            if cached is not None and cached[0] == version:
                return cached[1]
            ranking = fit_ranking(
                self._store.comparisons.pairs(experiment_id),
                self._store.labels.votes_of_experiment(experiment_id),
                self._store.labels.gold(experiment_id),
            )
            self._cache[experiment_id] = version, ranking
            return ranking


def fit_ranking(
    pairs: Sequence[ComparedPair],
    votes: Mapping[int, Mapping[int, Answer]],
    gold: Mapping[int, Answer],
) -> FittedRanking:
    """Fit a ranking to the answers of labelers who are not excluded.

    Args:
        pairs: every comparison, oldest first.
        votes: current answers by comparison and labeler.
        gold: known answers by comparison.
    """
    comparisons: dict[str, list[int]] = {}
    for pair in pairs:
        comparisons.setdefault(pair.left_hash, []).append(pair.id)
        comparisons.setdefault(pair.right_hash, []).append(pair.id)
    number = {content_hash: index for index, content_hash in enumerate(comparisons)}
    ends = [(number[pair.left_hash], number[pair.right_hash]) for pair in pairs]
    rows = [
        (pair.id, labeler, *end, answer)
        for pair, end in zip(pairs, ends, strict=True)
        for labeler, answer in votes.get(pair.id, {}).items()
        if answer in TARGETS
    ]
    answers = RankingAnswers.of(
        ((left, right, answer, labeler) for _, labeler, left, right, answer in rows),
        estimate_reliability(Votes.of(votes), gold),
    )
    quality = fit_qualities(answers, np.zeros(len(number)))
    deviations: Sequence[float | None] = [None] * len(number)
    if len(number) <= MAX_CLIPS_WITH_INTERVALS:
        deviations = standard_deviations(answers, quality).tolist()
    num_answers = np.bincount(np.append(answers.left, answers.right), minlength=len(number))
    open_ends = [end for pair, end in zip(pairs, ends, strict=True) if pair.is_open]
    num_open = np.bincount(np.array(open_ends, np.int64).ravel(), minlength=len(number))
    # Errors of the labeler would make any answer probable.
    sure = replace(answers, error_rate=np.zeros(len(rows)))
    chances = answer_probabilities(sure, quality).tolist()
    probabilities = {row[:2]: chance for row, chance in zip(rows, chances, strict=True)}
    unlikely = [key for key, chance in probabilities.items() if chance < CONTRADICTION]
    hashes = list(number)
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
