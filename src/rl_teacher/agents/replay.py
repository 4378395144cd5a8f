"""What an off-policy agent remembers: a ring of steps, and what each is worth by now.

C: capacity, D: features of an observation, A: action dimensions.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float32, Int, Shaped

from rl_teacher.agents.agent import RewardFunction
from rl_teacher.common.state_dict import StateDict
from rl_teacher.envs.rollout import Rollout

CHUNK = 2048
"""Steps that are looked at anew at a time: what a predictor makes of them stays in the caches."""


class ReplayBuffer:
    """The latest C steps, without their order; steps that were only resets are left out.

    Attributes:
        num_added: steps that were ever remembered.
    """

    def __init__(
        self, capacity: int, observation_shape: tuple[int, ...], action_shape: tuple[int, ...]
    ) -> None:
        """Begin with nothing. Memory is taken as it fills."""
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
        """Steps that are remembered now."""
        return min(self.num_added, self.capacity)

    @property
    def rewards(self) -> Float32[np.ndarray, " step"]:
        """What each remembered step is worth by now."""
        return self._columns["rewards"][: len(self)]

    @property
    def observations(self) -> Float32[np.ndarray, "step ..."]:
        """What was seen before each remembered step."""
        return self._columns["observations"][: len(self)]

    def add(self, rollout: Rollout, rewards: Shaped[np.ndarray, "time env"]) -> None:
        """Remember a rollout's valid steps in place of the oldest."""
        is_valid = rollout.is_valid
        lived = {
            "observations": rollout.observations[is_valid],
            "actions": rollout.actions[is_valid],
            "rewards": rewards[is_valid],
            "next_observations": rollout.next_observations[is_valid],
            "terminated": rollout.terminated[is_valid],
        }
        num = len(lived["rewards"])
        kept = min(num, self.capacity)
        places = (self.num_added + np.arange(num - kept, num)) % self.capacity
        for name, column in self._columns.items():
            column[places] = lived[name][num - kept :]
        self.num_added += num

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Give every remembered step the reward that it is worth by now.

        Source: PEBBLE (Lee, Smith, Abbeel 2021), section 4.3, "relabeling the replay buffer".
        """
        observations, actions = self._columns["observations"], self._columns["actions"]
        for start in range(0, len(self), CHUNK):
            steps = slice(start, min(start + CHUNK, len(self)))
            self._columns["rewards"][steps] = reward_fn(observations[steps], actions[steps])

    def gather(self, places: Int[np.ndarray, "..."]) -> dict[str, np.ndarray]:
        """The remembered steps in these places: each column as [..., *its shape]."""
        return {name: column[places] for name, column in self._columns.items()}

    def state(self) -> StateDict:
        """Everything needed to go on exactly; only the part that is filled."""
        filled = {name: column[: len(self)].copy() for name, column in self._columns.items()}
        return filled | {"num_added": np.asarray(self.num_added)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state of a buffer with this capacity."""
        self.num_added = int(state["num_added"])
        for name, column in self._columns.items():
            column[: len(self)] = state[name]
