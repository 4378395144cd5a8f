"""Which algorithms of other libraries there are, and what they are made with."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rl_teacher.agents.arguments import parse_arguments
from rl_teacher.common.errors import BadConfig, UnknownName
from rl_teacher.config.agents import OtherAgentConfig

ALGORITHMS = {
    **{f"sb3:{name}": "stable_baselines3" for name in ("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3")},
    **{f"sb3:{name}": "sb3_contrib" for name in ("CrossQ", "MaskablePPO", "QRDQN", "TQC", "TRPO")},
    **{f"sbx:{name}": "sbx" for name in ("CrossQ", "DDPG", "DQN", "PPO", "SAC", "TD3", "TQC")},
}
"""The module that each is in."""

LIBRARIES = ("sb3", "sbx")

OURS = ("env", "seed", "tensorboard_log", "_init_setup_model", "_total_timesteps")
"""What a constructor is told by us."""

NORMALISE = "normalise"
"""An argument of ours, for algorithms on-policy: whether observations and rewards are scaled."""


def check_algorithm(name: str, settings: OtherAgentConfig) -> None:
    """Refuse what cannot be made, whatever the environment.

    Raises:
        UnknownName: there is no such algorithm; the nearest are offered.
        BadConfig: its library is not installed, or it has no such argument.
    """
    arguments_for(algorithm_class(name), name, settings)


def algorithm_class(name: str) -> Any:
    """The class, such as Stable-Baselines3's PPO for `sb3:PPO`.

    Raises:
        UnknownName: there is no such algorithm.
        BadConfig: its library is not installed.
    """
    if name not in ALGORITHMS:
        raise UnknownName("agent", name, ALGORITHMS)
    module = ALGORITHMS[name]
    try:
        return getattr(import_module(module), name.partition(":")[2])
    except ImportError as error:
        extra = name.partition(":")[0]
        raise BadConfig(
            f"{name} needs {module}, which cannot be imported: {error}. Install it with "
            f'pip install "rl-teacher[{extra}]".'
        ) from error


def arguments_for(algorithm: Any, name: str, settings: OtherAgentConfig) -> dict[str, Any]:
    """What the constructor is told, and `normalise` for algorithms on-policy.

    The libraries' own numbers are meant for one environment. With N of them, unless they are given,
    a rollout has as many steps in all, and there are as many gradient steps for each of them.

    Raises:
        BadConfig: it has no such argument, or a value is of the wrong kind.
    """
    given = parse_arguments(settings.arguments)
    parameters = inspect.signature(algorithm.__init__).parameters
    _check_names(given, parameters, name, is_on_policy=is_on_policy(algorithm))
    made = {key: _as_meant(key, value) for key, value in given.items()}
    made.setdefault("policy", "MlpPolicy")
    if is_on_policy(algorithm):
        made.setdefault(NORMALISE, True)
        own = parameters["n_steps"].default
        # Note: A2C's 5 steps are meant for each of several environments.
        made.setdefault("n_steps", max(own // settings.num_envs, min(own, 5)))
    else:
        own = parameters["gradient_steps"].default
        made.setdefault("gradient_steps", own * settings.num_envs if own > 0 else own)
    return made


def is_on_policy(algorithm: Any) -> bool:
    """Whether an algorithm, or its class, learns from each rollout once."""
    from stable_baselines3.common.on_policy_algorithm import (  # noqa: PLC0415 - brings torch
        OnPolicyAlgorithm,
    )

    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    return issubclass(kind, OnPolicyAlgorithm)


def _check_names(
    given: Mapping[str, Any], parameters: Mapping[str, Any], name: str, *, is_on_policy: bool
) -> None:
    known = [each for each in parameters if each not in ("self", *OURS)]
    known += [NORMALISE] * is_on_policy
    for each in given:
        if each in OURS:
            raise BadConfig(
                f"--other.arguments {each}=... was given, but {name} is told that by this "
                "program. Leave it out."
            )
        if each not in known:
            raise UnknownName(f"argument of {name}", each, known)


def _as_meant(name: str, value: Any) -> Any:
    """A schedule, which no literal can be, from the word that stands for it."""
    if not isinstance(value, str) or not value.startswith("lin_"):
        return value
    from stable_baselines3.common.utils import LinearSchedule  # noqa: PLC0415 - brings torch

    try:
        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    except ValueError as error:
        raise BadConfig(
            f"--other.arguments {name}={value} was given; a number must follow lin_, such as "
            "lin_3e-4 for what falls linearly from 3e-4 to 0."
        ) from error
