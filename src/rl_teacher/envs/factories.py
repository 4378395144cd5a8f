"""Environments from a factory function: `package.module:factory`."""

import importlib
import inspect
import math
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from rl_teacher.common.errors import BadInput
from rl_teacher.common.text import described

ASSUMED_FPS = 30
"""Steps per second of an environment without a frame rate."""


def is_factory(module: ModuleType, name: str) -> bool:
    """Return whether a module has a function or class of this name."""
    return name.isidentifier() and callable(getattr(module, name, None))


def from_factory(path: str, render_mode: str | None = None) -> gymnasium.Env:
    """Create an environment from `module:factory`.

    Args:
        path: a function or class without required arguments, in an importable module.
        render_mode: passed to the factory if it has a parameter of that name.

    Raises:
        BadInput: the factory raises or does not return an environment with spaces.
    """
    module, _, name = path.rpartition(":")
    factory = getattr(importlib.import_module(module), name)
    arguments = {} if render_mode is None else render_keyword(factory, render_mode)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = factory(**arguments)
    except Exception as error:
        raise BadInput(
            f"{path}, called to create an environment, raised {described(error)}. It is called "
            "without arguments, or with render_mode if it has that parameter."
        ) from error
    if not isinstance(env, gymnasium.Env):
        raise BadInput(
            f"{path} returned {type_name(env)}; a gymnasium.Env is needed. Environments of the old "
            "package gym can be wrapped, see Gymnasium's page on compatibility, or shimmy."
        )
    # `gymnasium.make` checks the same for registered environments.
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), gymnasium.Space):
            raise BadInput(
                f"{path} returned an environment whose {name} is {getattr(env, name, 'missing')}; "
                "a space of gymnasium.spaces is needed."
            )
    return env


def render_keyword(factory: Any, render_mode: str) -> dict[str, str]:
    """Return the render mode as a keyword argument if a factory accepts it."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return {}
    accepts = any(
        each.name == "render_mode" or each.kind is each.VAR_KEYWORD for each in parameters
    )
    return {"render_mode": render_mode} if accepts else {}


def type_name(value: Any) -> str:
    """Return the qualified name of a value's type."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def frame_rate(env_id: str, metadata: Any) -> float:
    """Return the steps per second of an environment: those in its metadata, or `ASSUMED_FPS`.

    Raises:
        BadInput: the metadata is no mapping, or the frame rate no positive number.
    """
    if not isinstance(metadata, Mapping):
        raise BadInput(
            f"{env_id} has the metadata {metadata!r:.80}: a dict is needed, such as "
            '{"render_modes": ["rgb_array"], "render_fps": 30}, or {}.'
        )
    fps = metadata.get("render_fps") or ASSUMED_FPS
    try:
        is_positive = 0 < float(fps) < math.inf
    except (TypeError, ValueError, OverflowError):
        is_positive = False
    if not is_positive:
        raise BadInput(
            f'{env_id} has the metadata "render_fps": {fps!r:.80}; a positive number is needed, '
            "or none."
        )
    return float(fps)


def time_limit_of(env: gymnasium.Env) -> int | None:
    """Return the shortest time limit of an environment in steps; None if it has none."""
    limits = [wrapper._max_episode_steps for wrapper in find_time_limits(env)]
    # That of the outermost wrapper, or what an environment without one declares.
    if env.spec is not None and env.spec.max_episode_steps is not None:
        limits.append(env.spec.max_episode_steps)
    return min(limits, default=None)


def find_time_limits(env: gymnasium.Env) -> list[TimeLimit]:
    """Return the wrappers that limit the episodes of an environment, from the outermost on."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(env)
        env = env.env
    return limits
