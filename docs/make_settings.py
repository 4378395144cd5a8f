"""Write docs/settings.md from the settings dataclasses: `python docs/make_settings.py`."""

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from textwrap import fill
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rl_teacher.config.agents import (
    A2CConfig,
    GA3CConfig,
    OtherAgentConfig,
    PPOConfig,
    SACConfig,
    TRPOConfig,
)
from rl_teacher.config.experiment import PredictorConfig, RunOptions, TeachConfig
from rl_teacher.config.fields import fields_of, help_of
from rl_teacher.settings_commands import PresetChoice

SETTINGS_PAGE = Path(__file__).with_name("settings.md")
WIDTH = 120
"""Columns of a line outside of tables."""

INTRODUCTION = """\
# Settings

All settings of `rl-teacher teach`. `python docs/make_settings.py` generates this page from the
dataclasses in `src/rl_teacher/config/` that also define the command line; do not edit it by hand.

`rl-teacher teach --help` shows the settings that matter most, `--help-all` all of them.
Underscores are accepted too: `--n_labels` is `--n-labels`. Whole numbers may be written as `5e6`.
"""

OF_AGENT = "The settings of the selected agent (`--agent`) identify the experiment too."

CHAPTERS = (
    (
        "Experiment",
        "These settings identify an experiment: the same name with other values is refused; a "
        "larger `--num-timesteps` or `--n-labels` extends the run instead.",
        TeachConfig,
        "",
    ),
    (
        "Preset",
        "Defaults here are for vectors; `rl-teacher teach -e ENV --help` shows those for ENV.",
        PresetChoice,
        "",
    ),
    ("PPO", OF_AGENT, PPOConfig, "ppo."),
    ("TRPO", OF_AGENT, TRPOConfig, "trpo."),
    ("A2C", OF_AGENT, A2CConfig, "a2c."),
    ("GA3C", OF_AGENT, GA3CConfig, "ga3c."),
    ("SAC", OF_AGENT, SACConfig, "sac."),
    ("Other agents", OF_AGENT, OtherAgentConfig, "other."),
    ("Reward predictor", "These settings identify the experiment too.", PredictorConfig, "reward."),
    ("Run options", "These options may change when a run is continued.", RunOptions, ""),
)


@dataclass(frozen=True)
class Setting:
    """Row of the table.

    Attributes:
        flag: long form.
        short: short form, or an empty string.
        default: default value as text.
        help: help phrase of the field.
        choices: allowed values of a Literal.
    """

    flag: str
    short: str
    default: str
    help: str
    choices: tuple[str, ...]


def settings_of(config: type, prefix: str) -> Iterator[Setting]:
    """Yield the settings of one dataclass; sections have chapters of their own."""
    for name, field in fields_of(config).items():
        if is_dataclass(field.annotation):
            continue
        flag = f"--{prefix}{name}".replace("_", "-")
        aliases = [alias for note in field.metadata for alias in getattr(note, "alias", None) or ()]
        short = aliases[0] if aliases else ""
        yield Setting(
            flag,
            short,
            "required" if name in ("env_id", "name") else text_of_default(field.default),
            help_of(config, name),
            choices_of(field.annotation),
        )


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the values of a Literal, or of one in a union."""
    if get_origin(kind) is Literal:
        return tuple(str(value) for value in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return tuple(choice for part in get_args(kind) for choice in choices_of(part))
    return ()


def text_of_default(value: Any) -> str:
    """Return the default as typed on the command line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return f"`{' '.join(map(str, value))}`"
    return f"`{value}`"


def row(setting: Setting) -> str:
    """Format a row of the table."""
    help_text = setting.help
    if setting.choices:
        help_text += f" ({', '.join(f'`{choice}`' for choice in setting.choices)})"
    short = f"`{setting.short}`" if setting.short else ""
    cells = (f"`{setting.flag}`", short, setting.default, help_text.replace("|", r"\|"))
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """Format the whole page."""
    parts = [INTRODUCTION]
    for title, remark, config, prefix in CHAPTERS:
        rows = [row(setting) for setting in settings_of(config, prefix)]
        table = ["| flag | short | default | what it is |", "|---|---|---|---|", *rows]
        wrapped = fill(remark, WIDTH, break_on_hyphens=False)
        parts.append("\n".join([f"## {title}", "", wrapped, "", *table, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(page())
