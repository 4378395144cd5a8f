"""Normalisation of predicted rewards over a recent window, separately for each member."""

from collections import deque

import numpy as np
from jaxtyping import Float, Float32

from rl_teacher.common.state_dict import StateDict


class WindowedMeanStd:
    """Mean and standard deviation of each member's rewards over the latest steps.

    A window in place of all time, because statistics over all time lag ever further behind a
    predictor and an agent that keep changing.

    M: members, S: steps.
    """

    def __init__(self, num_members: int, window_steps: int) -> None:
        self._window_steps = window_steps
        self._num_members = num_members
        self._batches: deque[np.ndarray] = deque()  # each [3, M]: count, sum, sum of squares

    def update(self, rewards: Float[np.ndarray, "member step"]) -> None:
        """Add a batch [M, S] of raw rewards and drop batches that left the window."""
        rewards = rewards.astype(np.float64)
        count = np.full(self._num_members, float(rewards.shape[1]))
        self._batches.append(np.stack([count, rewards.sum(1), (rewards**2).sum(1)]))
        total = sum(batch[0, 0] for batch in self._batches)
        while len(self._batches) > 1 and total - self._batches[0][0, 0] >= self._window_steps:
            total -= self._batches.popleft()[0, 0]

    def clear(self) -> None:
        """Empty the window."""
        self._batches.clear()

    @property
    def mean_and_std(self) -> tuple[Float[np.ndarray, " member"], Float[np.ndarray, " member"]]:
        """[M] mean and [M] standard deviation; 0 and 1 while the window is empty."""
        if not self._batches:
            return np.zeros(self._num_members), np.ones(self._num_members)
        count, total, squares = np.sum(self._batches, axis=0)
        mean = total / count
        # Var[r] = E[r^2] - E[r]^2
        variance = np.maximum(squares / count - mean**2, 0.0)
        # The lower bound keeps a constant predictor from having its rounding errors amplified.
        return mean, np.maximum(np.sqrt(variance), 1e-6)

    def normalise(
        self,
        rewards: Float32[np.ndarray, "member *batch"],
        std: float,
        *,
        keeps_zero: bool = False,
    ) -> Float[np.ndarray, "*batch"]:
        """Normalise each member's rewards and average over members.

        Args:
            rewards: [M, ...] raw rewards.
            std: standard deviation to scale to.
            keeps_zero: scale the root mean square to `std` and do not shift.
        """
        mean, spread = self.mean_and_std
        if keeps_zero:
            # E[r^2] = E[r]^2 + Var[r]
            mean, spread = np.zeros_like(mean), np.sqrt(mean**2 + spread**2)
        shape = (self._num_members, *[1] * (rewards.ndim - 1))
        return (std * (rewards - mean.reshape(shape)) / spread.reshape(shape)).mean(0)

    def state(self) -> StateDict:
        """Return the arrays of a checkpoint."""
        empty = np.empty((0, 3, self._num_members))
        return {"batches": np.stack(self._batches) if self._batches else empty}

    def load_state(self, state: StateDict) -> None:
        """Restore the arrays of a checkpoint."""
        self._batches = deque(state["batches"])
