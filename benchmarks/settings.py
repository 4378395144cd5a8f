"""Conversion of the settings of our runs to and from plain values."""

import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from rl_teacher.config.agents import PPOConfig
from rl_teacher.config.experiment import TeachConfig

TRUE_REWARD = 0
"""Number of labels of a run that learns from the true reward."""


def teach_config(*layers: Mapping[str, Any]) -> TeachConfig:
    """Build a configuration from settings by dotted name: `{"ppo.num_envs": 16}`.

    Args:
        layers: settings; later ones override earlier ones.
    """
    config = TeachConfig(env_id="", predictor="rl", name="bench")
    for settings in layers:
        config = with_settings(config, settings)
    return config


def reward_settings(num_labels: int) -> dict[str, Any]:
    """Return the settings of a run with synthetic labels, or with the true reward."""
    if num_labels == TRUE_REWARD:
        return {"predictor": "rl"}
    return {"predictor": "synth", "n_labels": num_labels}


def with_settings(config: Any, settings: Mapping[str, Any]) -> Any:
    """Return a configuration with some settings changed; sections are mappings or dotted names.

    Raises:
        KeyError: there is no such setting.
    """
    for dotted, value in settings.items():
        name, _, rest = dotted.partition(".")
        if name not in {field.name for field in fields(config)}:
            raise KeyError(f"{type(config).__name__} has no setting {name!r}")
        if rest:
            value = with_settings(getattr(config, name), {rest: value})  # noqa: PLW2901
        elif isinstance(value, Mapping):
            value = with_settings(getattr(config, name), value)  # noqa: PLW2901
        elif isinstance(value, list):
            value = tuple(value)  # noqa: PLW2901
        config = replace(config, **{name: value})
    return config


def saved_to_config(saved: Mapping[str, Any]) -> TeachConfig:
    """Restore the configuration from the values of `TeachConfig.saved`, possibly read from JSON."""
    default = teach_config()
    nested = {
        name: with_settings(part, saved[name])
        for name in saved
        if is_dataclass(part := getattr(default, name))
    }
    return replace(default, **{**saved, **nested})


SB3_NAMES = {
    "rollout_steps": "n_steps",
    "minibatch_size": "batch_size",
    "num_epochs": "n_epochs",
    "learning_rate": "learning_rate",
    "gamma": "gamma",
    "gae_lambda": "gae_lambda",
    "clip_range": "clip_range",
    "entropy_coef": "ent_coef",
    "max_grad_norm": "max_grad_norm",
}
"""Names of our PPO's hyperparameters in Stable-Baselines3."""


def sb3_arguments(ppo: PPOConfig) -> dict[str, Any]:
    """Return the arguments that give Stable-Baselines3's PPO the hyperparameters of ours."""
    return {theirs: getattr(ppo, ours) for ours, theirs in SB3_NAMES.items()}


def setting(text: str) -> tuple[str, Any]:
    """Parse `ppo.num_envs=16` into a name and a value of the right type.

    Raises:
        ValueError: the setting or the value is invalid.
    """
    dotted, equals, word = text.partition("=")
    owner: Any = teach_config()
    kind: Any = None
    for name in dotted.split("."):
        if not equals or not is_dataclass(owner) or not hasattr(owner, name):
            raise ValueError(f"{text!r} is not name=value of a setting of `rl-teacher teach`")
        kind, owner = typing.get_type_hints(type(owner))[name], getattr(owner, name)
    return dotted, _value(word, kind)


def _value(word: str, kind: Any) -> Any:
    """Convert a word to a type; of a union, to the first member that accepts it."""
    if word == "none":
        return None
    if typing.get_origin(kind) is typing.Literal or kind is str:
        return word
    if typing.get_origin(kind) is tuple:
        return tuple(int(part) for part in word.split(","))
    if kind is bool:
        return {"true": True, "false": False}[word]
    members = [member for member in typing.get_args(kind) or (kind,) if member is not type(None)]
    if kind in (int, float):
        return int(float(word)) if kind is int else float(word)
    return _value(word, members[0])
