"""Settings as arguments of a command: cyclopts parses them, and pydantic checks them."""

import types
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin

from cyclopts import Parameter, Token

from rl_teacher.config.fields import NO_FLAG, fields_of, help_of

Given = dict[str, Any]
"""Settings that were given, by name; sections are mappings."""


def whole_number(_: Any, tokens: Iterable[Token]) -> int:
    """Parse an integer, which may be written as 5e6 or 5_000_000.

    Raises:
        ValueError: it is not whole.
    """
    [token] = tokens
    number = float(token.value.replace("_", ""))
    if not number.is_integer():
        raise ValueError(f"{token.value} is not a whole number")
    return int(number)


def given_type(*models: type, only: Iterable[str] = (), shows_all: bool = False) -> Any:
    """Return a TypedDict of settings, by which cyclopts parses those that are given.

    Args:
        models: the settings classes.
        only: names of the settings that the command has; empty for all.
        shows_all: whether the help shows settings that have no section of the help.
    """
    hints: dict[str, Any] = {}
    for model in models:
        for name, field in fields_of(model).items():
            if only and name not in only:
                continue
            notes = [note for note in field.metadata if isinstance(note, Parameter)]
            if NO_FLAG in notes:
                continue
            kind = argument_type(field.annotation)
            if hasattr(kind, "__pydantic_fields__"):
                hints[name] = Annotated[given_type(kind, shows_all=shows_all), Parameter(help="")]
                continue
            parameter = Parameter(
                help=help_with_default(model, name),
                show=shows_all or bool(only) or any(note.group for note in notes),
                required=False,
                converter=whole_number if kind is int else None,
            )
            hints[name] = Annotated[(kind, parameter, *notes)]
    return TypedDict("Given", hints, total=False)  # pyright: ignore[reportArgumentType]


def help_with_default(model: type, name: str) -> str:
    """Return the help of a setting, with its default unless that says nothing."""
    default = fields_of(model)[name].default
    values = default if isinstance(default, tuple) else (default,)
    if callable(default) or default in (None, False, ""):
        return help_of(model, name)
    return f"{help_of(model, name)} [default: {' '.join(map(str, values))}]"


def argument_type(annotation: Any) -> Any:
    """Return the part of a type that can be written on a command line."""
    if get_origin(annotation) is Annotated:
        return argument_type(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        return tuple[argument_type(get_args(annotation)[0]), ...]
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [argument_type(part) for part in get_args(annotation)]
        plain = (int, float, str, Path)
        return next(part for part in (*parts, str) if part in plain or is_choice(part))
    return annotation


def is_choice(kind: Any) -> bool:
    """Return whether a type is a Literal."""
    return get_origin(kind) is Literal


def merged(defaults: Given, given: Given) -> Given:
    """Return given settings with defaults for the others, also within sections."""
    return defaults | {
        name: merged(defaults.get(name, {}), value) if isinstance(value, dict) else value
        for name, value in given.items()
    }
