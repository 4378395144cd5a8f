"""Agreement among labelers beyond chance: Krippendorff's alpha with a bootstrap interval.

Comparisons with equal counts of answers are handled together, so that a thousand resamples of
10,000 labels take 0.1 s. The package `krippendorff` gives the same values, but needs 1 s for the
interval, because it has to be called once per resample.

Source: Krippendorff 2011, "Computing Krippendorff's alpha-reliability".
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from rl_teacher.quality.votes import Votes

RESAMPLES = 1_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Agreement:
    """Agreement of several labelers on the same comparisons.

    Alpha, its interval and the raw agreement are NaN if no comparison has two answers; alpha and
    its interval also if all answers are equal, since chance would agree.

    Attributes:
        alpha: Krippendorff's alpha, 1 - observed / expected disagreement; 1 is perfect agreement, 0
            chance, below 0 worse than chance.
        low: Lower end of the 95 % interval of alpha.
        high: Upper end of the interval.
        raw: Share of equal answers among pairs of answers to the same comparison, each weighted
            1 / (m - 1) for m answers.
        num_comparisons: Number of comparisons with two or more answers.
        num_votes: Number of answers to those.
    """

    alpha: float
    low: float
    high: float
    raw: float
    num_comparisons: int
    num_votes: int


def agreement(votes: Votes, *, resamples: int = RESAMPLES) -> Agreement:
    """Compute the agreement of labelers, with a bootstrap interval over comparisons.

    Args:
        votes: Votes without `cannot_tell` (`Votes.telling`), which counts as missing.
        resamples: Number of bootstrap resamples R.
    """
    kinds, num_of_kind = _kinds(votes)
    coincidences = _coincidences(kinds)
    total = np.tensordot(num_of_kind, coincidences, 1)
    low, high = np.nan, np.nan
    if num_of_kind.any():
        rng = np.random.default_rng(0)
        num = num_of_kind.sum()
        # Comparisons with equal counts are exchangeable, so a multinomial draw of how often each
        # kind occurs is the same as drawing comparisons.
        resampled = rng.multinomial(num, num_of_kind / num, resamples)
        alphas = _alpha(np.tensordot(resampled, coincidences, 1))
        # A resample without disagreement by chance has no alpha.
        if len(defined := alphas[~np.isnan(alphas)]):
            tail = (1 - CONFIDENCE) / 2
            low, high = np.quantile(defined, (tail, 1 - tail))
    num_votes = total.sum()
    return Agreement(
        alpha=float(_alpha(total)),
        low=float(low),
        high=float(high),
        raw=float(np.trace(total) / num_votes) if num_votes else float("nan"),
        num_comparisons=int(num_of_kind.sum()),
        num_votes=round(num_votes),
    )


def _kinds(
    votes: Votes,
) -> tuple[Int64[np.ndarray, "kind value"], Int64[np.ndarray, " kind"]]:
    """Return the distinct rows of value counts [G, K], and the number of comparisons of each [G].

    Comparisons with a single vote are left out, because they show no agreement.
    """
    _, comparison = np.unique(votes.comparison, return_inverse=True)
    values, value = np.unique(votes.answer, return_inverse=True)
    counts = np.zeros((comparison.max(initial=-1) + 1, len(values)), np.int64)
    np.add.at(counts, (comparison, value), 1)
    kinds, num_of_kind = np.unique(counts[counts.sum(1) > 1], axis=0, return_counts=True)
    return kinds, num_of_kind.astype(np.int64)


def _coincidences(
    kinds: Int64[np.ndarray, "kind value"],
) -> Float64[np.ndarray, "kind value value"]:
    """Return coincidence matrices [G, K, K]: pairs of values, weighted 1 / (m - 1) for m votes."""
    pairs = kinds[:, :, None] * kinds[:, None, :] - kinds[:, :, None] * np.eye(kinds.shape[1])
    return pairs / (kinds.sum(1)[:, None, None] - 1)


def _alpha(
    coincidences: Float64[np.ndarray, "*resample value value"],
) -> Float64[np.ndarray, "*resample"]:
    """Compute alpha, NaN where no disagreement is possible."""
    num_of_value = coincidences.sum(-1)  # n_c
    num = num_of_value.sum(-1)  # n
    # d_ck = 0 for equal values, else 1
    d = 1 - np.eye(num_of_value.shape[-1])
    # D_o = sum o_ck d_ck, D_e = sum n_c n_k d_ck / (n - 1), both times n
    observed = (coincidences * d).sum((-2, -1))
    pairs = num_of_value[..., :, None] * num_of_value[..., None, :]
    expected = (pairs * d).sum((-2, -1)) / np.maximum(num - 1, 1)
    # alpha = 1 - D_o / D_e
    is_defined = expected > 0
    return np.where(is_defined, 1 - observed / np.where(is_defined, expected, 1), np.nan)
