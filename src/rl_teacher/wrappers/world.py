"""Description of wrapped environments for the reward learner."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Shaped

from rl_teacher.common.errors import SegmentTooLong
from rl_teacher.envs.episode_replay import SupportsReplay
from rl_teacher.envs.mujoco.suite import TASKS
from rl_teacher.envs.registry import EnvInfo
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.wrappers.scenes import (
    SceneStates,
    nothing_to_draw,
    remembered,
    remembered_vector,
)
from rl_teacher.wrappers.settings import WrapperSettings
from rl_teacher.wrappers.views import ObservationView

ASSUMED_FPS = 20.0
"""Steps per second of an environment that declares no frame rate."""


@dataclass(frozen=True)
class World:
    """N wrapped environments.

    Attributes:
        env_info: metadata of the environments.
        num_envs: N, the number of environments.
        view: conversion of observations to inputs of the predictor.
        action_space: space of one action.
        segment_steps: L, the length of a segment.
        autoreset_mode: autoreset mode; DISABLED where the caller resets.
        scene_states: returns the scene states from which clips are rendered.
        replayer: replays episodes for rendering; None where no replay is needed.
    """

    env_info: EnvInfo
    num_envs: int
    view: ObservationView
    action_space: gym.Space
    segment_steps: int
    autoreset_mode: AutoresetMode
    scene_states: SceneStates
    replayer: SupportsReplay | None = None

    @property
    def input_space(self) -> InputSpace:
        """Input space of the predictor.

        Raises:
            BadConfig: the predictor does not support the action space.
        """
        return InputSpace.from_spaces(self.view.space, self.action_space)

    def actions(self, actions: object) -> Shaped[np.ndarray, "env ..."]:
        """Return copies of actions [N, ...] with the type that segments have."""
        is_box = isinstance(self.action_space, gym.spaces.Box)
        copied = np.array(actions, np.float32 if is_box else np.int64)
        return copied.reshape(self.num_envs, *(self.action_space.shape or ()))


def single_world(env: gym.Env, settings: WrapperSettings) -> tuple[gym.Env, World]:
    """Describe one environment; record its episodes if a person labels."""
    scene_states, replayer = nothing_to_draw(1), None
    env_info = card_of(env.spec, type(env.unwrapped).__name__, env.metadata.get("render_fps"))
    if settings.is_human:
        env, memories = remembered(env)
        scene_states, replayer = memories.scene_states, memories
    world = World(
        env_info=env_info,
        num_envs=1,
        view=ObservationView(env.observation_space, None, settings.observation_transform),
        action_space=env.action_space,
        segment_steps=segment_steps(settings, env_info),
        autoreset_mode=AutoresetMode.DISABLED,
        scene_states=scene_states,
        replayer=replayer,
    )
    return env, world


def vector_world(venv: VectorEnv, settings: WrapperSettings) -> World:
    """Describe a vector of environments."""
    scene_states, replayer = nothing_to_draw(venv.num_envs), None
    if settings.is_human:
        scene_states, replayer = remembered_vector(venv)
    first, fps = first_of(venv.unwrapped), venv.metadata.get("render_fps")
    env_info = card_of(venv.spec or first.spec, type(first.unwrapped).__name__, fps)
    own_space, batched_space = venv.single_observation_space, venv.observation_space
    return World(
        env_info=env_info,
        num_envs=venv.num_envs,
        view=ObservationView(own_space, batched_space, settings.observation_transform),
        action_space=venv.single_action_space,
        segment_steps=segment_steps(settings, env_info),
        autoreset_mode=venv.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP),
        scene_states=scene_states,
        replayer=replayer,
    )


def first_of(venv: VectorEnv) -> gym.Env | VectorEnv:
    """Return the first environment if it is in this process, else the vector."""
    return venv.envs[0] if isinstance(venv, SyncVectorEnv) else venv


def card_of(spec: EnvSpec | None, name: str, fps: float | int | None) -> EnvInfo:
    """Return the metadata of a user's environment.

    Args:
        spec: registration of the environment; None if Gymnasium did not create it.
        name: name of an environment without a registration.
        fps: declared frame rate; None if there is none.
    """
    env_id = name if spec is None else spec.id
    task = TASKS.get(env_id.removeprefix("rl_teacher/"))
    return EnvInfo(
        id=env_id,
        fps=float((task.body.fps if task else fps) or ASSUMED_FPS),
        max_episode_steps=None if spec is None else spec.max_episode_steps,
        can_terminate=task is None or task.can_terminate,
        backend="gymnasium" if task is None else "batch",
        description=env_id,
    )


def segment_steps(settings: WrapperSettings, env_info: EnvInfo) -> int:
    """Compute the steps of a segment from `clip_length`, or take `segment_length`.

    The default clip length is limited to the episode; any other that is longer is refused.

    Raises:
        SegmentTooLong: an episode has fewer steps.
    """
    longest = env_info.max_episode_steps
    steps = settings.segment_length or max(round(settings.clip_length * env_info.fps), 1)
    if longest is None or steps <= longest:
        return steps
    if settings.segment_length is None and settings.clip_length == WrapperSettings.clip_length:
        return longest
    if settings.segment_length is None:
        given = f"clip_length={settings.clip_length} ({steps} steps)"
        allowed = f"clip_length={longest / env_info.fps:.2g}"
    else:
        given, allowed = f"segment_length={steps}", f"segment_length={longest}"
    raise SegmentTooLong(
        f"{given} was given, but an episode of {env_info.id} has {longest} steps. "
        f"Use {allowed} or less."
    )
