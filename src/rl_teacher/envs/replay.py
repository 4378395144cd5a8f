"""Gymnasium's own environments, with a state that can be saved.

Most of them cannot hand over their state, but are deterministic: the generator as it was before an
episode's reset and the actions since say everything. Restoring replays the running episodes.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from jaxtyping import Float, Shaped

from rl_teacher.envs.teachable import TeachableVectorEnv, checked_elapsed, generator_at
from rl_teacher.errors import BadConfig, CorruptCheckpoint
from rl_teacher.named_arrays import array_to_text, text_to_array

logger = logging.getLogger(__name__)


class EpisodeMemory(gymnasium.Wrapper):
    """Remembers how the running episode began, and every action since."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.beginning: dict[str, Any] = {}
        self.actions: list[np.ndarray] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, and remember how."""
        rng = None if seed is not None else self.unwrapped.np_random.bit_generator.state
        self.beginning = {"seed": seed, "rng": rng, "elapsed": 0}
        self.actions = []
        _renew_world(self.unwrapped)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, and remember the action."""
        self.actions.append(np.array(action))
        return super().step(action)

    def start_at(self, elapsed_steps: int) -> None:
        """Count the running episode's steps from here, if something counts them."""
        time_limit = _time_limit(self)
        if time_limit is not None:
            self.beginning["elapsed"] = elapsed_steps
            time_limit._elapsed_steps = elapsed_steps

    def replay(self, beginning: dict[str, Any], actions: Shaped[np.ndarray, "time ..."]) -> Any:
        """Live an episode again; returns its last observation."""
        if beginning["rng"] is not None:
            self.unwrapped.np_random = generator_at(beginning["rng"])
        obs, _ = self.reset(seed=beginning["seed"])
        self.start_at(beginning["elapsed"])
        for action in actions:
            obs, *_ = self.step(action)
        return obs


class ReplayVectorEnv(SyncVectorEnv, TeachableVectorEnv):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Gymnasium's sequential vector environment, made teachable.

    Note: an episode's actions are kept until it ends, so an environment without a time limit
    needs memory without a limit.
    """

    envs: list[EpisodeMemory]  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, make_env: Callable[[], gymnasium.Env], num_envs: int) -> None:
        if num_envs < 1:
            raise BadConfig(f"{num_envs} environments were asked for; ask for 1 or more.")
        super().__init__(
            [lambda: EpisodeMemory(make_env())] * num_envs,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )

    @property
    def scene_states(self) -> Float[np.ndarray, "env scene"]:
        """[N, nq] positions now, or [N, 0] where there is no MuJoCo."""
        return np.stack([_scene_state(env) for env in self.envs])

    @property
    def observations(self) -> Shaped[np.ndarray, "env obs"]:
        """[N, D] what the last `reset`, `step` or `set_state` led to."""
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
        """How every running episode began, and the actions since."""
        lengths = np.array([len(env.actions) for env in self.envs])
        return {
            "beginnings": text_to_array(json.dumps([env.beginning for env in self.envs])),
            "lengths": lengths,
            "actions": self._all_actions(),
            "observations": self.observations.copy(),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Replay the episodes that `get_state` described."""
        missing = {"beginnings", "lengths", "actions", "observations"} - state.keys()
        if missing:
            raise CorruptCheckpoint(
                f"The environments' saved {', '.join(sorted(missing))} is missing."
            )
        beginnings = json.loads(array_to_text(state["beginnings"]))
        if len(beginnings) != self.num_envs:
            raise CorruptCheckpoint(
                f"{len(beginnings)} environments were saved; {self.num_envs} are needed."
            )
        episodes = np.split(state["actions"], np.cumsum(state["lengths"])[:-1])
        observations = [
            env.replay(beginning, actions)
            for env, beginning, actions in zip(self.envs, beginnings, episodes, strict=True)
        ]
        self._adopt(np.stack(observations))
        if not np.array_equal(self.observations, state["observations"], equal_nan=True):
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

    def _adopt(self, observations: Shaped[np.ndarray, "env obs"]) -> None:
        """Make these the current observations, with no episode ended."""
        self._env_obs = list(observations)
        self._observations = observations
        self._terminations[:] = False
        self._truncations[:] = False
        self._autoreset_envs = np.zeros(self.num_envs, dtype=np.bool_)

    def _all_actions(self) -> Shaped[np.ndarray, "step ..."]:
        taken = [action for env in self.envs for action in env.actions]
        space = self.single_action_space
        return np.array(taken, dtype=space.dtype).reshape(-1, *(space.shape or ()))


def _plain_seed(seed: int | Sequence[int | None] | None) -> int | list[int | None] | None:
    if seed is None or isinstance(seed, int):
        return seed
    return int(seed) if isinstance(seed, np.integer) else list(seed)


def _dense(
    final_obs: Shaped[np.ndarray, "..."],
    is_final: Shaped[np.ndarray, " env"],
    obs: Shaped[np.ndarray, "env obs"],
) -> Shaped[np.ndarray, "env obs"]:
    """[N, D] what every action led to, before any reset."""
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


def _scene_state(env: gymnasium.Env) -> Float[np.ndarray, " scene"]:
    mujoco_data = getattr(env.unwrapped, "data", None)
    qpos = getattr(mujoco_data, "qpos", None)
    return np.zeros(0) if qpos is None else np.array(qpos, dtype=np.float64)
