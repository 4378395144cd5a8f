"""Write docs/settings.md from the settings dataclasses: `python docs/make_settings.py`."""

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from textwrap import fill
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from rl_teacher.config.agents import (
    A2CConfig,
    GA3CConfig,
    OtherAgentConfig,
    PPOConfig,
    SACConfig,
    TRPOConfig,
)
from rl_teacher.config.experiment import PredictorConfig, RunOptions, TeachConfig
from rl_teacher.config.fields import help_of
from rl_teacher.config.presets import PresetChoice

SETTINGS_PAGE = Path(__file__).with_name("settings.md")
WIDTH = 120
"""Columns of a line outside of tables."""

INTRODUCTION = """\
# Settings

All settings of `rl-teacher teach`. `python docs/make_settings.py` generates this page from the
dataclasses in `src/rl_teacher/config/` that also define the command line; do not edit it by hand.

Underscores are accepted too: `--n_labels` is `--n-labels`. Numbers of labels, clips, steps and
iterations in the first table may be written as `5e6`.
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
    """Yield the settings of one dataclass; nested ones have chapters of their own."""
    help_lines = help_of(config)
    hints = get_type_hints(config, include_extras=True)
    for field in fields(config):
        kind, short = without_annotation(hints[field.name])
        if not is_dataclass(kind):
            flag = f"--{prefix}{field.name}".replace("_", "-")
            yield Setting(flag, short, default_of(field), help_lines[field.name], choices_of(kind))


def without_annotation(hint: Any) -> tuple[Any, str]:
    """Split an annotation into the plain type and the short form of the flag."""
    if get_origin(hint) is not Annotated:
        return hint, ""
    kind, *notes = get_args(hint)
    aliases = [alias for note in notes for alias in getattr(note, "aliases", None) or ()]
    return kind, aliases[0] if aliases else ""


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the values of a Literal, or of an optional one."""
    if get_origin(kind) is Literal:
        return tuple(str(value) for value in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return tuple(choice for part in get_args(kind) for choice in choices_of(part))
    return ()


def default_of(field: Field[Any]) -> str:
    """Return the default as typed on the command line, or "required"."""
    if field.default is MISSING:
        return "required"
    value = field.default
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
