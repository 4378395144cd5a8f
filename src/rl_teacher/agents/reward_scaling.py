"""Scaling of the rewards that an agent learns from."""

import numpy as np
from jaxtyping import Bool, Float, Float32

from rl_teacher.common.running_stats import RunningMeanStd


class ReturnScaler:
    """Divides rewards by the running std of discounted returns, and clips them.

    It makes learning invariant to positive rescaling of the reward.

    Source: the reward part of VecNormalize in OpenAI baselines and Stable-Baselines3.
    """

    def __init__(self, num_envs: int, gamma: float, clip: float = 10.0) -> None:
        self._stats = RunningMeanStd(())
        self._returns = np.zeros(num_envs)
        self._gamma = gamma
        self._clip = clip

    def __call__(
        self,
        rewards: Float[np.ndarray, "time env"],
        ended: Bool[np.ndarray, "time env"],
        is_valid: Bool[np.ndarray, "time env"],
    ) -> Float32[np.ndarray, "time env"]:
        """Return [T, N] scaled rewards, after updating the std with the new returns."""
        returns = np.empty(rewards.shape)
        for t, rewards_t in enumerate(rewards):
            # R_t = gamma * R_{t-1} + r_t
            self._returns = self._returns * self._gamma + rewards_t
            returns[t] = self._returns
            self._returns[ended[t] | ~is_valid[t]] = 0.0
        self._stats.update(returns[is_valid])
        scaled = rewards / self._stats.std
        return np.clip(scaled, -self._clip, self._clip).astype(np.float32)

    def load_scale(self, state: dict[str, np.ndarray]) -> None:
        """Take over the statistics of another scaler, but not its unfinished episodes."""
        self._stats.load_state(state)

    def state(self) -> dict[str, np.ndarray]:
        """Return everything needed to continue exactly."""
        return {"returns": self._returns, **self._stats.state()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self._returns = state["returns"].copy()
        self._stats.load_state(state)
