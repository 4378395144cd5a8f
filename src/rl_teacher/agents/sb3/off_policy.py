"""Adapter for off-policy algorithms of other libraries, such as SAC, TD3 and DQN.

T: steps of a rollout, N: environments.
"""

from collections.abc import Mapping

import gymnasium as gym
import numpy as np
from jaxtyping import Float, Shaped
from stable_baselines3.common.buffers import DictReplayBuffer

from rl_teacher.agents.actions import Masks
from rl_teacher.agents.agent import RewardFunction
from rl_teacher.agents.sb3.adapter import LibraryAgent
from rl_teacher.agents.sb3.replay import BufferRows, buffer_state, load_buffer, relabel
from rl_teacher.common.errors import BadConfig
from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.config.agents import OtherAgentConfig
from rl_teacher.envs.rollout import Rollout


class OffPolicyLibraryAgent(LibraryAgent):
    """Adapter that fills the replay buffer of an algorithm and calls its `train`."""

    def __init__(
        self,
        name: str,
        observation_space: gym.Space,
        action_space: gym.Space,
        settings: OtherAgentConfig,
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        """Create an agent; see `LibraryAgent`."""
        super().__init__(
            name, observation_space, action_space, settings, total_steps=total_steps, seed=seed
        )
        unit = self.algorithm.train_freq.unit.value
        buffer = self.algorithm.replay_buffer
        if unit != "step":
            raise BadConfig(
                f"--other.arguments train_freq={self._arguments.get('train_freq')} was given, but "
                "rollouts are counted in steps here. Use an integer, such as train_freq=1."
            )
        if isinstance(buffer, DictReplayBuffer) or buffer.optimize_memory_usage:
            raise BadConfig(
                f"{name} uses a {type(buffer).__name__}, which is not supported here. Remove the "
                "arguments replay_buffer_class and optimize_memory_usage."
            )
        self.rollout_steps = int(self.algorithm.train_freq.frequency)
        self._buffer_actions: list[np.ndarray] = []

    def _normalise(self, observations: Shaped[np.ndarray, "..."]) -> np.ndarray:
        return observations

    # --- acting ---

    def act(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """Return exploratory actions; record them in the form that the replay buffer stores."""
        self._mask_arguments(masks)
        algorithm = self.algorithm
        algorithm._last_obs = observations
        with self._randomness.in_use():
            actions, buffer_actions = algorithm._sample_action(
                algorithm.learning_starts, algorithm.action_noise, self._num_envs
            )
            self._advance(self._num_envs)
            algorithm._on_step()
        self._buffer_actions.append(buffer_actions)
        return self._to_environment(actions)

    # --- learning ---

    def observe(self, rollout: Rollout) -> None:
        """Do nothing: without rewards there is nothing to learn."""

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Store a rollout with the given rewards, and take gradient steps on samples."""
        algorithm = self.algorithm
        rows, self._buffer_actions = (
            BufferRows.of(rollout, rewards, np.stack(self._buffer_actions)),
            [],
        )
        rows.add_to(algorithm.replay_buffer)
        self._advance(
            rollout.num_steps - rollout.is_valid.size
        )  # steps that only reset do not count
        gradient_steps = algorithm.gradient_steps
        if gradient_steps < 0:
            gradient_steps = rollout.num_steps
        if gradient_steps > 0 and algorithm.num_timesteps > algorithm.learning_starts:
            with self._randomness.in_use():
                algorithm.train(gradient_steps=gradient_steps, batch_size=algorithm.batch_size)
        return self._metrics()

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Recompute all stored rewards."""
        buffer = self.algorithm.replay_buffer
        relabel(buffer, self._action_space, reward_fn, self._first_action)

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
