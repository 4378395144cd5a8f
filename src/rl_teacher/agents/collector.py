"""Collection of rollouts from a vector environment with any autoreset mode."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Shaped

from rl_teacher.agents.actions import Masks, float32_bounds
from rl_teacher.agents.agent import agent_diverged
from rl_teacher.common.array_pool import ArrayPool
from rl_teacher.common.state_dict import StateDict, array_to_rng, nest, part_of, rng_to_array
from rl_teacher.config.experiment import PhysicsBackend
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.episode_replay import slice_state
from rl_teacher.envs.interface import ACTION_MASK, Shard, StatefulVectorEnv, environment_seeds
from rl_teacher.envs.registry import EnvInfo, make_vector
from rl_teacher.envs.rollout import Rollout, check_numbers

Act = Callable[..., np.ndarray]
"""(observations [N, ...]) -> actions [N, ...]; with masks [N, A] as second argument if the
environment reports them."""
IGNORES_ACTION = "ignores_action"
"""Key of an environment's info for whether its next step belongs to no episode."""

FinalObservations = list[tuple[int, int, np.ndarray]]
"""Time step, environment and last observation of each finished episode."""


class RolloutInterrupted(Exception):
    """The end of a rollout before its last step, by a stop request."""


@dataclass(frozen=True)
class RolloutSettings:
    """Settings of all collectors of a run.

    Attributes:
        env_info: the environment.
        seed: seed of the run.
        stagger: see `Collector`.
        hide_terminations: see `Collector`.
        keep_steps: see `make_vector`.
        frames: preprocessing of image observations.
        physics: see `make_vector`.
    """

    env_info: EnvInfo
    seed: int
    stagger: int
    hide_terminations: bool
    keep_steps: int
    frames: FrameSettings
    physics: PhysicsBackend = "cpu"

    def make_vector(
        self, num_envs: int, num_threads: int | None, shard: Shard | None = None
    ) -> StatefulVectorEnv:
        """Create environments of the run; see `rl_teacher.envs.registry.make_vector`."""
        return make_vector(
            self.env_info.id,
            num_envs,
            num_threads,
            self.keep_steps,
            self.frames,
            shard,
            self.physics,
        )

    def make_collector(
        self, num_envs: int, num_threads: int | None, shard: Shard | None = None
    ) -> "Collector":
        """Create environments of the run and their collector; by default, all environments."""
        return Collector(
            self.make_vector(num_envs, num_threads, shard),
            seed=self.seed,
            stagger=self.stagger,
            hide_terminations=self.hide_terminations,
            shard=shard,
        )


class Collector:
    """Steps N environments and returns rollouts."""

    def __init__(
        self,
        venv: gym.vector.VectorEnv,
        *,
        seed: int,
        stagger: int = 0,
        hide_terminations: bool = False,
        shard: Shard | None = None,
    ) -> None:
        """Reset the environments.

        Args:
            venv: any Gymnasium vector environment; SAME_STEP, NEXT_STEP or DISABLED autoreset.
            seed: seed of the environments and of random actions.
            stagger: length of an episode if none ends early, or 0. The first episodes then start
                at random ages, so that not all end at once and every rollout holds all phases of
                an episode.
            hide_terminations: report terminations as truncations and no lost lives, because their
                times reveal something about the true reward.
            shard: which of the environments of a run these are; by default all of them.
        """
        self.venv = venv
        self.num_envs = venv.num_envs
        self._shard = shard = shard or Shard(0, venv.num_envs, venv.num_envs)
        self._hide_terminations = hide_terminations
        self._shows_lives = not hide_terminations and getattr(venv, "has_lives", False)
        space = venv.single_action_space
        is_integer = isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.integer)
        # Of a Box, for which actions are rounded; agents and rollouts have them as floats.
        self._integer_dtype = space.dtype if is_integer else None
        self._mode = venv.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        # Each process draws the random numbers of all environments, and uses those of its own.
        self._rng = np.random.default_rng([seed, 2])
        self._pool = ArrayPool()
        options = None
        if stagger:
            ages = self._rng.integers(0, stagger, shard.num_envs)[shard.rows]
            options = {"elapsed_steps": ages}
        # Gymnasium's type of a vector environment's `seed` lacks the list that it accepts.
        seeds: Any = environment_seeds(seed, shard.num_envs)[shard.rows]
        self._observations, infos = venv.reset(seed=seeds, options=options)
        self._masks = first_masks(venv.single_action_space, self.num_envs, infos)
        self._next_observations = self._observations
        self._resets_next = self._ignores_action(infos)

    def _ignores_action(self, infos: Mapping[str, Any]) -> np.ndarray:
        """Return [N] whether the next step belongs to no episode."""
        return np.array(infos.get(IGNORES_ACTION, np.zeros(self.num_envs)), bool)

    def random_actions(self, observations: np.ndarray, masks: Masks = None) -> np.ndarray:  # noqa: ARG002
        """Sample actions uniformly from the action space.

        A missing bound of a Box is -1 or 1, or 1 away from the other bound if that excludes it.
        """
        space = self.venv.single_action_space
        rows, num_envs = self._shard.rows, self._shard.num_envs
        if isinstance(space, gym.spaces.Discrete) and masks is not None:
            scores = self._rng.random((num_envs, masks.shape[1]))[rows]
            return space.start + np.argmax(masks * scores, axis=-1)
        if isinstance(space, gym.spaces.Discrete):
            return self._rng.integers(space.start, space.start + space.n, num_envs)[rows]
        if not isinstance(space, gym.spaces.Box):
            raise TypeError(f"random actions need a Box or Discrete space, not {space}")
        # In float64, since the rounding of float32 may exceed a bound.
        low, high = (bound.astype(np.float64) for bound in float32_bounds(space))
        lowest = np.where(high > -1.0, -1.0, high - 1)
        highest = np.where(low < 1.0, 1.0, low + 1)
        low = np.where(np.isfinite(low), low, lowest)
        high = np.where(np.isfinite(high), high, highest)
        shape = (num_envs, *low.shape)
        if self._integer_dtype is not None:
            # Rounded to the nearest, the bounds would be half as likely as other integers.
            sampled = np.floor(self._rng.uniform(low, high + 1, shape)[rows])
            return np.minimum(sampled, high).astype(np.float32)
        return self._rng.uniform(low, high, shape)[rows].astype(np.float32)

    def null_actions(self, observations: np.ndarray, masks: Masks = None) -> np.ndarray:  # noqa: ARG002
        """Return null actions: the first one that is allowed (Atari: NOOP); zeros of a Box."""
        space = self.venv.single_action_space
        if isinstance(space, gym.spaces.Discrete):
            first = np.zeros(self.num_envs, np.int64) if masks is None else masks.argmax(-1)
            return space.start + first
        if not isinstance(space, gym.spaces.Box):
            raise TypeError(f"null actions need a Box or Discrete space, not {space}")
        # The nearest to zero where the bounds exclude it.
        null = np.clip(np.zeros(space.shape, np.float32), *float32_bounds(space))
        return np.broadcast_to(null, (self.num_envs, *space.shape)).copy()

    def collect(
        self, act: Act, num_steps: int, should_stop: Callable[[], bool] | None = None
    ) -> Rollout:
        """Take T steps in every environment.

        Args:
            act: policy.
            num_steps: T.
            should_stop: called before every step; True discards the rollout.

        Raises:
            RolloutInterrupted: `should_stop` returned True.
            BadObservation: an observation or reward is NaN or infinite.
            Diverged: the actions were, before that.
        """
        columns, finals = self.collect_columns(act, num_steps, should_stop)
        return assemble_rollout(columns, finals, self._pool)

    def collect_columns(
        self, act: Act, num_steps: int, should_stop: Callable[[], bool] | None = None
    ) -> tuple[dict[str, np.ndarray], FinalObservations]:
        """Take T steps, like `collect`, and return the parts of the rollout.

        Returns:
            The columns of `Rollout`, with [T + 1, N, ...] observations and no next observations;
            and the last observations of finished episodes.
        """
        columns = self._allocate(num_steps)
        observations, finals = columns["observations"], FinalObservations()
        for t in range(num_steps):
            if should_stop is not None and should_stop():
                raise RolloutInterrupted
            try:
                self._step(act, columns, t, finals)
            except Exception:
                # Environments must not be blamed for what the agent did.
                _check_actions(columns["actions"][: t + 1], self._shard.start)
                raise
        observations[-1] = self._next_observations
        return columns, finals

    def _allocate(self, num_steps: int) -> dict[str, np.ndarray]:
        shape = (num_steps, self.num_envs)
        observation, action = self.venv.single_observation_space, self.venv.single_action_space
        is_float = np.issubdtype(observation.dtype, np.floating)
        observation_dtype = (
            np.float32 if is_float or observation.dtype is None else observation.dtype
        )
        # One more step, for the next observations of the last one.
        observation_shape = (num_steps + 1, self.num_envs, *(observation.shape or ()))
        action_dtype = np.float32 if isinstance(action, gym.spaces.Box) else np.int64
        columns = {
            "observations": self._pool.empty(observation_shape, observation_dtype),
            # Zeros, since these are checked even if the first step fails.
            "actions": np.zeros((*shape, *(action.shape or ())), action_dtype),
            "rewards": np.empty(shape, np.float32),
            "terminated": np.empty(shape, bool),
            "truncated": np.empty(shape, bool),
            "is_valid": np.empty(shape, bool),
            "scene_states": np.empty((*shape, self._scene_states().shape[1])),
        }
        if self._masks is not None:
            columns["action_masks"] = np.empty((*shape, self._masks.shape[1]), bool)
        if self._shows_lives:
            columns["lost_life"] = np.empty(shape, bool)
        return columns

    def _scene_states(self) -> Shaped[np.ndarray, "env scene"]:
        states = getattr(self.venv, "scene_states", None)
        return np.empty((self.num_envs, 0)) if states is None else states

    def _step(
        self, act: Act, columns: dict[str, np.ndarray], t: int, finals: FinalObservations
    ) -> None:
        columns["scene_states"][t] = self._scene_states()
        columns["is_valid"][t] = ~self._resets_next
        if self._masks is None:
            actions = act(self._observations)
        else:
            columns["action_masks"][t] = self._masks
            actions = act(self._observations, self._masks)
        columns["actions"][t] = actions
        if self._integer_dtype is not None:
            actions = np.rint(actions).astype(self._integer_dtype)
        venv: Any = self.venv
        is_async = hasattr(venv, "begin_step")
        if is_async:
            venv.begin_step(actions)
        # Images are copied while the emulators work, if these step asynchronously.
        columns["observations"][t] = self._observations
        step = venv.end_step() if is_async else venv.step(actions)
        observations, rewards, terminated, truncated, step_infos = step
        self._masks = updated_masks(self._masks, step_infos)
        columns["rewards"][t] = rewards
        ended = terminated | truncated
        columns["terminated"][t] = False if self._hide_terminations else terminated
        columns["truncated"][t] = ended if self._hide_terminations else truncated
        if self._shows_lives:
            columns["lost_life"][t] = step_infos["lost_life"]
        self._observations = self._next_observations = observations
        self._resets_next = self._ignores_action(step_infos)
        if self._mode == AutoresetMode.NEXT_STEP:
            self._resets_next |= ended
        elif ended.any():
            self._separate_episodes(ended, step_infos)
            ended_envs = np.nonzero(ended)[0].tolist()
            finals += [(t, env, self._next_observations[env]) for env in ended_envs]

    def _separate_episodes(self, ended: np.ndarray, infos: Mapping[str, Any]) -> None:
        """Set the last observations of ended episodes and the first ones of the next episodes."""
        self._next_observations = np.array(self._observations)
        if self._mode == AutoresetMode.SAME_STEP:
            for env in np.nonzero(ended)[0]:
                self._next_observations[env] = infos["final_obs"][env]
        else:
            self._observations, infos = self.venv.reset(options={"reset_mask": ended})
            self._masks = updated_masks(self._masks, infos)

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, between two rollouts."""
        own = {
            "observations": np.asarray(self._observations),
            "resets_next": self._resets_next,
            "rng": rng_to_array(self._rng),
        }
        if self._masks is not None:
            own["masks"] = self._masks
        # Only environments of envs.registry.make_vector can be saved.
        venv: Any = self.venv
        return nest({"self": own, "envs": venv.get_state()})

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state of all environments of the run."""
        own, of_envs = part_of(state, "self"), part_of(state, "envs")
        shard, venv = self._shard, cast("Any", self.venv)
        if len(shard) < shard.num_envs:
            of_envs = slice_state(of_envs, shard.start, shard.stop)
        venv.set_state(of_envs)
        self._observations = own["observations"][shard.rows].copy()
        self._resets_next = own["resets_next"][shard.rows].copy()
        array_to_rng(self._rng, own["rng"])
        self._masks = own["masks"][shard.rows].copy() if "masks" in own else None

    def close(self) -> None:
        """Close the environments."""
        self.venv.close()


def first_masks(action_space: gym.Space, num_envs: int, infos: Mapping[str, Any]) -> Masks:
    """Return the masks that N environments reported when they were reset; None without any."""
    if ACTION_MASK not in infos or not isinstance(action_space, gym.spaces.Discrete):
        return None
    return updated_masks(np.ones((num_envs, int(action_space.n)), bool), infos)


def updated_masks(masks: Masks, infos: Mapping[str, Any]) -> Masks:
    """Return the masks, replaced where the environments reported new ones; None without any."""
    if masks is None:
        return None
    given, is_given = infos.get(ACTION_MASK, ()), infos.get(f"_{ACTION_MASK}")
    updated = masks.copy()
    for env in range(len(given)):
        if is_given is None or is_given[env]:
            updated[env] = np.asarray(given[env], bool)
    return updated


def assemble_rollout(
    columns: dict[str, np.ndarray], finals: FinalObservations, pool: ArrayPool
) -> Rollout:
    """Join the parts from `Collector.collect_columns` to a rollout, and check its numbers.

    Raises:
        BadObservation: an observation or reward is NaN or infinite.
        Diverged: the actions were, before that.
    """
    # Within an episode, the next observation is the observation of the next step, so both columns
    # are views of one array. Images are large, and copies would slow down emulators.
    observations = columns["observations"]
    next_observations = observations[1:]
    if finals:
        next_observations = pool.empty(observations[1:].shape, observations.dtype)
        next_observations[:] = observations[1:]
        for t, env, observation in finals:
            next_observations[t, env] = observation
    given = columns | {"observations": observations[:-1], "next_observations": next_observations}
    rollout = Rollout(**given)
    _check_actions(rollout.actions)
    _check_returned(rollout)
    return rollout


def _check_actions(actions: Shaped[np.ndarray, "time env ..."], first_env: int = 0) -> None:
    """Check that the agent's actions are finite, before the observations that follow from them.

    Args:
        actions: actions of consecutive environments.
        first_env: number of the first one.
    """
    if np.issubdtype(actions.dtype, np.floating) and not np.isfinite(actions).all():
        t, env, *_ = np.argwhere(~np.isfinite(actions))[0]
        raise agent_diverged(
            f"its action in environment number {first_env + env} is {actions[t, env]} (step {t} of "
            "the rollout)",
            "its learning rate",
        )


def _check_returned(rollout: Rollout) -> None:
    """Check that the environments returned finite observations and rewards."""
    for name in ("next_observations", "observations", "rewards"):
        check_numbers(name.replace("_", " "), getattr(rollout, name), env_axis=1)
