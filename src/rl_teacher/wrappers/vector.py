"""Wrapper that makes a vector of environments return the predicted reward."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from jaxtyping import Bool, Shaped

from rl_teacher.agents.collector import IGNORES_ACTION, first_masks, updated_masks
from rl_teacher.envs.check import explained_faults
from rl_teacher.wrappers.controls import Controls
from rl_teacher.wrappers.driver import WrapperDriver
from rl_teacher.wrappers.environments import describe_vector
from rl_teacher.wrappers.observations import seeded
from rl_teacher.wrappers.settings import settings_of


class PreferenceVectorWrapper(Controls, VectorWrapper):
    """Vector version of `PreferenceWrapper` with one reward learner for N environments.

    Every autoreset mode is supported. `infos["true_reward"]` has the true rewards;
    `infos["_true_reward"]` is False where an environment only reset itself, or ignored the action.
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
        inner = env.unwrapped
        envs = inner.envs if isinstance(inner, SyncVectorEnv) else []
        try:
            self._envs = describe_vector(env, settings)
            self.session = WrapperDriver(self._envs, settings)
        except BaseException:
            # Unwrap those that record their episodes: the user may try again with other keywords.
            if isinstance(inner, SyncVectorEnv):
                inner.envs = envs
            raise
        self._converter = self._envs.converter
        self._seed = settings.seed

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes in all environments, or in those of `options["reset_mask"]`.

        Raises:
            BadInput: `close` was called.
            BadObservation: an environment returned NaN or infinity.
        """
        self.session.check_open("reset")
        was_reset = None if options is None else options.get("reset_mask")
        # A copy, since Gymnasium removes `reset_mask` from the options that it is given.
        options = None if options is None else dict(options)
        with explained_faults(self.env):
            observations, infos = self.env.reset(seed=seed, options=options)
            infos = {**infos}
        was_reset = None if was_reset is None else np.array(was_reset, bool)
        self.session.begin(self._converter.many(observations), was_reset)
        self._skip_ignored_actions(infos)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments; the rewards are predicted once the predictor is fitted.

        Raises:
            BadInput: an action is NaN or infinite, `reset` was not called, or `close` was.
            BadObservation: an environment returned NaN or infinity.
            TeacherFailed: the teacher raised an error or returned an invalid answer.
        """
        self.session.check_open("step")
        # Copied before the step, since an environment may change them in place.
        taken = self._envs.actions(actions)
        with explained_faults(self.env):
            observations, true_rewards, terminated, truncated, infos = self.env.step(actions)
            infos, true_rewards = {**infos}, np.array(true_rewards, np.float64)
            converted = self._converter.many(observations)
            next_observations = self._next_observations(converted, terminated | truncated, infos)
            ends = np.array(terminated, bool), np.array(truncated, bool)
        # As of this step: `session.step` updates it for the next one.
        is_valid = ~self.session.is_over
        rewards = self.session.step(taken, converted, next_observations, true_rewards, ends)
        self._skip_ignored_actions(infos)
        infos |= {"true_reward": true_rewards, "_true_reward": is_valid}
        return observations, rewards, terminated, truncated, infos

    def _skip_ignored_actions(self, infos: dict[str, Any]) -> None:
        """Note where the next step only plays the way to a start point (Atari)."""
        if IGNORES_ACTION in infos:
            self.session.is_over = np.array(infos[IGNORES_ACTION], bool)

    def _next_observations(
        self,
        converted: Shaped[np.ndarray, "env ..."],
        ended: Bool[np.ndarray, " env"],
        infos: dict[str, Any],
    ) -> Shaped[np.ndarray, "env ..."]:
        """Return the next observations, before any reset."""
        if self._envs.autoreset_mode != AutoresetMode.SAME_STEP or not ended.any():
            return converted
        next_observations = converted.copy()
        for env in np.flatnonzero(ended):
            next_observations[env] = self._converter.one(infos["final_obs"][env])
        return next_observations

    def _random_steps(self, infos: dict[str, Any]) -> Iterator[int]:
        actions: gym.Space = seeded(self.action_space, self._seed)
        masks = first_masks(self.single_action_space, self.num_envs, infos)
        while True:
            allowed = None if masks is None else tuple(masks.astype(np.int8))
            _, _, terminated, truncated, infos = self.step(actions.sample(mask=allowed))
            masks = updated_masks(masks, infos)
            ended = terminated | truncated
            if self._envs.autoreset_mode == AutoresetMode.DISABLED and ended.any():
                _, infos = self.reset(options={"reset_mask": ended})
                masks = updated_masks(masks, infos)
            yield self.num_envs

    def close(self, **kwargs: Any) -> None:
        """Save the experiment and close the environments; a second call does nothing."""
        if not self.session.is_closed:
            self.session.close()
            self.env.close(**kwargs)
