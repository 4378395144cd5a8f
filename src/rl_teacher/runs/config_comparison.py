"""Comparison of a run's configuration with that of its experiment."""

import json
from collections.abc import Mapping
from typing import Any

from rl_teacher.common.errors import ConfigMismatch

ABSENT = "absent"
RUN = "a run"
OFFLINE_FIT = "a predictor of `rl-teacher fit`"


def check_same_config(
    name: str, was: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Raise ConfigMismatch with all fields that differ, if there are any.

    Fields of different kinds of experiments are not listed: nearly all of them differ.
    Settings that are missing in the saved configuration are newer and count as defaults.
    """
    # Not --force-new, which only `teach` and `collect` have.
    remedy = "choose another name, or delete it with `rl-teacher delete`"
    if kind_of(was) != kind_of(now):
        raise ConfigMismatch(
            f"Experiment {name!r} exists and is {kind_of(was)}, not {kind_of(now)}.",
            f"{remedy.capitalize()}.",
        )
    wanted = flatten(now)
    newer = {field: value for field, value in flatten(defaults).items() if field in wanted}
    lines = differences(newer | flatten(was), wanted)
    if lines:
        raise ConfigMismatch(
            f"Experiment {name!r} exists with another configuration:\n"
            + "\n".join(f"  {line}" for line in lines),
            f"Give the earlier values to continue it, {remedy}.",
        )


def kind_of(config: Mapping[str, Any]) -> str:
    """Return what has created an experiment with this configuration, for messages."""
    if "imported" in config:
        return "an imported data set"
    # In other experiments, this is the setting --fit, a text.
    return OFFLINE_FIT if isinstance(config.get("fit"), Mapping) else RUN


def differences(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return `field: was X, now Y` for each field that differs, in the order of the fields."""
    return [
        f"{field}: was {was.get(field, ABSENT)}, now {now.get(field, ABSENT)}"
        for field in {**was, **now}
        if was.get(field, ABSENT) != now.get(field, ABSENT)
    ]


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Map the dotted path of every value to its JSON text."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False)
    return flat
