"""Statistics of returns: of whole episodes, for reports; discounted, to scale rewards.

T: steps of a rollout, N: environments.
"""

from collections import deque
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Float32

from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.common.state_dict import StateDict
from rl_teacher.envs.rollout import Rollout


class EpisodeReturns:
    """Returns and lengths of the latest complete episodes of N environments."""

    def __init__(self, num_envs: int, *, starts_at_reset: bool, window: int = 100) -> None:
        """Start with new episodes.

        Args:
            num_envs: number of environments N.
            starts_at_reset: False if the first episodes start at a later age (see `stagger` of
                Collector); they are incomplete and are left out.
            window: number of episodes that are kept.
        """
        self._running = np.zeros(num_envs)
        self._ages = np.zeros(num_envs, np.int64)
        self._is_complete = np.full(num_envs, starts_at_reset)
        self.returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        self.num_finished = 0

    def restart(self, *, starts_at_reset: bool) -> None:
        """Discard the running episodes: the environments start new ones."""
        self._running[:], self._ages[:] = 0.0, 0
        self._is_complete[:] = starts_at_reset

    def observe(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> None:
        """Add the rewards of a rollout."""
        rewards = np.where(rollout.is_valid, rewards, 0.0)
        for rewards_t, ended_t, valid_t in zip(
            rewards, rollout.ended, rollout.is_valid, strict=True
        ):
            self._running += rewards_t
            self._ages += valid_t
            if ended_t.any():
                is_counted = ended_t & self._is_complete
                self.returns.extend(self._running[is_counted].tolist())
                self.lengths.extend(self._ages[is_counted].tolist())
                self.num_finished += int(is_counted.sum())
                self._running[ended_t] = 0.0
                self._ages[ended_t] = 0
                self._is_complete[ended_t] = True

    def mean_return(self, latest: int = 100) -> float:
        """Return the mean return of the latest episodes; NaN before the first."""
        return float(np.mean(list(self.returns)[-latest:])) if self.returns else float("nan")

    def mean_steps(self, latest: int = 100) -> float:
        """Return the mean length of the latest episodes; NaN before the first."""
        return float(np.mean(list(self.lengths)[-latest:])) if self.lengths else float("nan")

    def recent(self, latest: int) -> tuple[float, float]:
        """Return the mean return and the mean length of the latest episodes.

        Before the first has ended, they are those of the running episodes so far; NaN before the
        first step.
        """
        if not self.returns and self._ages.any():
            return float(self._running.mean()), float(self._ages.mean())
        return self.mean_return(latest), self.mean_steps(latest)

    def state(self) -> StateDict:
        """Return everything needed to continue exactly."""
        return {
            "running": self._running,
            "ages": self._ages,
            "is_complete": self._is_complete,
            "returns": np.asarray(self.returns, np.float64),
            "lengths": np.asarray(self.lengths, np.int64),
            "num_finished": np.asarray(self.num_finished),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self._running, self._ages = state["running"].copy(), state["ages"].copy()
        self._is_complete = state["is_complete"].copy()
        self.returns.extend(state["returns"].tolist())
        self.lengths.extend(state["lengths"].tolist())
        self.num_finished = int(state["num_finished"])


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
            # R_t = gamma * R_{t-1} + r_t, within an episode
            self._returns = self._returns * self._gamma + rewards_t
            returns[t] = self._returns
            self._returns[ended[t] | ~is_valid[t]] = 0.0
        self._stats.update(returns[is_valid])
        # Only scaled, not centred: a shift would change which policy is optimal.
        scaled = rewards / self._stats.std
        return np.clip(scaled, -self._clip, self._clip).astype(np.float32)

    def load_scale(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over the statistics of another scaler, but not its unfinished episodes."""
        self._stats.load_state(state)

    def state(self) -> StateDict:
        """Return everything needed to continue exactly."""
        return {"returns": self._returns, **self._stats.state()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self._returns = state["returns"].copy()
        self._stats.load_state(state)
