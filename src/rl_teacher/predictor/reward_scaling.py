"""Bringing predicted rewards to a known scale, member by member."""

from collections import deque

import numpy as np
from jaxtyping import Float, Float32

from rl_teacher.common.state_dict import StateDict


class RecentMoments:
    """Mean and standard deviation of each member's rewards over the latest steps.

    Note: the predecessors kept these over all time, so that the scale drifted ever more slowly
    behind a predictor and an agent that had both moved on. A window forgets.
    """

    def __init__(self, num_members: int, window_steps: int) -> None:
        self._window_steps = window_steps
        self._num_members = num_members
        self._batches: deque[np.ndarray] = deque()  # each [3, M]: count, sum, sum of squares

    def update(self, rewards: Float[np.ndarray, "member step"]) -> None:
        """Take in each member's raw rewards for the same S steps; forget the oldest."""
        rewards = rewards.astype(np.float64)
        count = np.full(self._num_members, float(rewards.shape[1]))
        self._batches.append(np.stack([count, rewards.sum(1), (rewards**2).sum(1)]))
        total = sum(batch[0, 0] for batch in self._batches)
        while len(self._batches) > 1 and total - self._batches[0][0, 0] >= self._window_steps:
            total -= self._batches.popleft()[0, 0]

    def forget(self) -> None:
        """Begin anew."""
        self._batches.clear()

    @property
    def mean_and_std(self) -> tuple[Float[np.ndarray, " member"], Float[np.ndarray, " member"]]:
        """[M] and [M]; 0 and 1 before anything was seen."""
        if not self._batches:
            return np.zeros(self._num_members), np.ones(self._num_members)
        count, total, squares = np.sum(self._batches, axis=0)
        mean = total / count
        variance = np.maximum(squares / count - mean**2, 0.0)
        # Note: a predictor that tells nothing apart must not have its rounding errors blown up.
        return mean, np.maximum(np.sqrt(variance), 1e-6)

    def normalise(
        self,
        rewards: Float32[np.ndarray, "member *batch"],
        std: float,
        *,
        keeps_zero: bool = False,
    ) -> Float[np.ndarray, "*batch"]:
        """Each member's rewards to mean 0 and the given std, then the mean over members.

        Args:
            rewards: raw ones.
            std: the spread wanted.
            keeps_zero: leave the zero where it is, and bring the root of the mean square to `std`.
        """
        mean, spread = self.mean_and_std
        if keeps_zero:
            mean, spread = np.zeros_like(mean), np.sqrt(mean**2 + spread**2)
        shape = (self._num_members, *[1] * (rewards.ndim - 1))
        return (std * (rewards - mean.reshape(shape)) / spread.reshape(shape)).mean(0)

    def state(self) -> StateDict:
        """Everything needed to go on exactly."""
        empty = np.empty((0, 3, self._num_members))
        return {"batches": np.stack(self._batches) if self._batches else empty}

    def load_state(self, state: StateDict) -> None:
        """Go on from a saved state."""
        self._batches = deque(state["batches"])
