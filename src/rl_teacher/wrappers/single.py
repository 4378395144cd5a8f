"""Wrapper that makes one environment return the predicted reward."""

from collections.abc import Iterator
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from rl_teacher.envs.check import explained_faults
from rl_teacher.envs.interface import ACTION_MASK, sample_allowed
from rl_teacher.wrappers.controls import Controls, hide_reward
from rl_teacher.wrappers.driver import WrapperDriver
from rl_teacher.wrappers.environments import describe_env
from rl_teacher.wrappers.observations import seeded
from rl_teacher.wrappers.settings import settings_of


class PreferenceWrapper(Controls, gym.Wrapper, gym.utils.RecordConstructorArgs):
    """Environment wrapper that learns a reward from comparisons and returns it.

    By default a synthetic teacher answers. The rewards are 0 until the first labels are fitted;
    `info["true_reward"]` always has the true reward.
    """

    def __init__(self, env: gym.Env, **keywords: Any) -> None:
        """Wrap an environment.

        Args:
            env: environment with Box or flattenable observations and Box, Discrete,
                MultiDiscrete or MultiBinary actions.
            keywords: see `WrapperSettings`.

        Raises:
            RlTeacherError: the settings are invalid or do not fit the environment.
        """
        # Not copied: keywords may hold a predictor or many labels.
        gym.utils.RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **keywords)
        settings = settings_of(keywords)
        env, self._envs = describe_env(env, settings)
        gym.Wrapper.__init__(self, env)
        self._converter = self._envs.converter
        self._seed = settings.seed
        self.session = WrapperDriver(self._envs, settings)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Raises:
            BadInput: `close` was called.
            BadObservation: the environment returned NaN or infinity.
        """
        self.session.check_open("reset")
        with explained_faults(self.env):
            observation, info = self.env.reset(seed=seed, options=options)
            converted = self._converter.one(observation)[None]
        self.session.begin(converted)
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the environment; the reward is predicted once the predictor is fitted.

        Raises:
            BadInput: an action is NaN or infinite, `reset` was not called, or `close` was.
            BadObservation: the environment returned NaN or infinity.
            TeacherFailed: the teacher raised an error or returned an invalid answer.
        """
        self.session.check_open("step")
        # Copied before the step, since an environment may change them in place.
        actions = self._envs.actions(action)
        with explained_faults(self.env):
            observation, reward, terminated, truncated, info = self.env.step(action)
            converted = self._converter.one(observation)[None]
            # Some environments return an array with one number.
            true_rewards = np.array(reward, np.float64).reshape(1)
            ends = np.array([terminated], bool), np.array([truncated], bool)
            info = {**info, "true_reward": float(true_rewards[0])}
        rewards = self.session.step(actions, converted, converted, true_rewards, ends)
        return observation, float(rewards[0]), terminated, truncated, info

    def get_wrapper_attr(self, name: str) -> Any:
        """Return an attribute of this wrapper or of what it wraps.

        Raises:
            BadInput: the attribute leads to the true reward.
            AttributeError: there is no such attribute.
        """
        if not hasattr(self, name):
            hide_reward(name)
        return super().get_wrapper_attr(name)

    def _random_steps(self, infos: dict[str, Any]) -> Iterator[int]:
        actions, mask = seeded(self.action_space, self._seed), infos.get(ACTION_MASK)
        while True:
            *_, terminated, truncated, info = self.step(sample_allowed(actions, mask))
            if terminated or truncated:
                _, info = self.reset()
            mask = info.get(ACTION_MASK, mask)
            yield 1

    def close(self) -> None:
        """Save the experiment and close the environment; a second call does nothing."""
        if not self.session.is_closed:
            self.session.close()
            self.env.close()
