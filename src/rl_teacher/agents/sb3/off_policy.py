"""Adapter for off-policy algorithms of other libraries, such as SAC, TD3 and DQN.

T: steps of a rollout, N: environments.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from jaxtyping import Float
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from rl_teacher.agents.actions import EnvArray, Masks
from rl_teacher.agents.agent import RewardFunction
from rl_teacher.agents.sb3.adapter import LibraryAgent
from rl_teacher.common.errors import BadConfig
from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.envs.rollout import Rollout

COLUMNS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
"""Columns of a replay buffer, in the order of the arguments of its `add`."""
CHUNK = 65_536
"""Steps that are relabelled at a time, which bounds the memory."""


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
        self.rollout_steps = self.algorithm.train_freq.frequency
        self._num_random_steps: int = self.algorithm.learning_starts
        self._buffer_actions: list[np.ndarray] = []

    # --- acting ---

    def act(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Return exploratory actions; record them in the form that the replay buffer stores."""
        self.mask_arguments(masks)
        algorithm = self.algorithm
        algorithm._last_obs = self.normalise(observations)
        self.resample_exploration(len(self._buffer_actions))
        with self.running():
            actions, buffer_actions = algorithm._sample_action(
                self._num_random_steps, algorithm.action_noise, self._num_envs
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
        """Recompute all stored rewards (PEBBLE, Lee et al. 2021, section 4.3)."""
        buffer, space = self.algorithm.replay_buffer, self._action_space
        num_rows = max(CHUNK // buffer.n_envs, 1)
        for begin in range(0, buffer.size(), num_rows):
            part = slice(begin, min(begin + num_rows, buffer.size()))
            observations, actions = buffer.observations[part], buffer.actions[part]
            leading = actions.shape[:2]
            observations = observations.reshape(*leading, *(self._observation_space.shape or ()))
            actions = actions.reshape(*leading, *(space.shape or ()))
            if isinstance(space, gym.spaces.Box):  # stored in [-1, 1]
                scaled = space.low + 0.5 * (actions + 1.0) * (space.high - space.low)
                actions = scaled.astype(np.float32)
            else:  # stored from 0
                actions = actions + self._first_action
            buffer.rewards[part] = reward_fn(observations, actions)

    def reinitialise(self) -> None:
        """Create new networks and optimisers; keep the replay buffer."""
        buffer = self.algorithm.replay_buffer
        super().reinitialise()
        self.algorithm.replay_buffer = buffer

    # --- warm starts and saving ---

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over the networks of another agent, with an empty replay buffer."""
        super().warm_start_from(state)
        # The policy is trained already, so it acts from the first step on; learning still waits
        # for `learning_starts` steps in the buffer.
        self._num_random_steps = 0

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, between two rollouts."""
        buffer = self.algorithm.replay_buffer
        replay = {name: getattr(buffer, name)[: buffer.size()].copy() for name in COLUMNS}
        replay["position"] = np.asarray([buffer.pos, buffer.full])
        replay["random_steps"] = np.asarray(self._num_random_steps)
        return {**super().state(), **nest({"replay": replay})}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        super().load_state(state)
        buffer, replay = self.algorithm.replay_buffer, part_of(state, "replay")
        for name in COLUMNS:
            getattr(buffer, name)[: len(replay[name])] = replay[name]
        position, is_full = replay["position"]
        buffer.pos, buffer.full = int(position), bool(is_full)
        self._num_random_steps = int(replay["random_steps"])
        self._buffer_actions = []


def add_rollout(
    buffer: ReplayBuffer, rollout: Rollout, rewards: np.ndarray, actions: np.ndarray
) -> None:
    """Add the steps of a rollout to a buffer.

    A buffer takes one step of every environment at a time. Where an environment only reset itself,
    its previous step is stored a second time, which teaches nothing new.

    Args:
        buffer: a buffer without dictionary observations.
        rollout: the rollout.
        rewards: [T, N] rewards instead of those of the environment.
        actions: [T, N, ...] as the buffer stores them.
    """
    shape = *rollout.ended.shape, *buffer.obs_shape
    columns = (
        *(rollout.observations.reshape(shape), rollout.next_observations.reshape(shape)),
        *(actions, rewards, rollout.ended, rollout.truncated & ~rollout.terminated),
    )
    for t, is_valid in enumerate(rollout.is_valid):
        step = {name: column[t] for name, column in zip(COLUMNS, columns, strict=True)}
        if not is_valid.all():
            if buffer.size() == 0:
                continue
            for name, given in step.items():
                before = getattr(buffer, name)[buffer.pos - 1].reshape(given.shape)
                step[name] = np.where(is_valid.reshape(-1, *[1] * (given.ndim - 1)), given, before)
        *arrays, timeouts = step.values()
        buffer.add(*arrays, [{"TimeLimit.truncated": bool(is_cut)} for is_cut in timeouts])  # pyright: ignore[reportCallIssue]
