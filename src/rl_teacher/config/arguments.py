"""Parsing of a command's arguments by the signature of a function.

Heavy imports are in functions: the command line imports this module before it knows the command.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

from rl_teacher.common.errors import BadInput
from rl_teacher.config import predecessors


def parse_and_call(
    command: str, function: Callable[..., int | None], arguments: Sequence[str]
) -> int:
    """Parse the arguments of a command by a function's signature, and call the function.

    Args:
        command: name of the command.
        function: its docstring and annotations make the help; it returns the exit code, or None
            for 0.
        arguments: arguments after the command.
    """
    return parse(command, function, arguments) or 0


def parse(command: str, function: Callable[..., Any], arguments: Sequence[str]) -> Any:
    """Parse arguments as `parse_and_call` does, and return the function's result."""
    import tyro

    from rl_teacher.config.fields import OPTIONAL_VALUES, join_help_lines

    check_options(command, function, arguments)
    if {"-h", "--help"} & {*arguments}:
        join_help_lines(function)
        name_positional_arguments(function)
    return tyro.cli(
        function,
        prog=f"rl-teacher {command}",
        args=list(arguments),
        # No `--no-X` beside every flag `--X`.
        config=(tyro.conf.FlagCreatePairsOff,),
        registry=OPTIONAL_VALUES,
    )


def name_positional_arguments(function: Callable[..., Any]) -> None:
    """Make the help of a function show its positional arguments by name, such as NAME, not STR."""
    import inspect

    import tyro

    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            continue
        kind = parameter.annotation
        if get_origin(kind) is Annotated:  # perhaps by an earlier call
            kind = get_args(kind)[0]
        if get_origin(kind) is Literal:
            continue
        metavar = name.upper()
        if get_origin(kind) is tuple:
            metavar = f"{metavar} ..."
        elif parameter.default is not parameter.empty:
            metavar = f"[{metavar}]"
        function.__annotations__[name] = Annotated[kind, tyro.conf.arg(metavar=metavar)]


def check_options(command: str, function: Callable[..., Any], arguments: Sequence[str]) -> None:
    """Refuse an option that does not exist with the ones that may be meant.

    These are its new name if it is one of an earlier system, the options that it abbreviates, also
    by the initials of the last part, or the most similar ones.

    Raises:
        BadInput: an option does not exist.
    """
    import difflib
    import re

    from rl_teacher.config.fields import long_options

    known = [*long_options(function), "--help"]
    for given in arguments:
        name = given.partition("=")[0].replace("_", "-")
        # `--reward.no-batch-norm` switches off a flag that a preset has switched on.
        if name in known or re.sub(r"(--|\.)no-", r"\1", name, count=1) in known:
            continue
        predecessors.check_option(command, name)
        if not re.fullmatch(r"--(?!tyro-)[a-z][a-z0-9.-]*", name):
            continue
        abbreviated = [
            each for each in known if each.startswith(name) or with_initials(each) == name
        ]
        near = abbreviated or difflib.get_close_matches(name, known)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise BadInput(
            f"There is no option {name}.{hint} `rl-teacher {command} --help` lists the options."
        )


def with_initials(option: str) -> str:
    """Abbreviate the last part of an option, such as --ppo.learning-rate to --ppo.lr."""
    section, dot, last = option.rpartition(".")
    return section + dot + "".join(word[:1] for word in last.split("-"))


def run_subcommand(
    command: str,
    description: str,
    subcommands: Mapping[str, Callable[..., Any]],
    arguments: Sequence[str],
) -> int:
    """Run the subcommand that the first argument names, or print help or an error.

    Args:
        command: the command.
        description: what the subcommands do, for the help.
        subcommands: functions by name, see `parse_and_call`.
        arguments: arguments after the command.
    """
    import tyro

    if arguments and arguments[0] in subcommands:
        name = arguments[0]
        return parse_and_call(f"{command} {name}", subcommands[name], arguments[1:])
    tyro.extras.subcommand_cli_from_dict(  # prints help or an error, and exits
        dict(subcommands),
        prog=f"rl-teacher {command}",
        description=description,
        args=list(arguments),
    )
    return 0
