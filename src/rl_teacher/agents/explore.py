"""Exploration before there are labels: states that are far from all others are worth visiting.

Source: PEBBLE (Lee, Smith, Abbeel 2021), section 4.1; the particle estimate of the entropy of
states is that of Singh et al. (2003), as APT has it (Liu and Abbeel 2021).
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Float32, Int

from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.common.state_dict import StateDict

NEIGHBOUR = 5
"""k: the reward is by the distance to the k-th nearest state."""
CHUNK = 2048
"""States whose distances are worked out at a time."""


def neighbour_distances(
    states: Float32[np.ndarray, "state features"],
    places: Int[np.ndarray, " state"],
    others: Float32[np.ndarray, "other features"],
    other_places: Int[np.ndarray, " other"],
    neighbour: int = NEIGHBOUR,
) -> Float32[np.ndarray, " state"]:
    """How far each state's k-th nearest among the others is; of fewer others, the farthest.

    Args:
        states: [S, D]
        places: [S] which of the remembered states each is: none is its own neighbour.
        others: [O, D]
        other_places: [O]
        neighbour: k.
    """
    # |x - y|^2 = |x|^2 - 2 x.y + |y|^2
    squares = (states**2).sum(-1)[:, None] - 2 * (states @ others.T) + (others**2).sum(-1)[None]
    squares[places[:, None] == other_places[None]] = np.inf
    kth = min(neighbour, max(len(others) - 1, 1)) - 1
    nearest = np.partition(squares, kth, axis=-1)[:, kth]
    nearest = np.where(np.isfinite(nearest), nearest, 0.0)
    return np.sqrt(np.maximum(nearest, 0.0)).astype(np.float32)


class StateEntropy:
    """The intrinsic reward: log(1 + distance to the k-th nearest state), over its spread so far."""

    def __init__(self, num_others: int) -> None:
        """Begin with no spread.

        Args:
            num_others: remembered states, drawn at random, that each is compared with; 0: all.
        """
        self._num_others = num_others
        self._moments = RunningMeanStd(())

    def __call__(
        self,
        remembered: Float[np.ndarray, "step features"],
        places: Int[np.ndarray, "..."],
        rng: np.random.Generator,
    ) -> Float32[np.ndarray, "..."]:
        """Rewards of the remembered states in these places; takes them into the spread first.

        Args:
            remembered: [C, D] every state there is, normalised so that its features compare.
            places: [...] which of them are rewarded.
            rng: draws whom they are compared with.
        """
        num = len(remembered)
        is_part = 0 < self._num_others < num
        others = rng.choice(num, self._num_others, replace=False) if is_part else np.arange(num)
        asked, back = np.unique(places, return_inverse=True)
        distances = [
            neighbour_distances(remembered[part], part, remembered[others], others)
            for part in np.split(asked, range(CHUNK, len(asked), CHUNK))
        ]
        entropies = np.log1p(np.concatenate(distances))[back].reshape(places.shape)
        self._moments.update(entropies.ravel())
        return (entropies / self._moments.std).astype(np.float32)

    def state(self) -> StateDict:
        """Everything needed to go on exactly."""
        return self._moments.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        self._moments.load_state(dict(state))
