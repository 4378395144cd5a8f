"""Returns and lengths of episodes, for any reward."""

from collections import deque
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

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

    def observe(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> None:
        """Add the rewards of a rollout."""
        rewards = np.where(rollout.is_valid, rewards, 0.0)
        for rewards_t, ended_t, valid_t in zip(
            rewards, rollout.ended, rollout.is_valid, strict=True
        ):
            self._running += rewards_t
            self._ages += valid_t
            if ended_t.any():
                self._finish_episodes(ended_t)

    def _finish_episodes(self, ended: np.ndarray) -> None:
        complete = ended & self._is_complete
        self.returns.extend(float(x) for x in self._running[complete])
        self.lengths.extend(int(x) for x in self._ages[complete])
        self.num_finished += int(complete.sum())
        self._running[ended] = 0.0
        self._ages[ended] = 0
        self._is_complete[ended] = True

    def mean_return(self, latest: int = 100) -> float:
        """Return the mean return of the latest episodes; NaN before the first."""
        return float(np.mean(list(self.returns)[-latest:])) if self.returns else float("nan")

    def mean_steps(self, latest: int = 100) -> float:
        """Return the mean length of the latest episodes; NaN before the first."""
        return float(np.mean(list(self.lengths)[-latest:])) if self.lengths else float("nan")

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
