"""Query selection: the most informative of many candidate pairs.

M: members of the ensemble, C: candidate pairs, F: features of a segment.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from rl_teacher.common.errors import UnknownName
from rl_teacher.common.sigmoid import sigmoid

EPSILON = 1e-8


@dataclass(frozen=True)
class Candidates:
    """Candidate pairs of segments.

    Attributes:
        logits: [M, C] each member's log-odds that the left segment is preferred.
        features: [C, F] features of each pair, for selection by diversity.
    """

    logits: Float[np.ndarray, "member candidate"]
    features: Float[np.ndarray, "candidate features"]

    @property
    def chances(self) -> Float[np.ndarray, "member candidate"]:
        """[M, C] each member's probability that the left segment is preferred."""
        return sigmoid(self.logits)

    def distinct(self, alike_share: float) -> Int64[np.ndarray, " kept"]:
        """Return the indices of the pairs whose sides differ most, in their order.

        Args:
            alike_share: share of the pairs to leave out.
        """
        # Features have different units: each counts in standard deviations.
        distance = np.linalg.norm(self.features / (self.features.std(axis=0) + EPSILON), axis=1)
        return np.flatnonzero(distance >= np.quantile(distance, alike_share))

    def take(self, chosen: Int64[np.ndarray, " chosen"]) -> "Candidates":
        """Select some of the pairs."""
        return Candidates(self.logits[:, chosen], self.features[chosen])


Selector = Callable[[Candidates, int, np.random.Generator], Int64[np.ndarray, " chosen"]]


def _largest(scores: Float[np.ndarray, " candidate"], num: int) -> Int64[np.ndarray, " chosen"]:
    """Return the indices of the highest scores, highest first; ties keep their order."""
    return np.argsort(-scores, kind="stable")[:num]


def uniform(
    candidates: Candidates, num: int, rng: np.random.Generator
) -> Int64[np.ndarray, " chosen"]:
    """Select at random."""
    return rng.permutation(candidates.logits.shape[1])[:num]


def disagreement(
    candidates: Candidates,
    num: int,
    rng: np.random.Generator,  # noqa: ARG001
) -> Int64[np.ndarray, " chosen"]:
    """Select where the members' probabilities vary most (Christiano et al. 2017, 2.2.4)."""
    # Of probabilities and not of logits: members that agree on a clear preference may have very
    # different logits.
    return _largest(candidates.chances.var(axis=0), num)


def entropy(
    candidates: Candidates,
    num: int,
    rng: np.random.Generator,  # noqa: ARG001
) -> Int64[np.ndarray, " chosen"]:
    """Select where the mean probability is closest to 1/2 (Lee et al. 2021, B-Pref)."""
    chance = candidates.chances.mean(axis=0)
    return _largest(-np.abs(chance - 0.5), num)


def k_center(
    candidates: Candidates, num: int, rng: np.random.Generator
) -> Int64[np.ndarray, " chosen"]:
    """Select pairs that cover the candidates: each is the farthest from all before it.

    Source: the greedy 2-approximation of k-center (Gonzalez 1985), as in B-Pref.
    """
    features = candidates.features
    chosen = [int(rng.integers(len(features)))]
    distance = np.linalg.norm(features - features[chosen[0]], axis=1)
    while len(chosen) < min(num, len(features)):
        # Not even where all others have its features is a pair chosen again.
        distance[chosen[-1]] = -1.0
        farthest = int(np.argmax(distance))
        chosen.append(farthest)
        # Distance to the nearest chosen pair, updated with the newest: O(num * C) instead of all
        # pairs.
        distance = np.minimum(distance, np.linalg.norm(features - features[farthest], axis=1))
    return np.asarray(chosen)


SELECTORS: dict[str, Selector] = {
    "uniform": uniform,
    "disagreement": disagreement,
    "entropy": entropy,
    "k_center": k_center,
}


def selector(name: str) -> Selector:
    """Return the selector of a name.

    Raises:
        UnknownName: no selector has this name.
    """
    if name not in SELECTORS:
        raise UnknownName("selector", name, SELECTORS)
    return SELECTORS[name]
