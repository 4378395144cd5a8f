"""Comparison of a run's configuration with that of its experiment."""

import json
from collections.abc import Mapping
from typing import Any

from rl_teacher.common.errors import ConfigMismatch

RUN = "a run"
OFFLINE_FIT = "a predictor of `rl-teacher fit`"


def check_same_config(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ConfigMismatch with all fields that differ, if there are any.

    Fields of different kinds of experiments are not listed: nearly all of them differ. Settings
    that are missing in the saved configuration are newer, and are not compared.
    """
    # Not --force-new, which only `teach` and `collect` have.
    remedy = "choose another name, or delete it with `rl-teacher delete`"
    if kind_of(was) != kind_of(now):
        raise ConfigMismatch(
            f"Experiment {name!r} exists and is {kind_of(was)}, not {kind_of(now)}.",
            f"{remedy.capitalize()}.",
        )
    wanted = flatten(now)
    lines = [
        f"  {field}: was {value}, now {wanted.get(field, 'absent')}"
        for field, value in flatten(was).items()
        if wanted.get(field) != value
    ]
    if lines:
        raise ConfigMismatch(
            "\n".join([f"Experiment {name!r} exists with another configuration:", *lines]),
            f"Give the earlier values to continue it, {remedy}.",
        )


def kind_of(config: Mapping[str, Any]) -> str:
    """Return what has created an experiment with this configuration, for messages."""
    if "imported" in config:
        return "an imported data set"
    # In other experiments, this is the setting --fit, a text.
    return OFFLINE_FIT if isinstance(config.get("fit"), Mapping) else RUN


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Map the dotted path of every value to its JSON text."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False)
    return flat
