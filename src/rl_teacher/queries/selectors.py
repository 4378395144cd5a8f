"""Query selection: the most informative of many candidate pairs.

M: members of the ensemble, C: candidate pairs.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int64

from rl_teacher.common.errors import UnknownName

Chances = Float[np.ndarray, "member candidate"]
"""[M, C] each member's probability that the left segment of a candidate pair is preferred."""
Selector = Callable[[Chances, int, np.random.Generator], Int64[np.ndarray, " chosen"]]


def uniform(chances: Chances, num: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:
    """Select at random."""
    return rng.permutation(chances.shape[1])[:num]


def disagreement(
    chances: Chances,
    num: int,
    rng: np.random.Generator,  # noqa: ARG001
) -> Int64[np.ndarray, " chosen"]:
    """Select where the members' probabilities vary most (Christiano et al. 2017, 2.2.4)."""
    # Of probabilities and not of logits: members that agree on a clear preference may have very
    # different logits.
    return np.argsort(-chances.var(axis=0), kind="stable")[:num]


SELECTORS: dict[str, Selector] = {"uniform": uniform, "disagreement": disagreement}


def selector(name: str) -> Selector:
    """Return the selector of a name.

    Raises:
        UnknownName: no selector has this name.
    """
    if name not in SELECTORS:
        raise UnknownName("selector", name, SELECTORS)
    return SELECTORS[name]
