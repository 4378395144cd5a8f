"""`NAME=VALUE`, as agents that are not this package's own are given what they need."""

import ast
import re
from collections.abc import Iterable
from typing import Any

from rl_teacher.common.errors import BadConfig

WORD = re.compile(r"[A-Za-z_][\w.:/-]*")
"""A value that needs no quotation marks: `auto`, `lin_3e-4`, `module:name`."""
MEANT = {"true": "True", "false": "False", "none": "None"}


def parse_arguments(arguments: Iterable[str]) -> dict[str, Any]:
    """Parse `NAME=VALUE` arguments into a dict.

    A value is a Python literal (`0.1`, `True`, `None`, `(64, 64)`, `{'net_arch': [32]}`) or a word.
    None of it is run.

    Raises:
        BadConfig: an argument is not `NAME=VALUE`, its value is invalid, or its name is repeated.
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        name, equals, text = (part.strip() for part in argument.partition("="))
        if not equals or not name.isidentifier():
            raise BadConfig(
                f"--other.arguments {argument!r} was given; NAME=VALUE is needed, such as "
                "learning_rate=1e-4."
            )
        if name in values:
            raise BadConfig(f"--other.arguments says twice what {name} is. Leave one of them out.")
        values[name] = _value(argument, text)
    return values


def _value(argument: str, text: str) -> Any:
    if text in MEANT:
        raise BadConfig(f"--other.arguments {argument!r} was given; write {MEANT[text]}.")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if WORD.fullmatch(text):
            return text
    raise BadConfig(
        f"--other.arguments {argument!r} was given, but {text!r} is no Python literal. Numbers, "
        "True, False, None, 'text', (1, 2), [1, 2] and {'a': 1} are; quote it for the shell."
    )
