"""Algorithms of other libraries, and the arguments of their constructors."""

import inspect
from importlib import import_module
from typing import Any

from rl_teacher.agents.custom import parse_arguments
from rl_teacher.common.errors import BadConfig, MissingExtra, UnknownName
from rl_teacher.config.agents import OtherAgentConfig

ALGORITHMS = {
    **{f"sb3:{name}": "stable_baselines3" for name in ("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3")},
    **{f"sb3:{name}": "sb3_contrib" for name in ("CrossQ", "MaskablePPO", "QRDQN", "TQC", "TRPO")},
    **{f"sbx:{name}": "sbx" for name in ("CrossQ", "DDPG", "DQN", "PPO", "SAC", "TD3", "TQC")},
}
"""Module of each algorithm."""

LIBRARIES = ("sb3", "sbx")

RESERVED = ("env", "seed", "tensorboard_log", "_init_setup_model", "_total_timesteps")
"""Constructor arguments that the adapter sets."""

NORMALISE = "normalise"
"""Additional argument of on-policy algorithms: whether observations and rewards are normalised."""


def check_algorithm(name: str, settings: OtherAgentConfig) -> None:
    """Check that an algorithm is available and accepts its arguments.

    Raises:
        UnknownName: there is no such algorithm; the error suggests the nearest ones.
        BadConfig: it has no such argument.
        MissingExtra: its library is not installed.
    """
    arguments_for(algorithm_class(name), name, settings)


def algorithm_class(name: str) -> Any:
    """Return the class of an algorithm, such as Stable-Baselines3's PPO for `sb3:PPO`.

    Raises:
        UnknownName: there is no such algorithm.
        MissingExtra: its library is not installed.
    """
    if name not in ALGORITHMS:
        raise UnknownName("agent", name, ALGORITHMS)
    module = ALGORITHMS[name]
    try:
        return getattr(import_module(module), name.partition(":")[2])
    except ImportError as error:
        raise MissingExtra(f"{name} needs {module}", name.partition(":")[0], error) from error


def arguments_for(
    algorithm: Any, name: str, settings: OtherAgentConfig, *, has_images: bool = False
) -> dict[str, Any]:
    """Return the constructor arguments, and `normalise` for on-policy algorithms.

    The defaults of the libraries are tuned for one environment. With N environments, `n_steps` is
    reduced so that a rollout has as many steps in total, and `gradient_steps` is increased so that
    there are as many per step.

    Raises:
        BadConfig: it has no such argument, or a value is of the wrong kind.
    """
    given = parse_arguments(settings.arguments)
    parameters = inspect.signature(algorithm.__init__).parameters
    known = [each for each in parameters if each not in ("self", *RESERVED)]
    known += [NORMALISE] * is_on_policy(algorithm)
    for each in given:
        if each not in known:
            raise UnknownName(f"argument of {name}", each, known)
    made = {key: _parse_schedule(key, value) for key, value in given.items()}
    made.setdefault("policy", "CnnPolicy" if has_images else "MlpPolicy")
    if is_on_policy(algorithm):
        made.setdefault(NORMALISE, True)
        own = parameters["n_steps"].default
        # The 5 steps of A2C are meant for each of several environments.
        made.setdefault("n_steps", max(own // settings.num_envs, min(own, 5)))
    else:
        own = parameters["gradient_steps"].default
        made.setdefault("gradient_steps", own * settings.num_envs if own > 0 else own)
    return made


def is_on_policy(algorithm: Any) -> bool:
    """Return whether an algorithm, or its class, is on-policy."""
    from stable_baselines3.common.on_policy_algorithm import (  # noqa: PLC0415 - brings torch
        OnPolicyAlgorithm,
    )

    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    return issubclass(kind, OnPolicyAlgorithm)


def _parse_schedule(name: str, value: Any) -> Any:
    """Replace `lin_X` by a linear schedule from X to 0; return other values as given."""
    if not isinstance(value, str) or not value.startswith("lin_"):
        return value
    from stable_baselines3.common.utils import LinearSchedule  # noqa: PLC0415 - brings torch

    try:
        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    except ValueError as error:
        raise BadConfig(
            f"--other.arguments {name}={value} was given, but a number must follow lin_: "
            "lin_3e-4 is a schedule from 3e-4 to 0."
        ) from error
