"""Gymnasium environments with a state that can be saved.

Most environments cannot export their state but are deterministic. Restoring replays the running
episodes from their records. Clips of environments without MuJoCo are rendered in the same way.
"""

import copy
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from jaxtyping import Float, Int, Shaped

from rl_teacher.common.errors import BadConfig, BadObservation
from rl_teacher.envs.episode_replay import (
    KEEP_STEPS,
    ReplayHistory,
    ReplayRecord,
    actions_of,
    find_record,
    histories_of,
    pack_replays,
    unpack_histories,
    unpack_running,
)
from rl_teacher.envs.factories import find_time_limits, time_limit_of
from rl_teacher.envs.interface import (
    Shard,
    StatefulVectorEnv,
    check_saved_state,
    checked_elapsed,
    generator_at,
)

logger = logging.getLogger(__name__)


class ReplayableEnv(gymnasium.Wrapper):
    """A wrapper that records how the running episode was reset and every action since."""

    def __init__(self, env: gymnasium.Env, history: ReplayHistory) -> None:
        super().__init__(env)
        self.episode = -1
        self._history = history
        self._is_drawn_from_positions = mujoco_of(env) is not None
        self._reset_state: dict[str, Any] = {}
        self._actions: list[np.ndarray] = []

    @property
    def replay_record(self) -> ReplayRecord:
        """The record of the running episode."""
        return ReplayRecord(self._reset_state, actions_of(self._actions, self.action_space))

    @property
    def scene_state(self) -> Float[np.ndarray, " scene"]:
        """[K] MuJoCo's qpos, and the positions of mocap and of static bodies.

        An environment may move static bodies between episodes. Without MuJoCo [2], numbers of the
        episode and the step in it.
        """
        if (simulation := mujoco_of(self)) is not None:
            model, data = simulation
            static = model.body_pos[static_bodies(model)]
            return np.concatenate([data.qpos, data.mocap_pos.ravel(), static.ravel()])
        return np.array([self.episode, len(self._actions)], dtype=np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and record its reset."""
        if self._actions and not self._is_drawn_from_positions:
            self._history.end_episode(self.episode, self.replay_record)
        rng = None if seed is not None else generator_state(self.unwrapped.np_random)
        self.episode = self._history.start_episode()
        self._reset_state = {"seed": seed, "rng": rng, "elapsed": 0}
        if options:
            self._reset_state["options"] = copy.deepcopy(options)
        self._actions = []
        # A used Box2D world keeps state of earlier episodes. Gymnasium's LunarLander renews its own
        # (Gymnasium's issue 728), its BipedalWalker does not.
        own: Any = self.unwrapped
        world: Any = getattr(own, "world", None)
        destroy = getattr(own, "_destroy", None)
        if type(world).__module__.startswith("Box2D") and destroy is not None:
            destroy()
            own.world = type(world)(gravity=world.gravity)
        obs, reset_info = super().reset(seed=seed, options=options)
        self._check_shape(obs)
        return obs, reset_info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step and record its action."""
        if isinstance(self.action_space, gymnasium.spaces.Box):
            # Of the recorded type, so that a replay gives the same results; a copy, since
            # environments may change it.
            action = np.array(action, self.action_space.dtype)
        self._actions.append(np.array(action))
        self._history.count_step()
        obs, reward, terminated, truncated, step_info = super().step(action)
        self._check_shape(obs)
        if terminated or truncated:
            # Environments may write the first observation of the next episode to the same array.
            obs = copy.deepcopy(obs)
        return obs, reward, terminated, truncated, step_info

    def _check_shape(self, obs: Any) -> None:
        # Spaces of several parts, such as Dict, have no shape.
        if self.observation_space.shape not in (None, np.shape(obs)):
            name = type(self.unwrapped).__name__ if self.spec is None else self.spec.id
            raise BadObservation(
                f"{name} returned an observation of shape {np.shape(obs)}, and observation_space "
                f"declares {self.observation_space.shape}. Make all observations of one shape."
            )

    def start_at(self, elapsed_steps: int) -> None:
        """Set the step count of the running episode's time limits, if it has any."""
        for time_limit in find_time_limits(self):
            self._reset_state["elapsed"] = elapsed_steps
            # TimeLimit has no public setter.
            time_limit._elapsed_steps = elapsed_steps

    def restart(self, reset_state: Mapping[str, Any]) -> Any:
        """Repeat the reset of an episode and return its first observation."""
        if (state := reset_state["rng"]) is not None:
            # Without a seed, `reset` draws from the generator as it is.
            unwrapped: Any = self.unwrapped
            if "has_gauss" in state:  # of a RandomState
                unwrapped.np_random = np.random.RandomState()
                unwrapped.np_random.set_state(state)
            else:
                unwrapped.np_random = generator_at(state)
        obs, _ = self.reset(seed=reset_state["seed"], options=reset_state.get("options"))
        self.start_at(reset_state["elapsed"])
        return obs

    def replay(self, record: ReplayRecord) -> Any:
        """Replay an episode and return its last observation."""
        obs = self.restart(record.reset_state)
        for action in record.actions:
            obs, *_ = self.step(action)
        return obs


class ReplayVectorEnv(SyncVectorEnv, StatefulVectorEnv):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Gymnasium's sequential vector environment with replay records as its state.

    All actions of a running episode are kept, so memory grows without bound in an environment
    without a time limit.
    """

    envs: list[ReplayableEnv]  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        make_env: Callable[[], gymnasium.Env],
        num_envs: int,
        keep_steps: int = KEEP_STEPS,
        shard: Shard | None = None,
    ) -> None:
        """Create N environments.

        Args:
            make_env: creates one environment.
            num_envs: N.
            keep_steps: an episode's record is kept until this many steps, counted over all
                environments, were taken after its end. None are kept where there is MuJoCo.
            shard: which of the environments of a run these are; by default all of them.
        """
        if num_envs < 1:
            raise BadConfig(f"num_envs is {num_envs}; at least 1 is needed.")
        shard = shard or Shard(0, num_envs, num_envs)
        self._histories = histories_of(shard, keep_steps)
        super().__init__(
            [lambda own=own: ReplayableEnv(make_env(), own) for own in self._histories],
            autoreset_mode=AutoresetMode.SAME_STEP,
        )

    @property
    def scene_states(self) -> Float[np.ndarray, "env scene"]:
        """[N, nq] current positions in MuJoCo; without MuJoCo [N, 2], see `replay_record`."""
        return np.stack([env.scene_state for env in self.envs])

    def replay_record(self, episode: int) -> ReplayRecord:
        """Return the record of an episode, from which clips without MuJoCo are rendered.

        Args:
            episode: the first of the two numbers in `scene_states`; the second is the step in it.

        Raises:
            LookupError: the episode finished more than `keep_steps` steps ago.
        """
        for env in self.envs:
            if env.episode == episode:
                return env.replay_record
        return find_record(self._histories, episode)

    @property
    def observations(self) -> Shaped[np.ndarray, "env ..."]:
        """[N, ...] the latest observations, which later steps do not overwrite."""
        return np.array(self._observations)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes; `options["elapsed_steps"]` sets the initial step counts.

        `options["reset_mask"]` selects the environments, as in Gymnasium.
        """
        others = dict(options or {})
        elapsed_steps = others.pop("elapsed_steps", None)
        is_reset = np.array(others.get("reset_mask", np.ones(self.num_envs)), np.bool_)
        if isinstance(seed, np.integer):  # Gymnasium accepts plain integers and lists only
            seed = int(seed)
        seeds = seed if seed is None or isinstance(seed, int) else list(seed)
        obs, infos = super().reset(seed=seeds, options=others or None)
        longest = time_limit_of(self.envs[0])
        if elapsed_steps is not None and longest is not None:
            elapsed = checked_elapsed(elapsed_steps, self.num_envs, longest)
            for index in np.flatnonzero(is_reset):
                self.envs[index].start_at(int(elapsed[index]))
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments; finished episodes are reset in the same step."""
        obs, rewards, terminated, truncated, infos = super().step(actions)
        if "final_obs" in infos:  # None where no episode ended; make it dense
            next_obs = obs.copy()
            for index in np.flatnonzero(infos["_final_obs"]):
                next_obs[index] = infos["final_obs"][index]
            infos["final_obs"] = next_obs
        return obs, rewards, terminated, truncated, infos

    def _add_info(
        self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int
    ) -> dict[str, Any]:
        """Add the info of one environment; values that do not fit into one array become objects."""
        for name, value in env_info.items():
            try:
                vector_infos = super()._add_info(vector_infos, {name: value}, env_num)
            except (AttributeError, OverflowError, TypeError, ValueError):
                # Gymnasium expects that all values are like the first one.
                is_given = vector_infos.get(f"_{name}", np.zeros(self.num_envs, np.bool_))
                objects = np.full(self.num_envs, None, object)
                for index in np.flatnonzero(is_given):
                    objects[index] = vector_infos[name][index]
                objects[env_num], is_given[env_num] = value, True
                vector_infos |= {name: objects, f"_{name}": is_given}
        return vector_infos

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the records of the running episodes and the history."""
        return {
            **pack_replays([env.replay_record for env in self.envs], self._histories),
            "episodes": np.array([env.episode for env in self.envs]),
            "observations": self.observations,
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a state by replaying its running episodes.

        Raises:
            CorruptCheckpoint: the state is incomplete or has another number of environments.
        """
        check_saved_state(state, self.get_state())
        replayed = [
            env.replay(record) for env, record in zip(self.envs, unpack_running(state), strict=True)
        ]
        # Private fields of SyncVectorEnv, from which its next step continues. `reset` and `step`
        # convert observations to the declared type, too.
        self._observations = np.array(replayed, self.single_observation_space.dtype)
        self._env_obs = list(self._observations)
        self._terminations[:] = self._truncations[:] = False
        self._autoreset_envs = np.zeros(self.num_envs, dtype=np.bool_)
        if not np.array_equal(self.observations, state["observations"], equal_nan=True):
            logger.warning(
                "Replaying %s did not reproduce the saved observations: the environment is not "
                "deterministic. The run continues, but differs from an uninterrupted one.",
                self.envs[0],
            )
        # Only now: replaying counted steps and numbered episodes.
        unpack_histories(self._histories, state)
        for env, episode in zip(self.envs, state["episodes"].tolist(), strict=True):
            env.episode = episode


def generator_state(rng: np.random.Generator | np.random.RandomState) -> dict[str, Any]:
    """Return the state of a generator, possibly dm_control's legacy one, as JSON values."""
    is_legacy = isinstance(rng, np.random.RandomState)
    state: Any = rng.get_state(legacy=False) if is_legacy else rng.bit_generator.state
    # Some states contain arrays.
    return json.loads(json.dumps(state, default=np.ndarray.tolist))


def mujoco_of(env: gymnasium.Env) -> tuple[Any, Any] | None:
    """Return MuJoCo's model and data; None for an environment without MuJoCo."""
    # dm_control's `physics` wraps both.
    owner = getattr(env.unwrapped, "physics", env.unwrapped)
    model, data = (getattr(owner, name, None) for name in ("model", "data"))
    model, data = getattr(model, "ptr", model), getattr(data, "ptr", data)
    # By the name of the type's module: importing MuJoCo is slow, and other environments have a
    # neural network as their `model`.
    is_mujoco = type(model).__module__.startswith("mujoco") and hasattr(data, "qpos")
    return (model, data) if is_mujoco else None


def static_bodies(model: Any) -> Int[np.ndarray, " body"]:
    """Return the bodies, without the world, that only an environment itself moves."""
    return 1 + np.flatnonzero(model.body_weldid[1:] == 0)
