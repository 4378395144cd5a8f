"""Stepping a vector of environments, whatever its way of starting anew."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Shaped

from rl_teacher.agents.actions import Masks
from rl_teacher.agents.buffer_pool import ArrayPool
from rl_teacher.common.errors import BadObservation
from rl_teacher.common.state_dict import StateDict, array_to_rng, nest, part_of, rng_to_array
from rl_teacher.envs.rollout import Rollout

Act = Callable[..., np.ndarray]
"""(observations [N, ...]) -> actions [N, ...]; with the masks [N, A] after them where the
environment has some."""
ACTION_MASK = "action_mask"
"""What an environment's info calls the actions that it allows now."""
IGNORES_ACTION = "ignores_action"
"""What an environment's info calls that its next step belongs to no episode."""

Finals = list[tuple[int, int, np.ndarray]]
"""Steps that ended an episode, in which environment, and what they led to."""


class Collector:
    """Lives in N environments and hands out what was lived as rollouts."""

    def __init__(
        self,
        venv: gym.vector.VectorEnv,
        *,
        seed: int,
        stagger: int = 0,
        hide_terminations: bool = False,
    ) -> None:
        """Reset the environments.

        Args:
            venv: any Gymnasium vector environment; SAME_STEP, NEXT_STEP or DISABLED autoreset.
            seed: of the environments and of random actions.
            stagger: length of an episode when none ends early, or 0. The first episodes then
                start at random ages, so that not all end in the same step and every rollout holds
                all phases of an episode.
            hide_terminations: report terminations as truncations, because the time of a
                termination reveals something about the true reward.
        """
        self.venv = venv
        self.num_envs = venv.num_envs
        self._hides_ends = hide_terminations
        self._mode = venv.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._rng = np.random.default_rng([seed, 2])
        self._arrays = ArrayPool()
        options = None
        if stagger:
            ages = self._rng.integers(0, stagger, self.num_envs)
            options = {"elapsed_steps": ages}
        self._observations, infos = venv.reset(seed=seed, options=options)
        self._masks = self._first_masks(infos)
        self._led_to = self._observations
        self._resets_next = self._ignores_action(infos)

    def _ignores_action(self, infos: Mapping[str, Any]) -> np.ndarray:
        """[N] where the next step belongs to no episode, as an environment of ours tells."""
        return np.array(infos.get(IGNORES_ACTION, np.zeros(self.num_envs)), bool)

    def _first_masks(self, infos: Mapping[str, Any]) -> Masks:
        """The masks of environments that tell which actions they allow; None where they do not."""
        if ACTION_MASK not in infos or not isinstance(
            self.venv.single_action_space, gym.spaces.Discrete
        ):
            return None
        everything = np.ones((self.num_envs, int(self.venv.single_action_space.n)), bool)
        return self._newer_masks(everything, infos)

    def _newer_masks(self, masks: np.ndarray, infos: Mapping[str, Any]) -> np.ndarray:
        """The masks, where the environments have told of new ones."""
        given, tells = infos.get(ACTION_MASK, ()), infos.get(f"_{ACTION_MASK}")
        newer = masks.copy()
        for env in range(len(given)):
            if tells is None or tells[env]:
                newer[env] = np.asarray(given[env], bool)
        return newer

    def random_actions(self, observations: np.ndarray, masks: Masks = None) -> np.ndarray:
        """Actions of the random policy: uniform over the action space (Box: -1..1 if unbounded)."""
        space = self.venv.single_action_space
        if isinstance(space, gym.spaces.Discrete) and masks is not None:
            return space.start + np.argmax(masks * self._rng.random(masks.shape), axis=-1)
        if isinstance(space, gym.spaces.Discrete):
            return self._rng.integers(space.start, space.start + space.n, len(observations))
        if not isinstance(space, gym.spaces.Box):
            raise TypeError(f"random actions need a Box or Discrete space, not {space}")
        low = np.where(np.isfinite(space.low), space.low, -1.0)
        high = np.where(np.isfinite(space.high), space.high, 1.0)
        return self._rng.uniform(low, high, (self.num_envs, *low.shape)).astype(np.float32)

    def collect(self, act: Act, num_steps: int) -> Rollout:
        """Live T steps in every environment.

        Raises:
            BadObservation: an observation or reward is NaN or infinite.
        """
        columns = self._allocate(num_steps)
        shown, finals = columns["observations"], Finals()
        for t in range(num_steps):
            self._step(act, columns, t, finals)
        # Note: as a rule a step leads to what is shown before the next one, so that nothing is
        # written twice; pictures are large, and while emulators work each copy costs them time.
        if num_steps:
            shown[-1] = self._led_to
        columns["observations"], columns["next_observations"] = shown[:-1], shown[1:]
        if finals:
            columns["next_observations"] = self._arrays.empty(shown[1:].shape, shown.dtype)
            columns["next_observations"][:] = shown[1:]
            for t, env, observation in finals:
                columns["next_observations"][t, env] = observation
        rollout = Rollout(**columns)
        _check_finite(rollout)
        return rollout

    def _allocate(self, num_steps: int) -> dict[str, np.ndarray]:
        shape = (num_steps, self.num_envs)
        observation, action = self.venv.single_observation_space, self.venv.single_action_space
        is_float = np.issubdtype(observation.dtype, np.floating)
        observed = (*shape, *(observation.shape or ()))
        observed_dtype = np.float32 if is_float or observation.dtype is None else observation.dtype
        acted_dtype = np.float32 if isinstance(action, gym.spaces.Box) else np.int64
        columns = {
            # Note: one more, for what the last step led to.
            "observations": self._arrays.empty((num_steps + 1, *observed[1:]), observed_dtype),
            "actions": np.empty((*shape, *(action.shape or ())), acted_dtype),
            "rewards": np.empty(shape, np.float32),
            "terminated": np.empty(shape, bool),
            "truncated": np.empty(shape, bool),
            "is_valid": np.empty(shape, bool),
            "scene_states": np.empty((*shape, self._scene_states().shape[1])),
        }
        if self._masks is not None:
            columns["action_masks"] = np.empty((*shape, self._masks.shape[1]), bool)
        return columns

    def _scene_states(self) -> Shaped[np.ndarray, "env scene"]:
        states = getattr(self.venv, "scene_states", None)
        return np.empty((self.num_envs, 0)) if states is None else states

    def _step(self, act: Act, columns: dict[str, np.ndarray], t: int, finals: Finals) -> None:
        columns["scene_states"][t] = self._scene_states()
        columns["is_valid"][t] = ~self._resets_next
        if self._masks is None:
            actions = act(self._observations)
        else:
            columns["action_masks"][t] = self._masks
            actions = act(self._observations, self._masks)
        columns["actions"][t] = actions
        observations, rewards, terminated, truncated, step_infos = self._stepped(
            actions, partial(self._keep_observations, columns, t)
        )
        if self._masks is not None:
            self._masks = self._newer_masks(self._masks, step_infos)
        columns["rewards"][t] = rewards
        ended = terminated | truncated
        columns["terminated"][t] = False if self._hides_ends else terminated
        columns["truncated"][t] = ended if self._hides_ends else truncated
        self._observations = self._led_to = observations
        self._resets_next = self._ignores_action(step_infos)
        if self._mode == AutoresetMode.NEXT_STEP:
            self._resets_next |= ended
        elif ended.any():
            self._led_to = np.array(observations)
            if self._mode == AutoresetMode.SAME_STEP:
                for env in np.nonzero(ended)[0]:
                    self._led_to[env] = step_infos["final_obs"][env]
            else:
                self._observations, infos = self.venv.reset(options={"reset_mask": ended})
                if self._masks is not None:
                    self._masks = self._newer_masks(self._masks, infos)
            finals += [(t, env, self._led_to[env]) for env in np.nonzero(ended)[0].tolist()]

    def _stepped(self, actions: np.ndarray, keep: Callable[[], None]) -> Any:
        """What a step returns; what was seen before is kept while the environments work."""
        if not hasattr(self.venv, "begin_step"):
            keep()
            return self.venv.step(actions)
        venv: Any = self.venv
        venv.begin_step(actions)
        keep()
        return venv.end_step()

    def _keep_observations(self, columns: dict[str, np.ndarray], t: int) -> None:
        columns["observations"][t] = self._observations

    def _saver(self) -> Any:
        """The environment's own way to be saved (see envs.registry.make_vector)."""
        return self.venv

    def state(self) -> StateDict:
        """Everything needed to go on exactly, between two rollouts."""
        own = {
            "observations": np.asarray(self._observations),
            "resets_next": self._resets_next,
            "rng": rng_to_array(self._rng),
        }
        if self._masks is not None:
            own["masks"] = self._masks
        return nest({"self": own, "envs": self._saver().get_state()})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        own = part_of(state, "self")
        self._saver().set_state(part_of(state, "envs"))
        self._observations = own["observations"].copy()
        self._resets_next = own["resets_next"].copy()
        array_to_rng(self._rng, own["rng"])
        self._masks = own["masks"].copy() if "masks" in own else None


def _check_finite(rollout: Rollout) -> None:
    for name in ("next_observations", "observations", "rewards"):
        values = getattr(rollout, name)
        if not np.issubdtype(values.dtype, np.floating) or np.isfinite(values).all():
            continue
        t, env, *_ = np.argwhere(~np.isfinite(values))[0]
        raise BadObservation(
            f"Environment number {env} returned {name.replace('_', ' ')} that are not finite "
            f"numbers (step {t} of the rollout): {values[t, env]}. Nothing was learned from it. "
            "Mend the environment, or wrap it so that it never returns NaN or infinity."
        )
