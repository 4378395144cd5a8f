"""How much labelers agree, beyond what chance would bring about.

Source: Krippendorff 2011, "Computing Krippendorff's alpha-reliability".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from rl_teacher.quality.votes import Votes

Level = Literal["nominal", "ordinal"]
"""Nominal: answers are the same or not. Ordinal: left and right are further apart than either is
from equal."""

RESAMPLES = 1_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Agreement:
    """What several labelers say of the same comparisons; NaN where that cannot be said.

    Attributes:
        alpha: Krippendorff's; 1 is perfect, 0 as good as chance, below 0 worse than that.
        low: lower end of its 95 % interval.
        high: upper end.
        raw: share of pairs of answers to one comparison that are the same.
        num_comparisons: with two answers or more.
        num_votes: about those.
    """

    alpha: float
    low: float
    high: float
    raw: float
    num_comparisons: int
    num_votes: int


def agreement(
    votes: Votes,
    level: Level = "nominal",
    *,
    resamples: int = RESAMPLES,
    rng: np.random.Generator | None = None,
) -> Agreement:
    """Agreement of labelers, with a bootstrap interval over comparisons.

    Args:
        votes: leave out those who could not tell (`Votes.telling`): they are missing values.
        level: how far apart answers are.
        resamples: R, of the bootstrap.
        rng: of the bootstrap; the same interval every time without it.
    """
    kinds, num_of_kind = _kinds(votes)
    coincidences = _coincidences(kinds)
    distance = DISTANCES[level]
    total = np.tensordot(num_of_kind, coincidences, 1)
    low, high = np.nan, np.nan
    if num_of_kind.any():
        rng = rng or np.random.default_rng(0)
        num = num_of_kind.sum()
        # Note: comparisons with equal counts are alike, so drawing how often each kind comes up is
        # drawing comparisons.
        drawn = rng.multinomial(num, num_of_kind / num, resamples)
        alphas = _alpha(np.tensordot(drawn, coincidences, 1), distance)
        low, high = _middle_of(alphas)
    num_votes = total.sum()
    return Agreement(
        alpha=float(_alpha(total, distance)),
        low=float(low),
        high=float(high),
        raw=float(np.trace(total) / num_votes) if num_votes else float("nan"),
        num_comparisons=int(num_of_kind.sum()),
        num_votes=round(num_votes),
    )


def krippendorff_alpha(votes: Votes, level: Level = "nominal") -> float:
    """Krippendorff's alpha alone: 1 - observed disagreement / disagreement by chance.

    NaN where nobody's answers can be compared, or all are the same: then chance would agree too.
    """
    kinds, num_of_kind = _kinds(votes)
    total = np.tensordot(num_of_kind, _coincidences(kinds), 1)
    return float(_alpha(total, DISTANCES[level]))


def _kinds(
    votes: Votes,
) -> tuple[Int64[np.ndarray, "kind value"], Int64[np.ndarray, " kind"]]:
    """[G, K] how often each value was said, of each kind of comparison; [G] how many there are.

    Only comparisons with two votes or more: from one alone no agreement can be seen.
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
    """[G, K, K] pairs of values within a comparison, each weighted 1 / (m - 1) of its m votes."""
    pairs = kinds[:, :, None] * kinds[:, None, :] - kinds[:, :, None] * np.eye(kinds.shape[1])
    return pairs / (kinds.sum(1)[:, None, None] - 1)


def _alpha(
    coincidences: Float64[np.ndarray, "*resample value value"],
    distance: Callable[[np.ndarray], np.ndarray],
) -> Float64[np.ndarray, "*resample"]:
    """1 - D_o / D_e, with D_o = sum o_ck d_ck and D_e = sum n_c n_k d_ck / (n - 1)."""
    num_of_value = coincidences.sum(-1)  # n_c
    num = num_of_value.sum(-1)
    far = distance(num_of_value)
    observed = (coincidences * far).sum((-2, -1))
    pairs = num_of_value[..., :, None] * num_of_value[..., None, :]
    expected = (pairs * far).sum((-2, -1)) / np.maximum(num - 1, 1)
    is_said = expected > 0
    return np.where(is_said, 1 - observed / np.where(is_said, expected, 1), np.nan)


def _nominal(num_of_value: Float64[np.ndarray, "*resample value"]) -> np.ndarray:
    """[..., K, K] 0 for the same value, 1 for another."""
    num_values = num_of_value.shape[-1]
    return np.broadcast_to(1 - np.eye(num_values), (*num_of_value.shape, num_values))


def _ordinal(num_of_value: Float64[np.ndarray, "*resample value"]) -> np.ndarray:
    """[..., K, K] (sum of n_g for g from c to k, less half of n_c and of n_k) squared."""
    reached = np.cumsum(num_of_value, -1) - num_of_value / 2
    return (reached[..., :, None] - reached[..., None, :]) ** 2


DISTANCES: dict[Level, Callable[[np.ndarray], np.ndarray]] = {
    "nominal": _nominal,
    "ordinal": _ordinal,
}


def _middle_of(alphas: Float64[np.ndarray, " resample"]) -> tuple[float, float]:
    """Between which values the middle 95 % lie; samples that cannot be said are left out."""
    said = alphas[~np.isnan(alphas)]
    if not len(said):
        return float("nan"), float("nan")
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(said, (tail, 1 - tail))
    return float(low), float(high)
