"""Intrinsic reward before there are labels: the entropy of the visited states.

Source: PEBBLE (Lee, Smith, Abbeel 2021), section 4.1. The particle estimator of the entropy is due
to Singh et al. (2003) and was used for exploration by APT (Liu and Abbeel 2021).
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Float32, Int

from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.common.state_dict import StateDict

NEIGHBOUR = 5
"""k of the k-nearest-neighbour estimator."""
CHUNK = 2048
"""States whose distances are computed at a time, which bounds the memory."""


def neighbour_distances(
    states: Float32[np.ndarray, "state features"],
    indices: Int[np.ndarray, " state"],
    others: Float32[np.ndarray, "other features"],
    other_indices: Int[np.ndarray, " other"],
    k: int = NEIGHBOUR,
) -> Float32[np.ndarray, " state"]:
    """Compute the distance of each state to its k-th nearest neighbour.

    If there are fewer than k others, the distance to the farthest is taken.

    Args:
        states: [S, D]
        indices: [S] buffer indices of the states; a state is not its own neighbour.
        others: [O, D]
        other_indices: [O] buffer indices of the others.
        k: which neighbour.
    """
    # |x - y|^2 = |x|^2 - 2 x.y + |y|^2
    squares = (states**2).sum(-1)[:, None] - 2 * (states @ others.T) + (others**2).sum(-1)[None]
    squares[indices[:, None] == other_indices[None]] = np.inf
    kth = min(k, max(len(others) - 1, 1)) - 1
    nearest = np.partition(squares, kth, axis=-1)[:, kth]
    nearest = np.where(np.isfinite(nearest), nearest, 0.0)
    # Rounding can make the difference slightly negative.
    return np.sqrt(np.maximum(nearest, 0.0)).astype(np.float32)


class StateEntropy:
    """The intrinsic reward log(1 + distance to the k-th nearest state), divided by its std."""

    def __init__(self, num_others: int) -> None:
        """Create the reward.

        Args:
            num_others: number of random states with which each state is compared; 0: all.
        """
        self._num_others = num_others
        self._stats = RunningMeanStd(())

    def __call__(
        self,
        buffer: Float[np.ndarray, "step features"],
        indices: Int[np.ndarray, "..."],
        rng: np.random.Generator,
    ) -> Float32[np.ndarray, "..."]:
        """Return the rewards of states, after updating the running std with them.

        Args:
            buffer: [C, D] all states, normalised so that features are comparable.
            indices: [...] which of them are rewarded.
            rng: random generator that selects the states for comparison.
        """
        num = len(buffer)
        is_part = 0 < self._num_others < num
        others = rng.choice(num, self._num_others, replace=False) if is_part else np.arange(num)
        # Minibatches repeat states, so that each distance is computed once.
        unique, inverse = np.unique(indices, return_inverse=True)
        distances = [
            neighbour_distances(buffer[part], part, buffer[others], others)
            for part in np.split(unique, range(CHUNK, len(unique), CHUNK))
        ]
        entropies = np.log1p(np.concatenate(distances))[inverse].reshape(indices.shape)
        self._stats.update(entropies.ravel())
        return (entropies / self._stats.std).astype(np.float32)

    def state(self) -> StateDict:
        """Return everything needed to continue exactly."""
        return self._stats.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self._stats.load_state(state)
