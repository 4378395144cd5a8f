"""Reliability of labelers, estimated without ground truth.

Source: Dawid & Skene 1979, with one parameter per labeler instead of a confusion matrix (the
"one-coin" model): labeler j names the better side with probability r_j, whichever side that is.

    E  probability that left is better, given all answers
    M  r_j = (a + expected correct answers of j) / (a + b + answers of j)

A Beta(a, b) prior acts like a + b earlier answers, a of them correct. It keeps the estimate of a
labeler with few answers below 1, and breaks the symmetry of the model in favour of the solution in
which labelers are right more often than wrong.

Equal clips have no better side, so `equal` carries no information here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from rl_teacher.clips.answer import Answer
from rl_teacher.common.sigmoid import sigmoid
from rl_teacher.quality.votes import CODES, Votes

PRIOR = (4.0, 1.0)
"""Parameters of the Beta prior, whose mean is 0.8."""
TRUSTED = (0.5, 0.99)
"""Bounds of the reliability used in the posterior: answers are never inverted, and no labeler
outweighs any number of others."""
SIDES = {Answer.LEFT: 1.0, Answer.RIGHT: 0.0}
"""Probability that left is better, by the known answer."""
MAX_ROUNDS = 200
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Reliability:
    """Probability that a labeler is right.

    Attributes:
        estimate: Posterior mean; the mean of the prior without informative answers.
        num: Number of informative answers: to gold comparisons, or to comparisons that others
            answered, too.
    """

    estimate: float
    num: int


UNKNOWN = Reliability(PRIOR[0] / sum(PRIOR), 0)
"""Reliability of a labeler without informative answers."""


def estimate_reliability(
    votes: Votes, gold: Mapping[int, Answer] | None = None
) -> dict[int, Reliability]:
    """Estimate the reliability of each labeler by expectation maximisation.

    Args:
        votes: All current answers.
        gold: Known answers by comparison.
    """
    sides = votes.decisive
    gold_left = {each: SIDES[answer] for each, answer in (gold or {}).items() if answer in SIDES}
    # A comparison with a single answer would only confirm the current estimate and slow down
    # convergence.
    _, index, num_votes = np.unique(sides.comparison, return_inverse=True, return_counts=True)
    sides = sides.where((num_votes[index] > 1) | np.isin(sides.comparison, list(gold_left)))
    comparisons, comparison = np.unique(sides.comparison, return_inverse=True)
    labelers, labeler = np.unique(sides.labeler, return_inverse=True)
    # [C] 1 where left is known to be better, 0 where right is, NaN where unknown
    known = np.array([gold_left.get(each, np.nan) for each in comparisons.tolist()])
    prefers_left = sides.answer == CODES[Answer.LEFT]
    num = np.bincount(labeler, minlength=len(labelers))
    a, b = PRIOR
    reliability = np.full(len(labelers), UNKNOWN.estimate)
    for _ in range(MAX_ROUNDS):
        left = np.where(
            np.isnan(known), _left(comparison, prefers_left, reliability[labeler]), known
        )
        chance_right = np.where(prefers_left, left[comparison], 1 - left[comparison])
        right = np.bincount(labeler, chance_right, minlength=len(labelers))
        before, reliability = reliability, (a + right) / (a + b + num)
        if np.abs(reliability - before).max(initial=0) < TOLERANCE:
            break
    nothing = dict.fromkeys(np.unique(votes.labeler).tolist(), UNKNOWN)
    found = zip(labelers.tolist(), reliability.tolist(), num.tolist(), strict=True)
    return nothing | {each: Reliability(*rest) for each, *rest in found}


def _left(
    comparison: np.ndarray, prefers_left: np.ndarray, reliability: Float64[np.ndarray, " vote"]
) -> Float64[np.ndarray, " comparison"]:
    """Compute [C] P(left is better), the sigmoid of the summed log-odds of the votes."""
    trusted = np.clip(reliability, *TRUSTED)
    log_odds = np.where(prefers_left, 1, -1) * np.log(trusted / (1 - trusted))
    return sigmoid(np.bincount(comparison, log_odds))
