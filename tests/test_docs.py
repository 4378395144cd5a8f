"""Tests that links, commands, flags and examples in the documentation work."""

import ast
import contextlib
import functools
import importlib.util
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from rl_teacher import cli
from rl_teacher.web import app

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
FLAG = re.compile(r"(?<![\w-])(--[a-z][\w.-]*\w)(?![\w-])")
LINK = re.compile(r"\]\(([^)\s]+)\)")
ASSIGNMENT = re.compile(r"^\w+=\S*$")


def page_named(path):
    return path.relative_to(ROOT).as_posix()


def blocks(path, *languages):
    """Return the code blocks of a page that are in one of the languages."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    return [body for language, body in fenced if language in languages]


def split(line):
    """Split a command line into variables and words."""
    words = shlex.split(line, comments=True)
    assigned = list(itertools.takewhile(ASSIGNMENT.match, words))
    return dict(each.split("=", 1) for each in assigned), words[len(assigned) :]


def command_lines():
    """Yield the words of all rl-teacher commands in code blocks, each with an id."""
    for path in PAGES:
        for line in "".join(blocks(path, "sh", "console")).replace("\\\n", " ").splitlines():
            _, words = split(line)
            if words[:2] == ["docker", "compose"] and "rl-teacher" in words:
                del words[: words.index("rl-teacher")]
            if words and words[0] == "rl-teacher":
                yield words[1:], f"{page_named(path)}: {shlex.join(words)}"


@functools.cache
def flags_of(command, *subcommands):
    """Return the flags in the help of a command; the help of `teach` may be abridged."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        assert cli.main([command, *subcommands, "--help"]) == 0
    flags = set(FLAG.findall(printed.getvalue()))
    if command in ("teach", "collect", "fit", "circus"):
        flags |= set(FLAG.findall((ROOT / "docs" / "settings.md").read_text()))
    return flags


@pytest.mark.parametrize("words", [pytest.param(words, id=name) for words, name in command_lines()])
def test_command_in_docs_exists_with_its_flags(words):
    given = {flag.replace("_", "-") for word in words[1:] for flag in FLAG.findall(word)}
    command = words[:2] if words[0] == "labelers" else words[:1]
    assert given <= flags_of(*command) | {"--help", "--help-all"}


def test_docs_have_commands_of_the_overview():
    assert {words[0] for words, _ in command_lines()} <= {*cli.COMMANDS}


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_make_targets_in_docs_exist(path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = path.read_text()
    in_text = re.findall(r"`make (?:\w+=\S+ )?([a-z-]+)`", text)
    in_blocks = re.findall(r"^(?:    )?make ([a-z-]+)", text, re.MULTILINE)
    assert {*in_text, *in_blocks} <= targets


def reference():
    """Return the script that writes the pages of reference."""
    path = ROOT / "docs" / "make_reference.py"
    spec = importlib.util.spec_from_file_location("make_reference", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    return script


@pytest.mark.parametrize("name", ["settings.md", "commands.md", "python-api.md", "http-api.md"])
def test_page_of_reference_is_current(name):
    script = reference()
    assert name in script.PAGES
    current = script.text_of(name) == (ROOT / "docs" / name).read_text()
    assert current, "run python docs/make_reference.py"


@functools.cache
def anchors(path):
    """Return the anchors that GitHub generates for the headings of a page."""
    without_code = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_relative_links_resolve(path):
    for link in LINK.findall(path.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_navigation_of_the_site_once():
    text = (ROOT / "mkdocs.yml").read_text()
    assert sorted(re.findall(r"([\w-]+\.md)$", text, re.MULTILINE)) == sorted(
        path.name for path in (ROOT / "docs").glob("*.md")
    )


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=page_named)
def test_page_begins_with_what_a_reader_can_do_afterwards(path):
    if path.name not in ("index.md", "results.md"):
        assert path.read_text().split("\n\n")[1].startswith("After this page")


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_python_blocks_parse(path):
    for body in blocks(path, "python"):
        ast.parse(body)


SHORT = {
    "num_timesteps=20_000": "num_timesteps=3_000",
    "learn(20_000": "learn(300",
    "40_000": "4_000",
    "n_labels=150": "n_labels=40",
}
"""Numbers of steps and labels in examples, and smaller ones for tests."""
SHORT_FLAGS = {
    "teach": "-p synth -l 20 -t 6144 --no-browser --exit-when-finished",
    "play": "--episodes 1",
}
"""Flags that follow those of a tutorial's commands in tests; the last of repeated flags counts."""
ENDING = {"teach", "report", "export", "check"}
"""Commands that end by themselves, unlike those that serve a page."""


def shortened(code):
    """Return an example with fewer steps."""
    for long, short in SHORT.items():
        code = code.replace(long, short)
    return code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "number"),
    [
        *[("README.md", 0), ("docs/getting-started.md", 0)],
        *[("docs/own-code.md", number) for number in range(3)],
    ],
)
def test_example_in_docs_runs(page, number, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(shortened(blocks(ROOT / page, "python")[number]))
    run_in(tmp_path, script)


def run_in(folder, *arguments, **variables):
    """Run Python in a folder, which is also the home."""
    homes = {"HOME": str(folder), "RL_TEACHER_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | homes | variables,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("tutorial-*.md")), ids=page_named)
def test_tutorial_runs_in_short_form(page, tmp_path):
    fence = re.compile(r"(?:`(\w+\.py)`:\n\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    for name, language, body in fence.findall(page.read_text()):
        if language == "python" and "import" in body:  # otherwise it is a part of a program
            script = tmp_path / (name or "example.py")
            script.write_text(shortened(body))
            if not name:
                run_in(tmp_path, script)
        for line in body.replace("\\\n", " ").splitlines() if language == "sh" else ():
            variables, words = split(line)
            if words[0] == "python":
                run_in(tmp_path, *words[1:], **variables)
            elif words[0] == "rl-teacher" and (words[1] in ENDING or "--video" in words):
                flags = SHORT_FLAGS.get(words[1], "").split()
                run_in(tmp_path, "-m", "rl_teacher", *words[1:], *flags, **variables)


def rows_of(name, *heading):
    """Return the rows of the table with these headings, each as a list of cells."""
    lines = (ROOT / name).read_text().splitlines()
    rows = []
    for line in lines[lines.index(f"| {' | '.join(heading)} |") + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def quoted(cell):
    """Return the code spans of a cell."""
    return re.findall(r"`([^`]+)`", cell)


def test_addresses_in_docs_are_the_routes_without_schema():
    documented = {
        name
        for cell, _ in rows_of("docs/service.md", "address", "what it is")
        for name in quoted(cell)
    }
    routes = [each for router in app.ROUTERS for each in router.routes]
    assert documented == {
        route.path.replace(":path", "")
        for route in routes
        if isinstance(route, APIRoute) and not route.include_in_schema
    }


@pytest.mark.parametrize("page", ["security.md", "reliability.md"])
def test_tests_named_with_promises_exist(page):
    for *_, tests in rows_of(f"docs/{page}", "promise", "how", "test"):
        assert quoted(tests)
        for name in quoted(tests):
            path, *parts = name.split("::")
            text = (ROOT / path).read_text()
            for part in parts:
                assert re.search(rf"\b(?:class|def) {part}\b", text), name


def test_import_layers_in_architecture_match_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    documented = blocks(ROOT / "docs" / "architecture.md", "text")[-1].splitlines()
    assert [line.split() for line in documented] == [
        layer.replace("rl_teacher.", "").split(" | ") for layer in layers
    ]


def test_numbers_of_files_in_architecture_match_tables():
    for walk in (ROOT / "docs" / "architecture.md").read_text().split("\n## Path of ")[1:]:
        (counted,) = re.findall(r"These are \*\*(\d+) files\*\*", walk)
        files = set(re.findall(r"^\| \d+ \| \[[^]]+\]\(([^)]+)\)", walk, re.MULTILINE))
        assert len(files) == int(counted)
