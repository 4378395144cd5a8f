"""Environments that a function of one's own makes: `package.module:factory`."""

import importlib
import inspect
import warnings
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from rl_teacher.common.errors import BadInput


def is_factory(module: ModuleType, name: str) -> bool:
    """Whether a module has a function, or a class, of this name."""
    return name.isidentifier() and callable(getattr(module, name, None))


def from_factory(path: str, render_mode: str | None = None) -> gymnasium.Env:
    """An environment from `module:factory`.

    Args:
        path: of a function without arguments that must be given, or of a class; its module can be
            imported.
        render_mode: given to it where it takes an argument of that name.

    Raises:
        BadInput: it raises, or returns something else than an environment.
    """
    module, _, name = path.rpartition(":")
    factory = getattr(importlib.import_module(module), name)
    arguments = {} if render_mode is None else render_argument(factory, render_mode)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = factory(**arguments)
    except Exception as error:
        raise BadInput(
            f"{path} raised {type(error).__name__} when it should make an environment: {error}. It "
            "is called without arguments (and with render_mode, if it takes that)."
        ) from error
    if not isinstance(env, gymnasium.Env):
        raise BadInput(
            f"{path} returned {described(env)}; a gymnasium.Env is needed. An environment of the "
            "old package gym can be wrapped: see Gymnasium's page on compatibility, or shimmy."
        )
    return env


def render_argument(factory: Any, render_mode: str) -> dict[str, str]:
    """The render mode as an argument, where a function takes it."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return {}
    takes_it = any(
        each.name == "render_mode" or each.kind is each.VAR_KEYWORD for each in parameters
    )
    return {"render_mode": render_mode} if takes_it else {}


def described(value: Any) -> str:
    """What something is, in few words."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def time_limit_of(env: gymnasium.Env) -> int | None:
    """Steps after which an environment's episodes are cut; None where nothing says so."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return env.spec.max_episode_steps
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return env._max_episode_steps
        env = env.env
    return None
