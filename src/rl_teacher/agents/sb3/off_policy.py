"""Adapter for off-policy algorithms of other libraries, such as SAC, TD3 and DQN.

T: steps of a rollout, N: environments.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from stable_baselines3.common.buffers import DictReplayBuffer

from rl_teacher.agents.actions import EnvArray, Masks
from rl_teacher.agents.agent import RewardFunction
from rl_teacher.agents.sb3.adapter import LibraryAgent
from rl_teacher.agents.sb3.replay import add_rollout, buffer_state, load_buffer, relabel
from rl_teacher.common.errors import BadConfig
from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.envs.rollout import Rollout


class OffPolicyLibraryAgent(LibraryAgent):
    """Adapter that fills the replay buffer of an algorithm and calls its `train`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create an agent; see `LibraryAgent`.

        Raises:
            BadConfig: `train_freq` counts episodes, or the replay buffer is of an unknown kind.
        """
        super().__init__(*args, **kwargs)
        unit = self.algorithm.train_freq.unit.value
        buffer = self.algorithm.replay_buffer
        if unit != "step":
            raise BadConfig(
                f"--other.arguments train_freq={self._arguments.get('train_freq')} was given, but "
                "rollouts are counted in steps here. Use an integer, such as train_freq=1."
            )
        if isinstance(buffer, DictReplayBuffer) or buffer.optimize_memory_usage:
            raise BadConfig(
                f"{self.name} uses a {type(buffer).__name__}, which is not supported here. Remove "
                "the arguments replay_buffer_class and optimize_memory_usage."
            )
        self.rollout_steps = int(self.algorithm.train_freq.frequency)
        self._buffer_actions: list[np.ndarray] = []

    # --- acting ---

    def act(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Return exploratory actions; record them in the form that the replay buffer stores."""
        self.mask_arguments(masks)
        algorithm = self.algorithm
        algorithm._last_obs = self.normalise(observations)
        with self.running():
            actions, buffer_actions = algorithm._sample_action(
                algorithm.learning_starts, algorithm.action_noise, self._num_envs
            )
            self._advance(self._num_envs)
            algorithm._on_step()
        self._buffer_actions.append(buffer_actions)
        return self.to_environment(actions)

    # --- learning ---

    def observe(self, rollout: Rollout) -> None:
        """Do nothing: without rewards there is nothing to learn."""

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Store a rollout with the given rewards, and take gradient steps on samples."""
        algorithm = self.algorithm
        add_rollout(algorithm.replay_buffer, rollout, rewards, np.stack(self._buffer_actions))
        self._buffer_actions = []
        # `act` has counted steps that only reset an environment; they are subtracted.
        self._advance(rollout.num_steps - rollout.is_valid.size)
        gradient_steps = algorithm.gradient_steps
        if gradient_steps < 0:
            gradient_steps = rollout.num_steps
        if gradient_steps > 0 and algorithm.num_timesteps > algorithm.learning_starts:
            with self.running():
                algorithm.train(gradient_steps=gradient_steps, batch_size=algorithm.batch_size)
            self.check_parameters()
        return self._metrics()

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Recompute all stored rewards."""
        shape = self._observation_space.shape or ()

        def with_shape(observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
            return reward_fn(observations.reshape(*observations.shape[:2], *shape), actions)

        buffer = self.algorithm.replay_buffer
        relabel(buffer, self._action_space, with_shape, self._first_action)

    def reinitialise(self) -> None:
        """Create new networks and optimisers; keep the replay buffer."""
        buffer = self.algorithm.replay_buffer
        self._reconstruct()
        self.algorithm.replay_buffer = buffer

    # --- saving ---

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, between two rollouts."""
        return {**super().state(), **nest({"replay": buffer_state(self.algorithm.replay_buffer)})}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        super().load_state(state)
        load_buffer(self.algorithm.replay_buffer, part_of(state, "replay"))
        self._buffer_actions = []
