"""Adding rewards up over episodes, whatever rewards they are."""

from collections import deque
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from rl_teacher.common.state_dict import StateDict
from rl_teacher.envs.rollout import Rollout


class EpisodeReturns:
    """The returns of the latest whole episodes of N environments."""

    def __init__(self, num_envs: int, *, begins_whole: bool, remembered: int = 100) -> None:
        """Begin with new episodes.

        Args:
            num_envs: N.
            begins_whole: False where the first episodes begin at some later age (see
                Collector's `stagger`): they are shorter than a whole one, and are left out.
            remembered: how many of the latest episodes are kept.
        """
        self._running = np.zeros(num_envs)
        self._ages = np.zeros(num_envs, np.int64)
        self._is_whole = np.full(num_envs, begins_whole)
        self.returns: deque[float] = deque(maxlen=remembered)
        self.lengths: deque[int] = deque(maxlen=remembered)
        self.num_finished = 0

    def observe(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> None:
        """Add up a rollout's rewards."""
        rewards = np.where(rollout.is_valid, rewards, 0.0)
        for rewards_t, ended_t, valid_t in zip(
            rewards, rollout.ended, rollout.is_valid, strict=True
        ):
            self._running += rewards_t
            self._ages += valid_t
            if ended_t.any():
                self._finish(ended_t)

    def _finish(self, ended: np.ndarray) -> None:
        whole = ended & self._is_whole
        self.returns.extend(float(x) for x in self._running[whole])
        self.lengths.extend(int(x) for x in self._ages[whole])
        self.num_finished += int(whole.sum())
        self._running[ended] = 0.0
        self._ages[ended] = 0
        self._is_whole[ended] = True

    def mean_return(self, latest: int = 100) -> float:
        """Over the latest episodes; NaN before the first."""
        return float(np.mean(list(self.returns)[-latest:])) if self.returns else float("nan")

    def mean_steps(self, latest: int = 100) -> float:
        """Over the latest episodes; NaN before the first."""
        return float(np.mean(list(self.lengths)[-latest:])) if self.lengths else float("nan")

    def state(self) -> StateDict:
        """Everything needed to go on exactly."""
        return {
            "running": self._running,
            "ages": self._ages,
            "is_whole": self._is_whole,
            "returns": np.asarray(self.returns, np.float64),
            "lengths": np.asarray(self.lengths, np.int64),
            "num_finished": np.asarray(self.num_finished),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        self._running, self._ages = state["running"].copy(), state["ages"].copy()
        self._is_whole = state["is_whole"].copy()
        self.returns.extend(state["returns"].tolist())
        self.lengths.extend(state["lengths"].tolist())
        self.num_finished = int(state["num_finished"])
