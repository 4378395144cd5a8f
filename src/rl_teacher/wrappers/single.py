"""One environment that returns the predicted reward."""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from rl_teacher.wrappers.controls import Controls
from rl_teacher.wrappers.driver import Outcome, WrapperDriver
from rl_teacher.wrappers.pretraining import act_at_random, seeded
from rl_teacher.wrappers.settings import settings_of
from rl_teacher.wrappers.world import single_world


class PreferenceWrapper(Controls, gym.Wrapper, gym.utils.RecordConstructorArgs):
    """Learns a reward from comparisons of what is lived in it, and returns that reward.

    `PreferenceWrapper(env)` alone works: a synthetic teacher answers. Until the first labels are
    fitted the true reward is returned; it always is in `info["true_reward"]`.
    """

    def __init__(self, env: gym.Env, **keywords: Any) -> None:
        """Wrap an environment.

        Args:
            env: any, with observations that are a Box, or can be flattened, and actions of Box,
                Discrete, MultiDiscrete or MultiBinary.
            keywords: see `WrapperSettings`.

        Raises:
            RlTeacherError: with a text for the person.
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
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.session.begin(self._view.one(observation)[None])
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Act; the reward is the predicted one as soon as there is one.

        Raises:
            BadObservation: the environment returned NaN or infinity.
            TeacherFailed: the teacher raised, or answered nonsense.
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
            max_steps: after which to give up.

        Raises:
            NoPredictor: the labels did not come by then.
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
        """Save what was learned, and close the environment; a second time does nothing."""
        if not self.session.is_closed:
            self.session.close()
            self.env.close()
