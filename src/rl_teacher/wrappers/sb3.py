"""Adapters for Stable-Baselines3: vector environments and replay relabelling."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Bool
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from rl_teacher.agents.sb3.off_policy import CHUNK
from rl_teacher.common.errors import BadInput
from rl_teacher.rewards.memory import refuse_excess
from rl_teacher.wrappers.controls import Controls, hide_reward
from rl_teacher.wrappers.environments import has_wrapper


class GymnasiumVecEnv(VecEnv):
    """Adapter of a Gymnasium vector environment to VecEnv, which resets in the same step.

    In other autoreset modes, environments are reset with `reset_mask` after their last step. Of
    Gymnasium's own vectors, SyncVectorEnv and AsyncVectorEnv support it.
    """

    def __init__(self, venv: VectorEnv) -> None:
        self.venv = venv
        self._mode = venv.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._actions: np.ndarray | None = None
        super().__init__(venv.num_envs, venv.single_observation_space, venv.single_action_space)

    def reset(self) -> Any:
        """Reset all environments and return their observations [N, ...]."""
        seeds: Any = None if self._seeds[0] is None else list(self._seeds)
        # Options of a VecEnv are per environment, those of Gymnasium for all.
        options = dict(self._options[0]) if self._options[0] else None
        try:
            observations, infos = self.venv.reset(seed=seeds, options=options)
        except gym.error.Error:
            if seeds is None:
                raise
            # Some vectors, such as Gymnasium's own of CartPole-v1, accept a single number only.
            observations, infos = self.venv.reset(seed=seeds[0], options=options)
        self.reset_infos = split_infos(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step all environments."""
        observations, rewards, terminated, truncated, infos = self.venv.step(self._actions)
        ended = terminated | truncated
        each = split_infos(infos, self.num_envs)
        for index in range(self.num_envs):
            # Stable-Baselines3 bootstraps from the last observation where this is True.
            each[index]["TimeLimit.truncated"] = bool(truncated[index] and not terminated[index])
        if ended.any():
            observations = self._reset_ended(observations, ended, each)
        return observations, np.asarray(rewards, np.float32), ended, each

    def _reset_ended(
        self, observations: Any, ended: Bool[np.ndarray, " env"], each: list[dict[str, Any]]
    ) -> Any:
        """Reset ended episodes and store their final observations in the infos.

        Raises:
            BadInput: the vector reset the other episodes too.
        """
        if self._mode == AutoresetMode.SAME_STEP:
            for index in np.flatnonzero(ended):
                # Gymnasium returns the infos of the reset, and those of the last step within.
                info = each[index]
                last = {"terminal_observation": info.pop("final_obs"), **info.pop("final_info", {})}
                self.reset_infos[index] = dict(info)
                info.update(last)
            return observations
        for index in np.flatnonzero(ended):
            each[index]["terminal_observation"] = copy_at(observations, int(index))
        # These support `reset_mask`; wrappers around them may change observations at a reset.
        is_checked = not isinstance(self.venv.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        others = np.flatnonzero(~ended).tolist() if is_checked else []
        before = {index: copy_at(observations, index) for index in others}
        observations, infos = self.venv.reset(options={"reset_mask": ended})
        if before:
            self._check_unchanged(before, observations)
        for index, info in enumerate(split_infos(infos, self.num_envs)):
            if ended[index]:
                self.reset_infos[index] = info
        return observations

    def _check_unchanged(self, before: Mapping[int, Any], observations: Any) -> None:
        """Check that a reset of ended episodes left the others as they were, by environment.

        Raises:
            BadInput: it changed all of them.
        """
        after = {index: copy_at(observations, index) for index in before}
        if not any(data_equivalence(before[index], after[index], exact=True) for index in before):
            raise BadInput(
                f"{self.venv.unwrapped} does not support reset_mask: when one episode ended, it "
                "reset all environments. Use gymnasium.make_vec(..., vectorization_mode='sync'), "
                "or a vector with the autoreset mode SAME_STEP."
            )

    def close(self) -> None:
        """Close the environments."""
        self.venv.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Render each environment."""
        images: Any = self.venv.render()
        return [None] * self.num_envs if images is None else list(images)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of the vector, or that of each environment where it has none."""
        # A vector has the attributes of an environment, such as `spec`, but often without a value.
        is_unset = getattr(self.venv, attr_name, None) is None and hasattr(gym.Env, attr_name)
        if hasattr(self.venv, attr_name) and not (
            is_unset and hasattr(self.venv.unwrapped, "get_attr")
        ):
            return [getattr(self.venv, attr_name) for _ in self._get_indices(indices)]
        values = self._inner("get_attr", attr_name)(attr_name)
        return [values[index] for index in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of every environment.

        Raises:
            BadInput: only some environments were given.
        """
        self._check_all(indices)
        self._inner("set_attr", attr_name)(attr_name, [value] * self.num_envs)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of every environment.

        Raises:
            BadInput: only some environments were given, or the method leads to the true reward.
        """
        self._check_all(indices)
        return list(self._inner("call", method_name)(method_name, *method_args, **method_kwargs))

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Return whether each environment has a wrapper; False for those in other processes."""
        inner, given = self.venv.unwrapped, self._get_indices(indices)
        if not isinstance(inner, SyncVectorEnv):
            return [False for _ in given]
        return [is_wrapped(inner.envs[index], wrapper_class) for index in given]

    def _check_all(self, indices: VecEnvIndices) -> None:
        given: Iterable[int] = self._get_indices(indices)
        if sorted(given) != list(range(self.num_envs)):
            raise BadInput(
                "Gymnasium's vector environments can only be set and called all together, but "
                f"indices={indices} was given. Give all indices, or none."
            )

    def _inner(self, method: str, name: str) -> Any:
        """Return a method of the unwrapped vector environment for its environments' attributes.

        Raises:
            AttributeError: there is no such method, as Stable-Baselines3 expects.
            BadInput: a preference wrapper hides this attribute.
        """
        if has_wrapper(self.venv, Controls):
            hide_reward(name)
        return getattr(self.venv.unwrapped, method)


def copy_at(observations: Any, index: int) -> Any:
    """Return a copy of one of N observations of any space."""
    if isinstance(observations, Mapping):
        return {name: copy_at(part, index) for name, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(copy_at(part, index) for part in observations)
    return np.array(observations[index])


def split_infos(infos: Mapping[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Split Gymnasium's dictionary of arrays, masked by `_name`, into N dictionaries."""
    each: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    for name, values in infos.items():
        if name.startswith("_"):
            continue
        is_set = infos.get(f"_{name}", np.ones(num_envs, bool))
        parts = split_infos(values, num_envs) if isinstance(values, Mapping) else values
        for index in np.flatnonzero(is_set):
            each[index][name] = parts[index]
    return each


class RelabelReplay(BaseCallback):
    """Callback that relabels an agent's replay buffer with the current reward predictor.

    Early predictions for states without labels can be far off, and an off-policy agent would
    continue to learn from them long after later labels have corrected the predictor.

    Wrappers between the preference wrapper and the agent may change observations and actions, and
    so does Stable-Baselines3 with images. The callback therefore keeps the predictor's inputs of
    each transition as the preference wrapper saw them, in the order of the buffer.

    Relabelling does not correct the value function: an overestimate shrinks only by the discount
    factor with each update of the target network. The agent can therefore be reset once, after
    most labels have arrived: it gets new networks and keeps its replay buffer.

    Source: PEBBLE (Lee et al. 2021), section 4.3; Nikishin et al., "The primacy bias in deep
    reinforcement learning" (2022).
    """

    def __init__(
        self, wrapper: Controls, every_steps: int = 1_000, agent_reset: int | None = None
    ) -> None:
        """Initialise the callback.

        Args:
            wrapper: wrapper with the reward predictor.
            every_steps: environment steps between two relabellings.
            agent_reset: number of labels after which the agent is reset once; None for never.
        """
        super().__init__()
        self.agent_reset = agent_reset
        self._wrapper = wrapper
        self._every_steps = every_steps
        self._relabelled_at = 0
        self._buffer: ReplayBuffer | None = None
        self._rows = np.empty(0)  # [S, N, F] input rows by slot of the buffer
        self._is_step = np.empty(0)  # [S, N] False for a step that only resets: its reward stays 0
        self._slot: int | None = None  # the latest one with rows
        self._returned: np.ndarray | None = None  # [N] rewards of that slot, until checked
        self._num_steps = 0

    def _init_callback(self) -> None:
        """Check the buffer, and that all of its transitions were recorded.

        Raises:
            BadInput: the buffer cannot be relabelled, or its inputs do not fit into memory.
        """
        buffer = getattr(self.model, "replay_buffer", None)
        session = self._wrapper.session
        if isinstance(buffer, HerReplayBuffer):
            hide_reward("compute_reward")
        if not isinstance(buffer, ReplayBuffer):
            raise BadInput(
                f"{type(self.model).__name__} has no replay buffer, so there is nothing that "
                "RelabelReplay could relabel. Leave it out."
            )
        if buffer.n_envs != session.num_envs:
            raise BadInput(
                f"The agent has {buffer.n_envs} environments, but the wrapper given to "
                f"RelabelReplay has {session.num_envs}. Wrap all of them with one "
                "PreferenceVectorWrapper, and adapt it with to_sb3."
            )
        # Every call of `learn` initialises the callback, possibly with another buffer.
        if buffer is not self._buffer:
            space = self._wrapper.predictor.space
            shape = (buffer.buffer_size, buffer.n_envs, space.num_features)
            num_filled = min(buffer.buffer_size, self.model._total_timesteps // buffer.n_envs)
            num_bytes = num_filled * math.prod(shape[1:]) * np.dtype(space.row_dtype).itemsize
            refuse_excess({"buffer_size": num_bytes}, spell=str)
            self._buffer, self._slot = buffer, None
            self._rows = np.zeros(shape, space.row_dtype)
            self._is_step = np.zeros(shape[:2], bool)
        # A transition is added after the callback, unless the callback has ended the training.
        expected = () if self._slot is None else (self._slot, (self._slot + 1) % len(self._rows))
        if buffer.size() and buffer.pos not in expected:
            raise BadInput(
                f"The replay buffer has {buffer.size()} transitions that RelabelReplay did not "
                "record, so it cannot relabel them. Pass one RelabelReplay to every call of learn, "
                "from the first on."
            )

    def _on_training_start(self) -> None:
        self._num_steps = self._wrapper.session.num_steps
        # The steps of the agent may be counted from 0 again.
        self._relabelled_at = min(self._relabelled_at, self.num_timesteps)

    def _on_step(self) -> bool:
        self._check_rewards()
        self._record()
        is_due = self.num_timesteps - self._relabelled_at >= self._every_steps
        if is_due and self._wrapper.using_predicted_reward:
            self.relabel()
            self._relabelled_at = self.num_timesteps
            num_labels = self._wrapper.session.num_labels
            if self.agent_reset is not None and num_labels >= self.agent_reset:
                assert isinstance(self.model, OffPolicyAlgorithm)  # noqa: S101 - it has a buffer
                # Creates new networks and optimisers, but keeps an existing replay buffer.
                self.model._setup_model()
                self.agent_reset = None
        return True

    def _record(self) -> None:
        """Keep the inputs of the step that is added to the buffer after this callback.

        Raises:
            BadInput: the agent's step was not one step of the wrapper.
        """
        assert self._buffer is not None  # noqa: S101 - set by `_init_callback`
        session = self._wrapper.session
        num_steps, self._num_steps = session.num_steps - self._num_steps, session.num_steps
        if num_steps != 1:
            raise BadInput(
                f"The wrapper given to RelabelReplay took {num_steps} steps during one step of the "
                "agent; 1 is needed. Give the wrapper around the agent's environment, apply "
                "wrappers that repeat actions inside it, and evaluate in another environment."
            )
        self._slot = self._buffer.pos
        self._rows[self._slot] = session.latest_rows
        self._is_step[self._slot] = session.latest_is_valid
        self._returned = session.latest_rewards

    def _check_rewards(self) -> None:
        """Check the reward stored at the latest recorded slot, before it is relabelled.

        Raises:
            BadInput: it is not the reward that the wrapper returned.
        """
        # While the position is that of the slot, its transition is not stored yet.
        if self._returned is None or self._buffer is None or self._buffer.pos == self._slot:
            return
        returned, self._returned = self._returned, None
        stored = self._buffer.rewards[self._slot]
        if not np.allclose(stored, returned, rtol=1e-4, atol=1e-5):
            raise BadInput(
                f"The agent stored the rewards {stored} where the wrapper given to RelabelReplay "
                f"returned {returned}. Relabelling would mix both. Remove the wrapper that changes "
                "rewards outside the preference wrapper, or apply it inside."
            )

    def relabel(self) -> None:
        """Replace all rewards in the buffer by those of the current predictor.

        Raises:
            BadInput: a stored reward is not the one that the wrapper returned.
        """
        self._check_rewards()
        assert self._buffer is not None  # noqa: S101 - set by `_init_callback`
        rewards, predictor = self._buffer.rewards, self._wrapper.predictor
        chunk = max(CHUNK // self._buffer.n_envs, 1)
        for begin in range(0, self._buffer.size(), chunk):
            part = slice(begin, min(begin + chunk, self._buffer.size()))
            predicted = predictor.predict_rows(self._rows[part])
            rewards[part] = np.where(self._is_step[part], predicted, 0)
