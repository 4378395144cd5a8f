"""Write the pages of reference from the code: `python docs/make_reference.py`.

settings.md comes from the settings dataclasses, commands.md from the command line, python-api.md
from the docstrings of public names, and http-api.md from the OpenAPI document.
"""

import functools
import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from textwrap import fill
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from cyclopts import App, Argument

import rl_teacher
from rl_teacher import cli
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
from rl_teacher.web.access import required_access
from rl_teacher.web.app import ROUTERS
from rl_teacher.web.openapi import DescribedApi
from rl_teacher.web.problems import problem_kinds

WIDTH = 120
"""Columns of a line outside of tables."""

INTRODUCTION = """\
# Settings

After this page, you know each setting of `rl-teacher teach`, with its default. `python
docs/make_reference.py` generates this page from the dataclasses in `src/rl_teacher/config/` that
also define the command line.

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


def settings_page() -> str:
    """Format the page of settings."""
    parts = [INTRODUCTION]
    for title, remark, config, prefix in CHAPTERS:
        rows = [row(setting) for setting in settings_of(config, prefix)]
        table = ["| flag | short | default | what it is |", "|---|---|---|---|", *rows]
        wrapped = fill(remark, WIDTH, break_on_hyphens=False)
        parts.append("\n".join([f"## {title}", "", wrapped, "", *table, ""]))
    return "\n".join(parts)


# --- command line ---

COMMANDS = """\
# Commands

After this page, you know what each command does, and its options. `python docs/make_reference.py`
generates it from the command line; `rl-teacher COMMAND --help` shows the same. [Command
line](command-line.md) groups the commands by task.
"""
WITH_ALL_SETTINGS = ("teach", "collect", "fit", "circus")
"""Commands with so many settings that they have pages of their own."""


def commands_page() -> str:
    """Format the page of commands."""
    app = cli.make_app()
    parts = [COMMANDS]
    for name, command in cli.COMMANDS.items():
        group = [f"{name} {sub}" for sub in command] if isinstance(command, dict) else [name]
        for words in group:
            parts.append(
                "\n".join(
                    command_lines(functools.reduce(App.__getitem__, words.split(), app), words)
                )
            )
    return "\n".join(parts)


def command_lines(command: App, words: str) -> list[str]:
    """Format the description of one command."""
    lines = [f"## {words}", "", inspect.cleandoc(command.help).partition("\n\n")[0], ""]
    if words in WITH_ALL_SETTINGS:
        return [*lines, f"`rl-teacher {words} --help` lists its [settings](settings.md).", ""]
    described = SECTION.search(f"{inspect.getdoc(command.default_command)}\n")
    helps = dict(items_of(inspect.cleandoc(described[2]))) if described else {}
    rows = [
        argument_row(argument, helps)
        for argument in command.assemble_argument_collection()
        if argument.names != ("*",)
    ]
    if not rows:
        return lines
    return [*lines, "| option | default | what it is |", "|---|---|---|", *rows, ""]


def argument_row(argument: Argument, helps: dict[str, str]) -> str:
    """Format the row of an argument, whose help is its own or in the docstring."""
    names = [name for name in argument.names if not name.startswith("--no-no-")]
    key = names[0].lstrip("-").lower().replace("-", "_")
    text = argument.parameter.help or helps.get(key) or helps.get(f"{key}_", "")
    text, _, of_setting = text.partition(" [default: ")
    if choices := ", ".join(f"`{choice}`" for choice in argument.get_choices() or ()):
        text += f" ({choices})"
    default = argument.field_info.default
    known = text_of_default(None if default is inspect.Parameter.empty else default)
    shown = f"`{of_setting[:-1]}`" if of_setting else "required" if argument.required else known
    flags = ", ".join(f"`{name}`" for name in names)
    return f"| {flags} | {'-' if shown == '``' else shown} | {text} |"


# --- Python ---

PYTHON = """\
# Python API

After this page, you know the names that `import rl_teacher` offers. `python
docs/make_reference.py` generates it from their docstrings. [Settings](settings.md) has the fields
of `TeachConfig`, `RunOptions`, `PPOConfig` and `PredictorConfig`,
[Wrappers](wrappers.md#keywords) the keywords of the wrappers.
"""
SECTION = re.compile(
    r"^(Args|Attributes|Returns|Raises|Yields):\n((?:    .*\n?|\n)+)", re.MULTILINE
)


def python_page() -> str:
    """Format the page of public names."""
    return "\n".join([PYTHON, *(f"{name_text(name)}\n" for name in sorted(rl_teacher.__all__))])


def name_text(name: str) -> str:
    """Format a class with its public members, or a function."""
    # Not an attribute of the package, where `teach` may be the module.
    module = importlib.import_module(f"rl_teacher.{rl_teacher._MODULES[name]}")
    value = getattr(module, name)
    if isinstance(value, type) and issubclass(value, Enum):
        values = ", ".join(f"`{member.value}`" for member in value)
        return f"## {name}\n\n{markdown_of(value)}\n\nValues: {values}."
    parts = [f"## {name}", f"```text\n{name}{signature_of(value)}\n```", markdown_of(value)]
    if is_dataclass(value) and name.endswith(("Config", "Options")):
        return "\n\n".join([parts[0], parts[2]])
    members = inspect.getmembers(value, is_own) if isinstance(value, type) else []
    rows = [member_row(*member) for member in members if not member[0].startswith("_")]
    if rows:
        parts.append("\n".join(["| member | what it is |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def is_own(member: Any) -> bool:
    """Return True for methods and properties of this package."""
    function = getattr(member, "fget", member)
    is_member = inspect.isroutine(function)
    return is_member and (getattr(function, "__module__", None) or "").startswith("rl_teacher")


def member_row(name: str, member: Any) -> str:
    """Format the row of a method or property."""
    arguments = "" if isinstance(member, property) else signature_of(member)
    summary = (inspect.getdoc(member) or "").partition("\n\n")[0].replace("\n", " ")
    return f"| `{name}{arguments}` | {summary} |"


def signature_of(value: Callable[..., Any]) -> str:
    """Return the arguments with their defaults, without types."""
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for parameter in inspect.signature(value).parameters.values()
        if parameter.name != "self"
    ]
    return str(inspect.Signature(parameters))


def markdown_of(value: Any) -> str:
    """Convert a docstring in Google convention."""

    def section(match: re.Match[str]) -> str:
        text = inspect.cleandoc(match[2])
        if match[1] in ("Returns", "Yields"):
            return f"{match[1]}: {text}\n"
        items = [f"* `{name}`: {what}" for name, what in items_of(text)]
        return "\n".join([f"{match[1]}:", "", *items, ""])

    return SECTION.sub(section, f"{inspect.getdoc(value)}\n").strip()


def items_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and descriptions of a section of a docstring."""
    for name, what in re.findall(r"^([\w, ]+): (.*(?:\n +.*)*)", text, re.MULTILINE):
        yield name, re.sub(r"\n +", " ", what)


# --- HTTP ---

HTTP = """\
# HTTP API

After this page, you can write a program that lists experiments, answers comparisons, or exports
labels over HTTP. `python docs/make_reference.py` generates it from the OpenAPI document, which a
service sends as `GET /api/openapi.json`. [The service](service.md#the-api) describes credentials,
labels, leases, events and errors.
"""
LARGE = 2**31 - 1
"""Bounds from here on are those of the database, and not shown."""


def http_page() -> str:
    """Format the page of routes and schemas."""
    document = DescribedApi(ROUTERS).openapi()
    access = {
        (method, getattr(route, "path", "").replace(":path", "")): required_access(route)
        for router in ROUTERS
        for route in router.routes
        for method in getattr(route, "methods", ())
    }
    parts = [HTTP]
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            row = route_text(method.upper(), path, operation, access[method.upper(), path])
            by_tag.setdefault(operation["tags"][0], []).append(row)
    for tag, rows in by_tag.items():
        parts.append("\n".join([f"## Routes: {tag}", "", *rows]))
    kinds = [f"| {status} | `{slug}` | {title} |" for status, slug, title in problem_kinds()]
    head = ["| status | type | title |", "|---|---|---|"]
    parts.append("\n".join(["## Errors", "", *head, *kinds, ""]))
    parts.append("## Schemas\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append("\n".join(schema_lines(name, schema)))
    return "\n".join(parts)


def route_text(method: str, path: str, operation: dict[str, Any], access: str | None) -> str:
    """Format the description of a route."""
    queries = [
        f"`{parameter['name']}=` {type_of(parameter['schema'])}"
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    request = "; ".join([*queries, *([type_of(body["schema"])] if body else [])])
    status, response = next(iter(operation["responses"].items()))
    content = response.get("content", {})
    answers = {type_of(each.get("schema", {})) or f"`{kind}`" for kind, each in content.items()}
    lines = [
        f"### `{method} {path}`",
        f"{' '.join(operation['description'].split())} For: {access}.",
        *([f"* Request: {request}"] if request else []),
        f"* Answer: {', '.join(sorted(answers)) or status}",
    ]
    return "\n\n".join(lines[:2]) + "\n\n" + "\n".join(lines[2:]) + "\n"


def schema_lines(name: str, schema: dict[str, Any]) -> list[str]:
    """Format a schema and its fields."""
    lines = [f"### {name}", "", schema.get("description", "One of the values."), ""]
    if "enum" in schema:
        return [*lines, f"{type_of(schema)}.", ""]
    needed = schema.get("required", ())
    rows = [
        f"| `{field}` | {type_of(each)} | {'required' if field in needed else ''} |"
        for field, each in schema["properties"].items()
    ]
    return [*lines, "| field | type | |", "|---|---|---|", *rows, ""]


def type_of(schema: dict[str, Any]) -> str:
    """Format the type of a value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(type_of(each) for each in schema[several])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {})) or 'values'}"
    bounds = {"minimum": "from", "maximum": "to", "minLength": "from", "maxLength": "to"}
    limits = [
        f"{word} {schema[key]:,}"
        for key, word in bounds.items()
        if abs(schema.get(key, math.inf)) < LARGE
    ]
    kind = schema.get("format") or schema.get("type", "")
    return " ".join([kind, *limits])


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "commands.md": commands_page,
    "python-api.md": python_page,
    "http-api.md": http_page,
}


def text_of(name: str) -> str:
    """Format a page."""
    return PAGES[name]().rstrip() + "\n"


if __name__ == "__main__":
    for name in PAGES:
        Path(__file__).with_name(name).write_text(text_of(name))
