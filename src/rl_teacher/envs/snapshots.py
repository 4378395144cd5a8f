"""Gymnasium's own environments, with a state that can be saved.

Most of them cannot hand over their state, but are deterministic: restoring lives the running
episodes again, by their records. The clips of those without MuJoCo are made in the same way.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from jaxtyping import Float, Shaped

from rl_teacher.common.errors import BadConfig, CorruptCheckpoint
from rl_teacher.common.state_dict import nest, part_of
from rl_teacher.envs.episode_replay import (
    KEEP_STEPS,
    ReplayHistory,
    ReplayRecord,
    actions_of,
    pack_replay_records,
    unpack_replay_records,
)
from rl_teacher.envs.interface import StatefulVectorEnv, checked_elapsed, generator_at

logger = logging.getLogger(__name__)


class ReplayableEnv(gymnasium.Wrapper):
    """Remembers how the running episode began, and every action since."""

    def __init__(self, env: gymnasium.Env, book: ReplayHistory) -> None:
        super().__init__(env)
        self.episode = -1
        self._book = book
        self._is_drawn_from_positions = mujoco_positions(env) is not None
        self._beginning: dict[str, Any] = {}
        self._actions: list[np.ndarray] = []

    @property
    def replay_record(self) -> ReplayRecord:
        """Of the running episode."""
        return ReplayRecord(self._beginning, actions_of(self._actions, self.action_space))

    @property
    def scene_state(self) -> Float[np.ndarray, " scene"]:
        """[nq] MuJoCo's positions; without MuJoCo [2], the episode's number and the step in it."""
        if self._is_drawn_from_positions:
            return np.array(mujoco_positions(self), dtype=np.float64)
        return np.array([self.episode, len(self._actions)], dtype=np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, and remember how."""
        if self._actions and not self._is_drawn_from_positions:
            self._book.end(self.episode, self.replay_record)
        rng = None if seed is not None else self.unwrapped.np_random.bit_generator.state
        self.episode = self._book.begin()
        self._beginning = {"seed": seed, "rng": rng, "elapsed": 0}
        self._actions = []
        _renew_world(self.unwrapped)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, and remember the action."""
        self._actions.append(np.array(action))
        self._book.live()
        return super().step(action)

    def start_at(self, elapsed_steps: int) -> None:
        """Count the running episode's steps from here, if something counts them."""
        time_limit = _time_limit(self)
        if time_limit is not None:
            self._beginning["elapsed"] = elapsed_steps
            time_limit._elapsed_steps = elapsed_steps

    def begin_again(self, beginning: Mapping[str, Any]) -> Any:
        """Begin an episode as it began before; returns its first observation."""
        if beginning["rng"] is not None:
            self.unwrapped.np_random = generator_at(beginning["rng"])
        obs, _ = self.reset(seed=beginning["seed"])
        self.start_at(beginning["elapsed"])
        return obs

    def replay(self, record: ReplayRecord) -> Any:
        """Live an episode again; returns its last observation."""
        obs = self.begin_again(record.beginning)
        for action in record.actions:
            obs, *_ = self.step(action)
        return obs


class ReplayVectorEnv(SyncVectorEnv, StatefulVectorEnv):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Gymnasium's sequential vector environment, made teachable.

    Note: a running episode's actions are all kept, so an environment without a time limit needs
    memory without a limit.
    """

    envs: list[ReplayableEnv]  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        make_env: Callable[[], gymnasium.Env],
        num_envs: int,
        keep_steps: int = KEEP_STEPS,
    ) -> None:
        """Make them.

        Args:
            make_env: one of them.
            num_envs: N.
            keep_steps: an episode's record is kept until this many steps, counted over all
                environments, were lived after its end. None are kept where there is MuJoCo.
        """
        if num_envs < 1:
            raise BadConfig(f"{num_envs} environments were asked for; ask for 1 or more.")
        self._book = ReplayHistory(keep_steps)
        super().__init__(
            [lambda: ReplayableEnv(make_env(), self._book)] * num_envs,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )

    @property
    def scene_states(self) -> Float[np.ndarray, "env scene"]:
        """[N, nq] MuJoCo's positions now; without MuJoCo [N, 2], see `record`."""
        return np.stack([env.scene_state for env in self.envs])

    def replay_record(self, episode: int) -> ReplayRecord:
        """How an episode is lived again; without MuJoCo, clips are drawn so.

        Args:
            episode: the first of the two numbers in `scene_states`; the second is the step in it.

        Raises:
            LookupError: it ended longer than `keep_steps` ago.
        """
        for env in self.envs:
            if env.episode == episode:
                return env.replay_record
        return self._book[episode]

    @property
    def observations(self) -> Shaped[np.ndarray, "env ..."]:
        """[N, ...] what the last `reset`, `step` or `set_state` led to."""
        return np.asarray(self._observations)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes; `options["elapsed_steps"]` is where the step counters start."""
        others = dict(options or {})
        elapsed_steps = others.pop("elapsed_steps", None)
        obs, infos = super().reset(seed=_plain_seed(seed), options=others or None)
        if elapsed_steps is not None:
            self._stagger(elapsed_steps)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of every environment; ended episodes begin anew."""
        obs, rewards, terminated, truncated, infos = super().step(actions)
        if "final_obs" in infos:
            infos["final_obs"] = _dense(infos["final_obs"], infos["_final_obs"], obs)
        return obs, rewards, terminated, truncated, infos

    def get_state(self) -> dict[str, np.ndarray]:
        """The records of the running episodes, and of those that are kept."""
        running = pack_replay_records(
            [env.replay_record for env in self.envs], self.single_action_space
        )
        return {
            **running,
            "episodes": np.array([env.episode for env in self.envs]),
            "observations": self.observations.copy(),
            **nest({"book": self._book.get_state(self.single_action_space)}),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Replay the episodes that `get_state` described."""
        missing = self.get_state().keys() - state.keys()
        if missing:
            raise CorruptCheckpoint(
                f"The environments' saved {', '.join(sorted(missing))} is missing."
            )
        running = unpack_replay_records(state)
        if len(running) != self.num_envs:
            raise CorruptCheckpoint(
                f"{len(running)} environments were saved; {self.num_envs} are needed."
            )
        self._adopt(np.stack([env.replay(r) for env, r in zip(self.envs, running, strict=True)]))
        self._warn_unless_observing(state["observations"])
        # Note: after replaying, which counts as living.
        self._book.set_state(part_of(state, "book"))
        for env, episode in zip(self.envs, state["episodes"].tolist(), strict=True):
            env.episode = episode

    def _warn_unless_observing(self, saved: Shaped[np.ndarray, "env ..."]) -> None:
        if not np.array_equal(self.observations, saved, equal_nan=True):
            logger.warning(
                "%s did not replay to the saved observations: it is not deterministic. "
                "The run goes on, but not as it would have.",
                self.envs[0],
            )

    def _stagger(self, elapsed_steps: Any) -> None:
        spec = self.envs[0].spec
        max_episode_steps = spec.max_episode_steps if spec is not None else None
        if max_episode_steps is not None:
            elapsed = checked_elapsed(elapsed_steps, self.num_envs, max_episode_steps)
            for env, steps in zip(self.envs, elapsed.tolist(), strict=True):
                env.start_at(steps)

    def _adopt(self, observations: Shaped[np.ndarray, "env ..."]) -> None:
        """Make these the current observations, with no episode ended."""
        self._env_obs = list(observations)
        self._observations = observations
        self._terminations[:] = False
        self._truncations[:] = False
        self._autoreset_envs = np.zeros(self.num_envs, dtype=np.bool_)


def _plain_seed(seed: int | Sequence[int | None] | None) -> int | list[int | None] | None:
    if seed is None or isinstance(seed, int):
        return seed
    return int(seed) if isinstance(seed, np.integer) else list(seed)


def _dense(
    final_obs: Shaped[np.ndarray, "..."],
    is_final: Shaped[np.ndarray, " env"],
    obs: Shaped[np.ndarray, "env ..."],
) -> Shaped[np.ndarray, "env ..."]:
    """[N, ...] what every action led to, before any reset."""
    led_to = obs.copy()
    for index in np.flatnonzero(is_final):
        led_to[index] = final_obs[index]
    return led_to


def _renew_world(env: gymnasium.Env) -> None:
    """Give a Box2D environment a new world, because a used one remembers earlier episodes.

    Gymnasium's LunarLander does so itself (its issue 728), its BipedalWalker does not.
    """
    world, destroy = getattr(env, "world", None), getattr(env, "_destroy", None)
    if world is not None and destroy is not None:
        destroy()
        env.world = type(world)(gravity=world.gravity)  # pyright: ignore[reportAttributeAccessIssue]


def _time_limit(env: gymnasium.Env) -> TimeLimit | None:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return env
        env = env.env
    return None


def mujoco_positions(env: gymnasium.Env) -> Float[np.ndarray, " nq"] | None:
    """MuJoCo's qpos, live; None where there is no MuJoCo to draw poses with.

    Note: by the type's module, since importing MuJoCo for an environment without it is slow, and
    others call a neural network their model.
    """
    model = getattr(env.unwrapped, "model", None)
    if not type(model).__module__.startswith("mujoco"):
        return None
    return getattr(getattr(env.unwrapped, "data", None), "qpos", None)
