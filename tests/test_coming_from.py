"""The tables of docs/coming-from.md: every name of this project in them exists."""

import contextlib
import dataclasses
import io
import re
from pathlib import Path

import pytest

import rl_teacher
from rl_teacher import cli
from rl_teacher.agents.registry import AGENTS
from rl_teacher.config import predecessors
from rl_teacher.envs.registry import get_env_info
from rl_teacher.queries.selectors import SELECTORS
from rl_teacher.teachers.registry import teacher_named
from rl_teacher.wrappers.settings import WrapperSettings

PAGE = Path(__file__).parent.parent / "docs" / "coming-from.md"
SPAN = re.compile(r"`([^`]+)`")
KEYS = {"←", "→", "↑", "↓", "z", "w"}
ENVIRONMENT_VARIABLES = {"RL_TEACHER_HOME", "RL_TEACHER_MEDIA_URL"}


def rows():
    """Yield section, and the cells "there" and "here", of every row."""
    section = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0] not in ("there", ":--", "---"):
            yield section, cells[0], cells[1]


def spans():
    return sorted({(section, span) for section, _, here in rows() for span in SPAN.findall(here)})


def earlier_options():
    """Return the long options of the earlier systems that the command line answers."""
    systems = ("rl-teacher", "rl-teacher-atari", "learning-from-human-preferences")
    spans = {
        span for section, there, _ in rows() if section in systems for span in SPAN.findall(there)
    }
    return sorted(span for span in spans if span.startswith("--"))


@pytest.fixture(scope="module")
def options():
    """Return the options of all commands, in their long and short spellings."""
    text = io.StringIO()
    for command in ("teach --help-all", "fit --help", "export --help"):
        with contextlib.redirect_stdout(text):
            cli.main(command.split())
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w.-]*\w|(?<![\w-])-[a-zA-Z]\b", text.getvalue()))


def test_tables_have_rows_of_every_section():
    text = PAGE.read_text()
    assert {section for section, _, _ in rows()} == set(
        re.findall(r"^## (.+)$", text, re.MULTILINE)
    )


@pytest.mark.parametrize(("section", "span"), spans())
def test_name_in_column_here_exists(section, span, options):
    first, *values = span.split()
    if first.startswith("-"):
        assert first in options
        if values:
            check_value(first, values[0])
    elif first == "rl-teacher":
        assert values[0] in cli.COMMANDS
    elif section != "drlhp" or span in KEYS:
        assert span in KEYS | ENVIRONMENT_VARIABLES
    else:
        check_wrapper_name(span)


@pytest.mark.parametrize("option", earlier_options())
def test_earlier_option_is_accepted_or_answered_with_the_one_to_use(option, options):
    name = option.replace("_", "-")
    assert (name in options) != (name in predecessors.OPTIONS)


def check_value(option, value):
    """Check that an option accepts a value."""
    match option:
        case "-a":
            assert value in AGENTS
        case "-e":
            assert get_env_info(value).id == value
        case "-p":
            assert value in ("rl", "synth", "human")
        case "--selector":
            assert value in SELECTORS
        case "--teacher":
            assert teacher_named(value, None)
        case "--queries":
            assert value in ("pairs", "tree", "sort")
        case "--objective":
            assert value in ("preferences", "rank")
        case _:
            raise AssertionError(f"The value {value} of {option} is not checked.")


def check_wrapper_name(span):
    """Check that a wrapper has a keyword, and accepts its value, or has a method or property."""
    name, _, value = span.partition("=")
    keywords = {each.name: each for each in dataclasses.fields(WrapperSettings)}
    if name in keywords:
        assert value in ("", "True", "False") or value.startswith('"')
    else:
        assert hasattr(rl_teacher.PreferenceWrapper, name.removesuffix("()"))
