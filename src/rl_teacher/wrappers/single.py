"""Wrapper that makes one environment return the predicted reward."""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from rl_teacher.wrappers.controls import Controls
from rl_teacher.wrappers.driver import Outcome, WrapperDriver
from rl_teacher.wrappers.pretraining import act_at_random, seeded
from rl_teacher.wrappers.settings import settings_of
from rl_teacher.wrappers.world import single_world


class PreferenceWrapper(Controls, gym.Wrapper, gym.utils.RecordConstructorArgs):
    """Environment wrapper that learns a reward from comparisons and returns it.

    By default a synthetic teacher answers. The wrapper returns the true reward until the first
    labels are fitted; `info["true_reward"]` always has the true reward.
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
        gym.utils.RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **keywords)
        settings = settings_of(keywords)
        env, world = single_world(env, settings)
        gym.Wrapper.__init__(self, env)
        self._view = world.view
        self._seed = settings.seed
        self.session = WrapperDriver(world, settings)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.session.begin(self._view.one(observation)[None])
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the environment; the reward is predicted once the predictor is fitted.

        Raises:
            BadObservation: the environment returned NaN or infinity.
            TeacherFailed: the teacher raised an error or returned an invalid answer.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        seen = self._view.one(observation)[None]
        outcome = Outcome(
            observations=seen,
            led_to=seen,
            rewards=np.array([reward], np.float64),
            terminated=np.array([terminated], bool),
            truncated=np.array([truncated], bool),
        )
        rewards = self.session.live(action, outcome)
        info = {**info, "true_reward": float(reward)}
        return observation, float(rewards[0]), terminated, truncated, info

    def pretrain(self, max_steps: int = 1_000_000) -> None:
        """Act at random until the predicted reward is returned, so no agent sees the true one.

        Args:
            max_steps: maximum number of environment steps.

        Raises:
            NoPredictor: the labels did not suffice for a fit.
        """
        actions = seeded(self.action_space, self._seed)
        self.reset(seed=self._seed)

        def take_steps(num_steps: int) -> int:
            for _ in range(num_steps):
                *_, terminated, truncated, _ = self.step(actions.sample())
                if terminated or truncated:
                    self.reset()
            return num_steps

        act_at_random(self.session, take_steps, max_steps)
        self.reset()

    def close(self) -> None:
        """Save the experiment and close the environment; a second call does nothing."""
        if not self.session.is_closed:
            self.session.close()
            self.env.close()
