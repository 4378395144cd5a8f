"""Which pairs are asked: from many candidates, the few worth a person's time.

M: members of the ensemble, C: candidate pairs, F: features of a segment.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from rl_teacher.common.errors import UnknownName


@dataclass(frozen=True)
class Candidates:
    """Pairs of segments that might be asked.

    Attributes:
        logits: [M, C] each member's log-odds that the left segment is preferred.
        features: [C, F] one row of numbers for each pair, for diversity.
    """

    logits: Float[np.ndarray, "member candidate"]
    features: Float[np.ndarray, "candidate features"]

    @property
    def chances(self) -> Float[np.ndarray, "member candidate"]:
        """[M, C] each member's probability that the left segment is preferred."""
        return 0.5 * (1 + np.tanh(0.5 * self.logits))


Selector = Callable[[Candidates, int, np.random.Generator], Int64[np.ndarray, " chosen"]]


def _largest(scores: Float[np.ndarray, " candidate"], num: int) -> Int64[np.ndarray, " chosen"]:
    """The numbers of the highest scores, highest first; ties in the order given."""
    return np.argsort(-scores, kind="stable")[:num]


def uniform(
    candidates: Candidates, num: int, rng: np.random.Generator
) -> Int64[np.ndarray, " chosen"]:
    """Any."""
    return rng.permutation(candidates.logits.shape[1])[:num]


def disagreement(
    candidates: Candidates,
    num: int,
    rng: np.random.Generator,  # noqa: ARG001
) -> Int64[np.ndarray, " chosen"]:
    """Where the members' probabilities vary most (Christiano et al. 2017, section 2.2.4)."""
    return _largest(candidates.chances.var(axis=0), num)


def entropy(
    candidates: Candidates,
    num: int,
    rng: np.random.Generator,  # noqa: ARG001
) -> Int64[np.ndarray, " chosen"]:
    """Where the mean probability is closest to a coin toss (Lee et al. 2021, B-Pref)."""
    chance = candidates.chances.mean(axis=0)
    return _largest(-np.abs(chance - 0.5), num)


def k_center(
    candidates: Candidates, num: int, rng: np.random.Generator
) -> Int64[np.ndarray, " chosen"]:
    """Pairs that cover the candidates: each next one is the farthest from all before it.

    Source: the greedy 2-approximation of k-center (Gonzalez 1985), as in B-Pref.
    """
    features = candidates.features
    chosen = [int(rng.integers(len(features)))]
    distance = np.linalg.norm(features - features[chosen[0]], axis=1)
    while len(chosen) < min(num, len(features)):
        farthest = int(np.argmax(distance))
        chosen.append(farthest)
        distance = np.minimum(distance, np.linalg.norm(features - features[farthest], axis=1))
    return np.asarray(chosen)


SELECTORS: dict[str, Selector] = {
    "uniform": uniform,
    "disagreement": disagreement,
    "entropy": entropy,
    "k_center": k_center,
}


def selector(name: str) -> Selector:
    """The selector of this name.

    Raises:
        UnknownName: there is none.
    """
    if name not in SELECTORS:
        raise UnknownName("selector", name, SELECTORS)
    return SELECTORS[name]
