"""For Stable-Baselines3: vector environments as it wants them, and replay kept up to date."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Bool
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from rl_teacher.agents.sb3.replay import relabel as relabel_buffer
from rl_teacher.common.errors import BadInput
from rl_teacher.wrappers.controls import Controls


class GymnasiumVecEnv(VecEnv):
    """N environments whose episodes begin anew in the step in which they end.

    Where the vector does not do that by itself, it is told to, with `reset_mask`.
    """

    def __init__(self, venv: VectorEnv) -> None:
        self.venv = venv
        self._mode = venv.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._actions: np.ndarray | None = None
        super().__init__(venv.num_envs, venv.single_observation_space, venv.single_action_space)

    def reset(self) -> Any:
        """Begin new episodes; [N, ...] what is observed."""
        seeds: Any = None if self._seeds[0] is None else list(self._seeds)
        options = dict(self._options[0]) if self._options[0] else None
        observations, infos = self.venv.reset(seed=seeds, options=options)
        self.reset_infos = one_by_one(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Take note of actions."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Act."""
        observations, rewards, terminated, truncated, infos = self.venv.step(self._actions)
        ended = terminated | truncated
        each = one_by_one(infos, self.num_envs)
        for place in range(self.num_envs):
            each[place]["TimeLimit.truncated"] = bool(truncated[place] and not terminated[place])
        if ended.any():
            observations = self._reinitialise(observations, ended, each)
        return observations, np.asarray(rewards, np.float32), ended, each

    def _reinitialise(
        self, observations: Any, ended: Bool[np.ndarray, " env"], each: list[dict[str, Any]]
    ) -> Any:
        """What is observed after episodes have begun anew; where they ended is in the infos."""
        if self._mode == AutoresetMode.SAME_STEP:
            for place in np.flatnonzero(ended):
                each[place]["terminal_observation"] = each[place].pop("final_obs")
                each[place].pop("final_info", None)
            return observations
        for place in np.flatnonzero(ended):
            each[place]["terminal_observation"] = at(observations, int(place))
        observations, infos = self.venv.reset(options={"reset_mask": ended})
        for place, info in enumerate(one_by_one(infos, self.num_envs)):
            if ended[place]:
                self.reset_infos[place] = info
        return observations

    def close(self) -> None:
        """Close the environments."""
        self.venv.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A picture of each."""
        pictures: Any = self.venv.render()
        return [None] * self.num_envs if pictures is None else list(pictures)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of each environment, or the vector's own."""
        if hasattr(self.venv, attr_name):
            return [getattr(self.venv, attr_name) for _ in self._get_indices(indices)]
        values = self._inner("get_attr")(attr_name)
        return [values[place] for place in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of every environment.

        Raises:
            BadInput: of some of them only.
        """
        self._check_all(indices)
        self._inner("set_attr")(attr_name, [value] * self.num_envs)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of every environment.

        Raises:
            BadInput: of some of them only.
        """
        self._check_all(indices)
        return list(self._inner("call")(method_name, *method_args, **method_kwargs))

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Which environments are in a wrapper; those in other processes are not looked at."""
        inner = self.venv.unwrapped
        envs = inner.envs if isinstance(inner, SyncVectorEnv) else [None] * self.num_envs
        return [is_in(envs[place], wrapper_class) for place in self._get_indices(indices)]

    def _check_all(self, indices: VecEnvIndices) -> None:
        given: Iterable[int] = self._get_indices(indices)
        if sorted(given) != list(range(self.num_envs)):
            raise BadInput(
                "Gymnasium's vector environments are told something all together, but only some "
                f"were named ({indices}). Name all of them, or none."
            )

    def _inner(self, method: str) -> Any:
        """A method of the vector inside all wrappers.

        Raises:
            AttributeError: it has none, as Stable-Baselines3 expects.
        """
        return getattr(self.venv.unwrapped, method)


def is_in(env: gym.Env | None, wrapper_class: type[gym.Wrapper]) -> bool:
    """Whether an environment is in a wrapper of a class."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, wrapper_class):
            return True
        env = env.env
    return False


def at(observations: Any, place: int) -> Any:
    """One of N observations, whatever they are made of; a copy."""
    if isinstance(observations, Mapping):
        return {name: at(part, place) for name, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(at(part, place) for part in observations)
    return np.array(observations[place])


def one_by_one(infos: Mapping[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Gymnasium's one dictionary of arrays, `name` with `_name` where it is meant, as N."""
    each: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    for name, values in infos.items():
        if name.startswith("_"):
            continue
        is_meant = infos.get(f"_{name}", np.ones(num_envs, bool))
        parts = one_by_one(values, num_envs) if isinstance(values, Mapping) else values
        for place in np.flatnonzero(is_meant):
            each[place][name] = parts[place]
    return each


class RelabelReplay(BaseCallback):
    """Gives every step in an agent's replay buffer the reward that is predicted for it now.

    What was predicted early, of states that no label was about yet, can be far off; an off-policy
    agent would go on learning from it long after labels have put it right.

    What its value function has learned from that does not go away with it: an excess shrinks by no
    more than the discount, each time that the target network is renewed. So the agent may begin
    anew once, when most labels have come: new networks, and everything that was lived.

    Source: PEBBLE (Lee et al. 2021), section 4.2; Nikishin et al., "The primacy bias in deep
    reinforcement learning" (2022).
    """

    def __init__(
        self, wrapper: Controls, every_steps: int = 1_000, agent_reset: int | None = None
    ) -> None:
        """Relabel from time to time.

        Args:
            wrapper: whose predictor it is.
            every_steps: environment steps between two times.
            agent_reset: labels after which the agent begins anew, once; None: it never does.
        """
        super().__init__()
        self._wrapper = wrapper
        self._every_steps = every_steps
        self._relabelled_at = 0
        self._agent_reset = agent_reset

    def _init_callback(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        if not isinstance(buffer, ReplayBuffer) or isinstance(buffer, DictReplayBuffer):
            raise BadInput(
                f"{type(self.model).__name__} has no replay buffer of plain observations, so there "
                "is nothing that RelabelReplay could relabel. Leave it out."
            )

    def _on_step(self) -> bool:
        is_due = self.num_timesteps - self._relabelled_at >= self._every_steps
        if is_due and self._wrapper.using_predicted_reward:
            assert isinstance(self.model, OffPolicyAlgorithm)  # noqa: S101 - it has a buffer
            relabel(self.model, self._wrapper)
            self._relabelled_at = self.num_timesteps
            self._begin_anew_if_due(self.model)
        return True

    def _begin_anew_if_due(self, agent: OffPolicyAlgorithm) -> None:
        if self._agent_reset is not None and self._wrapper.session.num_labels >= self._agent_reset:
            # Note: makes networks and optimisers; the buffer stays where there is one.
            agent._setup_model()
            self._agent_reset = None


def relabel(agent: OffPolicyAlgorithm, wrapper: Controls) -> None:
    """Predict anew the reward of every step in an agent's replay buffer."""
    assert agent.replay_buffer is not None  # noqa: S101 - an off-policy agent has one
    relabel_buffer(agent.replay_buffer, agent.action_space, wrapper.session.rewards_of)
