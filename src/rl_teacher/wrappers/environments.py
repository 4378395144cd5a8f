"""Description of the wrapped environments, and scene states from which their clips are rendered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from jaxtyping import Float, Shaped

from rl_teacher.common.errors import BadInput
from rl_teacher.envs.episode_replay import (
    KEEP_STEPS,
    ReplayHistory,
    ReplayRecord,
    SupportsReplay,
    find_record,
)
from rl_teacher.envs.factories import frame_rate, time_limit_of
from rl_teacher.envs.mujoco.suite import TASKS
from rl_teacher.envs.preprocessing import ImagePreprocessing, find_part_fault
from rl_teacher.envs.registry import EnvInfo
from rl_teacher.envs.snapshots import ReplayableEnv, mujoco_of
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.wrappers.observations import ObservationConverter
from rl_teacher.wrappers.settings import WrapperSettings

SceneStates = Callable[[], Float[np.ndarray, "env scene"]]


@dataclass(frozen=True)
class WrappedEnvs:
    """N wrapped environments.

    Attributes:
        env_info: metadata of the environments.
        num_envs: N, the number of environments.
        converter: conversion of observations to inputs of the predictor.
        action_space: space of one action.
        autoreset_mode: autoreset mode; DISABLED where the caller resets.
        scene_states: returns the scene states from which clips are rendered.
        replayer: replays episodes for rendering; None where no replay is needed.
        is_replay_verified: whether a replay must reproduce the observations. It cannot if they were
            converted outside the environments that are replayed.
    """

    env_info: EnvInfo
    num_envs: int
    converter: ObservationConverter
    action_space: gym.Space
    autoreset_mode: AutoresetMode
    scene_states: SceneStates
    replayer: SupportsReplay | None = None
    is_replay_verified: bool = True

    @property
    def input_space(self) -> InputSpace:
        """Input space of the predictor.

        Raises:
            BadInput: the predictor does not support the action space.
        """
        if (fault := find_part_fault(self.action_space)) is not None:
            raise BadInput(f"The action space is {self.action_space}; it {fault}. Wrap it.")
        return InputSpace.from_spaces(self.converter.space, self.action_space)

    def actions(self, actions: object) -> Shaped[np.ndarray, "env ..."]:
        """Return copies of actions [N, ...] with the type that segments have."""
        is_box = isinstance(self.action_space, gym.spaces.Box)
        copied = np.array(actions, np.float32 if is_box else np.int64)
        return copied.reshape(self.num_envs, *(self.action_space.shape or ()))


def describe_env(env: gym.Env, settings: WrapperSettings) -> tuple[gym.Env, WrappedEnvs]:
    """Describe one environment; wrap it to record its episodes if a person labels.

    Raises:
        BadInput: a person labels, and the clips cannot be rendered.
    """
    scene_states, replayer = empty_scene_states(1), None
    env_info = info_of(env.spec, env, env.metadata)
    if settings.asks_a_person:
        check_renderable(env)
        history = ReplayHistory(KEEP_STEPS)
        env = ReplayableEnv(env, history)
        replayer = EpisodeRecords([env], history)
        scene_states = replayer.scene_states
    return env, WrappedEnvs(
        env_info=env_info,
        num_envs=1,
        converter=ObservationConverter(env.observation_space, None, settings.observation_transform),
        action_space=env.action_space,
        autoreset_mode=(
            AutoresetMode.NEXT_STEP
            if has_wrapper(env, gym.wrappers.Autoreset)
            else AutoresetMode.DISABLED
        ),
        scene_states=scene_states,
        replayer=replayer,
        is_replay_verified=settings.observation_transform is None,
    )


def describe_vector(venv: VectorEnv, settings: WrapperSettings) -> WrappedEnvs:
    """Describe a vector of environments; record their episodes if a person labels.

    Raises:
        BadInput: a person labels, and the clips cannot be rendered.
    """
    inner, scene_states, replayer = venv.unwrapped, empty_scene_states(venv.num_envs), None
    if settings.asks_a_person:
        scene_states, replayer = record_vector(inner)
    first = first_env(inner)
    env_info = info_of(venv.spec or first.spec, first, venv.metadata)
    # `registry.make_vector` preprocesses images.
    is_converted = venv is not inner or has_wrapper(first, ImagePreprocessing)
    return WrappedEnvs(
        env_info=env_info,
        num_envs=venv.num_envs,
        converter=ObservationConverter(
            venv.single_observation_space, venv.observation_space, settings.observation_transform
        ),
        action_space=venv.single_action_space,
        autoreset_mode=venv.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP),
        scene_states=scene_states,
        replayer=replayer,
        is_replay_verified=settings.observation_transform is None and not is_converted,
    )


def first_env(inner: VectorEnv) -> gym.Env | VectorEnv:
    """Return the first environment of a vector, or the vector if it has none of its own.

    The environments of an AsyncVectorEnv, which has no `spec` unless `gymnasium.make_vec` creates
    it, are in other processes, so that a closed copy is returned.
    """
    if isinstance(inner, SyncVectorEnv):
        return inner.envs[0]
    if isinstance(inner, AsyncVectorEnv) and inner.spec is None:
        env = inner.env_fns[0]()
        env.close()
        return env
    return inner


def has_wrapper(env: gym.Env | VectorEnv, kind: type) -> bool:
    """Return whether an environment has a wrapper of this type, possibly inside others."""
    while isinstance(env, gym.Wrapper | VectorWrapper) and not isinstance(env, kind):
        env = env.env
    return isinstance(env, kind)


def info_of(spec: EnvSpec | None, env: gym.Env | VectorEnv, metadata: Mapping[str, Any]) -> EnvInfo:
    """Return the metadata of a user's environment.

    Args:
        spec: registration of the environment; None if Gymnasium did not create it.
        env: the environment, or a vector that does not give access to its environments.
        metadata: metadata with the frame rate, if one is declared.

    Raises:
        BadInput: the frame rate is no positive number.
    """
    env_id = type(env.unwrapped).__name__ if spec is None else spec.id
    longest = None if spec is None else spec.max_episode_steps
    if isinstance(env, gym.Env):
        longest = time_limit_of(env)
    task = TASKS.get(env_id.removeprefix("rl_teacher/"))
    return EnvInfo(
        id=env_id,
        fps=task.body.fps if task else frame_rate(env_id, metadata),
        max_episode_steps=longest,
        can_terminate=task is None or task.can_terminate,
        backend="gymnasium" if task is None else "batch",
        description=env_id,
    )


# --- scene states for clips ---


class EpisodeRecords:
    """Replay records and scene states of N environments."""

    def __init__(self, envs: Sequence[ReplayableEnv], history: ReplayHistory) -> None:
        self._envs = envs
        self._history = history

    def replay_record(self, episode: int) -> ReplayRecord:
        """See `SupportsReplay`."""
        for env in self._envs:
            if env.episode == episode:
                return env.replay_record
        return find_record([self._history], episode)

    def scene_states(self) -> Float[np.ndarray, "env scene"]:
        """Return MuJoCo positions [N, K]; without MuJoCo episode and step numbers [N, 2]."""
        return np.stack([env.scene_state for env in self._envs])


def empty_scene_states(num_envs: int) -> SceneStates:
    """Return a function that returns scene states [N, 0], for runs without clips."""
    return lambda: np.empty((num_envs, 0))


def record_vector(inner: VectorEnv) -> tuple[SceneStates, SupportsReplay | None]:
    """Return the scene states and the replayer of a vector of environments.

    The environments of a SyncVectorEnv are wrapped in place.

    Raises:
        BadInput: the clips cannot be rendered.
    """
    if hasattr(inner, "scene_states"):
        replayer = inner if isinstance(inner, SupportsReplay) else None
        return lambda: np.array(getattr(inner, "scene_states")), replayer  # noqa: B009
    if not isinstance(inner, SyncVectorEnv):
        raise BadInput(
            f"teacher='human' needs clips of {inner}, whose environments are in other processes. "
            "Use gymnasium.vector.SyncVectorEnv, or rl_teacher.envs.registry.make_vector."
        )
    for env in inner.envs:
        check_renderable(env)
    history = ReplayHistory(KEEP_STEPS)
    envs = [ReplayableEnv(env, history) for env in inner.envs]
    inner.envs = list[gym.Env](envs)
    records = EpisodeRecords(envs, history)
    return records.scene_states, records


def check_renderable(env: gym.Env) -> None:
    """Refuse an environment whose clips cannot be rendered.

    Raises:
        BadInput: the environment lacks what the message names.
    """
    spec = env.spec
    if spec is None:
        raise BadInput(
            f"teacher='human' needs clips of {env}, which are rendered in a copy of the "
            "environment. It was not made by gymnasium.make, so no copy can be made. Register it "
            "with gymnasium.register and make it by its id."
        )
    if mujoco_of(env) is not None:
        return
    if "rgb_array" not in env.metadata.get("render_modes", []):
        raise BadInput(
            f"teacher='human' needs clips of {spec.id}, which has neither MuJoCo bodies nor the "
            "render mode rgb_array. Give it that mode, or use a synthetic teacher or a function."
        )
    if spec.additional_wrappers:
        names = ", ".join(each.name for each in spec.additional_wrappers)
        raise BadInput(
            f"teacher='human' replays the episodes of {spec.id} to render them, which the wrappers "
            f"inside ({names}) may change. Apply the preference wrapper directly to what "
            "gymnasium.make returns, and the other wrappers around it."
        )
    if given := own_arguments(spec):
        arguments = ", ".join(f"{name}={value!r:.40}" for name, value in given.items())
        raise BadInput(
            f"teacher='human' replays the episodes of {spec.id} in a copy, made by its id without "
            f"{arguments}. Register it with these arguments under another id, with "
            "gymnasium.register(id=..., entry_point=..., kwargs={...}), and make it by that id."
        )


def own_arguments(spec: EnvSpec) -> dict[str, object]:
    """Return the arguments given to gymnasium.make that differ from the registered ones."""
    registered = gym.registry[spec.id].kwargs if spec.id in gym.registry else {}
    return {
        name: value
        for name, value in spec.kwargs.items()
        # Rendering changes no observation.
        if name != "render_mode"
        and not (name in registered and np.array_equal(value, registered[name]))
    }
