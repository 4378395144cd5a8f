"""A vector of environments that return the predicted reward."""

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
    """What `PreferenceWrapper` is, for N environments at once: one learner, one prediction a step.

    Works with every autoreset mode. The true rewards are in `infos["true_reward"]`, and
    `infos["_true_reward"]` says where a step was lived: not where an environment only reset itself.
    """

    def __init__(self, env: VectorEnv, **keywords: Any) -> None:
        """Wrap a vector of environments.

        Args:
            env: any; see `PreferenceWrapper`.
            keywords: see `WrapperSettings`.

        Raises:
            RlTeacherError: with a text for the person.
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
        """Begin episodes: all, or those of `options["reset_mask"]`."""
        begun = None if options is None else options.get("reset_mask")
        options = None if options is None else dict(options)
        observations, infos = self.env.reset(seed=seed, options=options)
        begun = None if begun is None else np.array(begun, bool)
        self.session.begin(self._view.many(observations), begun)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act; the rewards are the predicted ones as soon as there are any.

        Raises:
            BadObservation: an environment returned NaN or infinity.
            TeacherFailed: the teacher raised, or answered nonsense.
        """
        observations, true_rewards, terminated, truncated, infos = self.env.step(actions)
        true_rewards = np.array(true_rewards, np.float64)
        seen = self._view.many(observations)
        is_valid = ~self.session.is_over
        outcome = Outcome(
            observations=seen,
            led_to=self._led_to(seen, terminated | truncated, infos),
            rewards=true_rewards,
            terminated=np.array(terminated, bool),
            truncated=np.array(truncated, bool),
        )
        rewards = self.session.live(actions, outcome)
        infos = {**infos, "true_reward": true_rewards, "_true_reward": is_valid}
        return observations, rewards, terminated, truncated, infos

    def _led_to(
        self,
        seen: Shaped[np.ndarray, "env ..."],
        ended: Bool[np.ndarray, " env"],
        infos: dict[str, Any],
    ) -> Shaped[np.ndarray, "env ..."]:
        """What every action led to, before any reset."""
        if self._mode != AutoresetMode.SAME_STEP or not ended.any():
            return seen
        led_to = seen.copy()
        for place in np.flatnonzero(ended):
            led_to[place] = self._view.one(infos["final_obs"][place])
        return led_to

    def pretrain(self, max_steps: int = 1_000_000) -> None:
        """Act at random until the predicted reward is returned, so no agent sees the true one.

        Args:
            max_steps: environment steps, over all environments, after which to give up.

        Raises:
            NoPredictor: the labels did not come by then.
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
        """Save what was learned, and close the environments; a second time does nothing."""
        if not self.session.is_closed:
            self.session.close()
            self.env.close(**kwargs)
