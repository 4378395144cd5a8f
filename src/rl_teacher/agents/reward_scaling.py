"""The scale of rewards that an agent learns from."""

import numpy as np
from jaxtyping import Bool, Float, Float32

from rl_teacher.common.running_stats import RunningMeanStd


class ReturnScaler:
    """Divides rewards by the running spread of their discounted return, and clips.

    Source: the reward half of OpenAI baselines' and Stable-Baselines3's VecNormalize. Any positive
    rescaling of the reward then teaches the agent at the same pace.
    """

    def __init__(self, num_envs: int, discount: float, limit: float = 10.0) -> None:
        self._moments = RunningMeanStd(())
        self._returns = np.zeros(num_envs)
        self._discount = discount
        self._limit = limit

    def __call__(
        self,
        rewards: Float[np.ndarray, "time env"],
        ended: Bool[np.ndarray, "time env"],
        is_valid: Bool[np.ndarray, "time env"],
    ) -> Float32[np.ndarray, "time env"]:
        """[T, N] scaled rewards; takes the new returns into account first."""
        returns = np.empty(rewards.shape)
        for t, rewards_t in enumerate(rewards):
            self._returns = self._returns * self._discount + rewards_t
            returns[t] = self._returns
            self._returns[ended[t] | ~is_valid[t]] = 0.0
        self._moments.update(returns[is_valid])
        scaled = rewards / self._moments.std
        return np.clip(scaled, -self._limit, self._limit).astype(np.float32)

    def adopt(self, state: dict[str, np.ndarray]) -> None:
        """Take over another's scale, and begin with episodes of one's own."""
        self._moments.load_state(state)

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on exactly."""
        return {"returns": self._returns, **self._moments.state()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        self._returns = state["returns"].copy()
        self._moments.load_state(state)
