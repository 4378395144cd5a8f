"""Replay buffer of SAC, whose rewards can be recomputed.

C: capacity, D: features of an observation, A: action dimensions.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float32, Int, Shaped

from rl_teacher.agents.agent import RewardFunction
from rl_teacher.common.state_dict import StateDict
from rl_teacher.envs.rollout import Rollout

CHUNK = 2048
"""Steps that are relabelled at a time, so that the predictor's activations fit into the caches."""


class ReplayBuffer:
    """A ring buffer of the latest C valid steps.

    Attributes:
        num_added: number of steps that were ever added.
    """

    def __init__(
        self, capacity: int, observation_shape: tuple[int, ...], action_shape: tuple[int, ...]
    ) -> None:
        """Create an empty buffer; the system provides its memory only as it fills."""
        self.capacity = capacity
        self.num_added = 0
        self._columns: dict[str, np.ndarray] = {
            "observations": np.empty((capacity, *observation_shape), np.float32),
            "actions": np.empty((capacity, *action_shape), np.float32),
            "rewards": np.empty(capacity, np.float32),
            "next_observations": np.empty((capacity, *observation_shape), np.float32),
            "terminated": np.empty(capacity, bool),
        }

    def __len__(self) -> int:
        """Return the number of stored steps."""
        return min(self.num_added, self.capacity)

    @property
    def observations(self) -> Float32[np.ndarray, "step ..."]:
        """Observations of the stored steps."""
        return self._columns["observations"][: len(self)]

    def add(self, rollout: Rollout, rewards: Shaped[np.ndarray, "time env"]) -> None:
        """Store the valid steps of a rollout in place of the oldest ones."""
        is_valid = rollout.is_valid
        steps = {
            "observations": rollout.observations[is_valid],
            "actions": rollout.actions[is_valid],
            "rewards": rewards[is_valid],
            "next_observations": rollout.next_observations[is_valid],
            "terminated": rollout.terminated[is_valid],
        }
        num = len(steps["rewards"])
        kept = min(num, self.capacity)
        indices = (self.num_added + np.arange(num - kept, num)) % self.capacity
        for name, column in self._columns.items():
            column[indices] = steps[name][num - kept :]
        self.num_added += num

    def relabel(self, reward_fn: RewardFunction) -> None:
        """Recompute the rewards of all stored steps (PEBBLE, Lee, Smith, Abbeel 2021, sec. 4.3)."""
        observations, actions = self._columns["observations"], self._columns["actions"]
        for start in range(0, len(self), CHUNK):
            steps = slice(start, min(start + CHUNK, len(self)))
            self._columns["rewards"][steps] = reward_fn(observations[steps], actions[steps])

    def gather(self, indices: Int[np.ndarray, "..."]) -> dict[str, np.ndarray]:
        """Return the steps at these indices, each column as [..., *its shape]."""
        return {name: column[indices] for name, column in self._columns.items()}

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, without the unfilled part."""
        filled = {name: column[: len(self)].copy() for name, column in self._columns.items()}
        return filled | {"num_added": np.asarray(self.num_added)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the saved state of a buffer with this capacity."""
        self.num_added = int(state["num_added"])
        for name, column in self._columns.items():
            column[: len(self)] = state[name]
