"""How often each labeler is right, found out without knowing what is right.

Source: Dawid & Skene 1979, with one number for each labeler in the place of a table (the "one-coin"
model): labeler j names the better side with chance r_j, whichever side that is.

    E  chance that left is better, from what all say      posterior_left
    M  r_j = (a + times j was right) / (a + b + times j answered)

A Beta(a, b) prior stands for a + b answers seen before, a of them right. It keeps a labeler with
few answers from being taken for perfect, and says which of the two mirror images is meant: the one
in which labelers are right more often than not.

Two equal clips have no better side, so `equal` says nothing here; `targets` lets it count by its
share of the answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from rl_teacher.clips.answer import Answer
from rl_teacher.quality.votes import CODES, Votes

PRIOR = (4.0, 1.0)
"""Of a Beta distribution: as if everybody had been right in four answers out of five."""
TRUSTED = (0.5, 0.99)
"""What a reliability counts as at least, and at most: nobody's word is turned round, and nobody
outweighs any number of others."""
MAX_ROUNDS = 200
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Reliability:
    """How often a labeler is right.

    Attributes:
        estimate: share of right answers; the prior's where nothing is known.
        num: answers that say something about it: to gold comparisons, or to those that others
            answered too.
    """

    estimate: float
    num: int


UNKNOWN = Reliability(PRIOR[0] / sum(PRIOR), 0)
"""Of somebody whose answers nothing can be held against."""


def estimate_reliability(
    votes: Votes, gold: Mapping[int, Answer] | None = None
) -> dict[int, Reliability]:
    """Each labeler's reliability, by expectation maximisation.

    Args:
        votes: all current answers.
        gold: comparisons whose better side is known.
    """
    # Note: of a comparison that one labeler alone answered, nothing can be learned about them: it
    # would confirm what is estimated already, and only slow the descent.
    sides = _with_something_to_compare(votes.decisive, gold or {})
    comparisons, comparison = np.unique(sides.comparison, return_inverse=True)
    labelers, labeler = np.unique(sides.labeler, return_inverse=True)
    known = _known(comparisons, gold or {})
    says_left = sides.answer == CODES[Answer.LEFT]
    num = np.bincount(labeler, minlength=len(labelers))
    a, b = PRIOR
    reliability = np.full(len(labelers), UNKNOWN.estimate)
    for _ in range(MAX_ROUNDS):
        left = np.where(np.isnan(known), _left(comparison, says_left, reliability[labeler]), known)
        chance_right = np.where(says_left, left[comparison], 1 - left[comparison])
        right = np.bincount(labeler, chance_right, minlength=len(labelers))
        before, reliability = reliability, (a + right) / (a + b + num)
        if np.abs(reliability - before).max(initial=0) < TOLERANCE:
            break
    nothing = dict.fromkeys(np.unique(votes.labeler).tolist(), UNKNOWN)
    found = zip(labelers.tolist(), reliability.tolist(), num.tolist(), strict=True)
    return nothing | {each: Reliability(*rest) for each, *rest in found}


def _with_something_to_compare(votes: Votes, gold: Mapping[int, Answer]) -> Votes:
    _, place, num = np.unique(votes.comparison, return_inverse=True, return_counts=True)
    is_gold = np.isin(votes.comparison, [i for i, said in gold.items() if said in SIDES])
    return votes.where((num[place] > 1) | is_gold)


SIDES = {Answer.LEFT: 1.0, Answer.RIGHT: 0.0}


def _known(comparisons: np.ndarray, gold: Mapping[int, Answer]) -> Float64[np.ndarray, " known"]:
    """[C] 1 where left is known to be better, 0 where right is, NaN where neither."""
    answers = (gold.get(each) for each in comparisons.tolist())
    return np.array([np.nan if each is None else SIDES.get(each, np.nan) for each in answers])


def _left(
    comparison: np.ndarray, says_left: np.ndarray, reliability: Float64[np.ndarray, " vote"]
) -> Float64[np.ndarray, " comparison"]:
    """[C] chance that left is better: sigmoid of the sum of the votes' log-odds."""
    trusted = np.clip(reliability, *TRUSTED)
    log_odds = np.where(says_left, 1, -1) * np.log(trusted / (1 - trusted))
    return 0.5 * (1 + np.tanh(0.5 * np.bincount(comparison, log_odds)))


def posterior_left(votes: Votes, reliability: Mapping[int, Reliability]) -> dict[int, float]:
    """The chance that left is better, of every comparison with a vote for a side.

    Args:
        votes: those that are not for a side are left out.
        reliability: of every labeler.
    """
    sides = votes.decisive
    comparisons, comparison = np.unique(sides.comparison, return_inverse=True)
    trust = np.array([reliability[each].estimate for each in sides.labeler.tolist()], float)
    left = _left(comparison, sides.answer == CODES[Answer.LEFT], trust)
    return dict(zip(comparisons.tolist(), left.tolist(), strict=True))


def mean_targets(votes: Votes) -> dict[int, float]:
    """Share of the answers that are for left, `equal` counting as half a one.

    Comparisons of which nobody could tell are left out.
    """
    telling = votes.telling
    comparisons, comparison = np.unique(telling.comparison, return_inverse=True)
    halves = 2 - telling.answer  # left 2, equal 1, right 0
    mean = np.bincount(comparison, halves) / np.maximum(2 * np.bincount(comparison), 1)
    return dict(zip(comparisons.tolist(), mean.tolist(), strict=True))


def posterior_targets(votes: Votes, reliability: Mapping[int, Reliability]) -> dict[int, float]:
    """What a predictor shall learn: the chance that left is better, drawn to 1/2 by ties.

    Where a share s of the answers is `equal`, the target is (1 - s) posterior + s / 2. With
    labelers who never err that is the mean.
    """
    left = posterior_left(votes, reliability)
    telling = votes.telling
    comparisons, comparison = np.unique(telling.comparison, return_inverse=True)
    is_tie = (telling.answer == CODES[Answer.EQUAL]).astype(float)
    ties = np.bincount(comparison, is_tie) / np.maximum(np.bincount(comparison), 1)
    shares = zip(comparisons.tolist(), ties.tolist(), strict=True)
    return {each: (1 - share) * left.get(each, 0.5) + share / 2 for each, share in shares}
