"""Wrapper that makes a vector of environments return the predicted reward."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from jaxtyping import Bool, Shaped

from rl_teacher.wrappers.controls import Controls
from rl_teacher.wrappers.driver import Outcome, WrapperDriver
from rl_teacher.wrappers.pretraining import act_at_random, seeded
from rl_teacher.wrappers.settings import settings_of
from rl_teacher.wrappers.world import vector_world


class PreferenceVectorWrapper(Controls, VectorWrapper):
    """Vector version of `PreferenceWrapper` with one reward learner for N environments.

    Every autoreset mode is supported. `infos["true_reward"]` has the true rewards;
    `infos["_true_reward"]` is False where an environment only reset itself.
    """

    def __init__(self, env: VectorEnv, **keywords: Any) -> None:
        """Wrap a vector of environments.

        Args:
            env: vector environment with the spaces that `PreferenceWrapper` supports.
            keywords: see `WrapperSettings`.

        Raises:
            RlTeacherError: the settings are invalid or do not fit the environments.
        """
        VectorWrapper.__init__(self, env)
        settings = settings_of(keywords)
        world = vector_world(env, settings)
        self._view = world.view
        self._mode = world.autoreset_mode
        self._seed = settings.seed
        self.session = WrapperDriver(world, settings)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes in all environments, or in those of `options["reset_mask"]`."""
        begun = None if options is None else options.get("reset_mask")
        options = None if options is None else dict(options)
        observations, infos = self.env.reset(seed=seed, options=options)
        begun = None if begun is None else np.array(begun, bool)
        self.session.begin(self._view.many(observations), begun)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments; the rewards are predicted once the predictor is fitted.

        Raises:
            BadObservation: an environment returned NaN or infinity.
            TeacherFailed: the teacher raised an error or returned an invalid answer.
        """
        observations, true_rewards, terminated, truncated, infos = self.env.step(actions)
        true_rewards = np.array(true_rewards, np.float64)
        seen = self._view.many(observations)
        is_valid = ~self.session.is_over
        outcome = Outcome(
            observations=seen,
            led_to=self._next_observations(seen, terminated | truncated, infos),
            rewards=true_rewards,
            terminated=np.array(terminated, bool),
            truncated=np.array(truncated, bool),
        )
        rewards = self.session.live(actions, outcome)
        infos = {**infos, "true_reward": true_rewards, "_true_reward": is_valid}
        return observations, rewards, terminated, truncated, infos

    def _next_observations(
        self,
        seen: Shaped[np.ndarray, "env ..."],
        ended: Bool[np.ndarray, " env"],
        infos: dict[str, Any],
    ) -> Shaped[np.ndarray, "env ..."]:
        """Return the next observations, before any reset."""
        if self._mode != AutoresetMode.SAME_STEP or not ended.any():
            return seen
        next_observations = seen.copy()
        for env in np.flatnonzero(ended):
            next_observations[env] = self._view.one(infos["final_obs"][env])
        return next_observations

    def pretrain(self, max_steps: int = 1_000_000) -> None:
        """Act at random until the predicted reward is returned, so no agent sees the true one.

        Args:
            max_steps: maximum number of environment steps, over all environments.

        Raises:
            NoPredictor: the labels did not suffice for a fit.
        """
        actions: gym.Space = seeded(self.action_space, self._seed)
        self.reset(seed=self._seed)

        def take_steps(num_steps: int) -> int:
            for _ in range(-(-num_steps // self.num_envs)):
                _, _, terminated, truncated, _ = self.step(actions.sample())
                ended = terminated | truncated
                if self._mode == AutoresetMode.DISABLED and ended.any():
                    self.reset(options={"reset_mask": ended})
            return -(-num_steps // self.num_envs) * self.num_envs

        act_at_random(self.session, take_steps, max_steps)
        self.reset()

    def close(self, **kwargs: Any) -> None:
        """Save the experiment and close the environments; a second call does nothing."""
        if not self.session.is_closed:
            self.session.close()
            self.env.close(**kwargs)
