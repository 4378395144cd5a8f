"""What the documentation says is held to the code."""

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rl_teacher import cli, reward_learner
from rl_teacher.config import DEFAULT_PRETRAIN_LABELS
from rl_teacher.envs.mujoco_suite import SUITE
from rl_teacher.predictor import fit
from rl_teacher.queries.schedules import HYPERBOLIC_STEPS, Budget
from rl_teacher.teach import check

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]

AWAITED: set[str] = set()
"""Files that are made by long runs; until they are, a link to them is no fault."""

OTHER_PROGRAMS = re.compile(r"^\s*(tensorboard|pip|make|python)\b|`tensorboard [^`]*`")
FLAG = re.compile(r"(?<![\w-])(--[a-z][\w.-]*\w)(?![\w-])")
SHORT_FLAG = re.compile(r"`(-[A-Za-z])`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
ASSIGNMENT = re.compile(r"^\w+=\S*$")


def page_named(path):
    return path.relative_to(ROOT).as_posix()


def blocks(path, *languages):
    """The code blocks of a page that are in one of the languages."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    return [body for language, body in fenced if language in languages]


def commands():
    """Every command line for rl-teacher in a code block, without what is set before it."""
    for path in PAGES:
        for line in "".join(blocks(path, "sh", "console")).splitlines():
            words = shlex.split(line, comments=True)
            while words and ASSIGNMENT.match(words[0]):
                del words[0]
            if words and words[0] == "rl-teacher":
                yield pytest.param(words[1:], id=f"{page_named(path)}: {shlex.join(words)}")


def python_blocks():
    for path in PAGES:
        for number, body in enumerate(blocks(path, "python"), 1):
            yield pytest.param(body, id=f"{page_named(path)}, block {number}")


def make_settings():
    """The script that writes the page of settings."""
    path = ROOT / "docs" / "make_settings.py"
    spec = importlib.util.spec_from_file_location("make_settings", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def settings():
    script = make_settings()
    return [
        setting
        for _, _, config, prefix in script.CHAPTERS
        for setting in script.settings_of(config, prefix)
    ]


def anchors(path):
    """What a heading can be linked by, as GitHub makes it."""
    without_code = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- command lines ---


@pytest.mark.parametrize("arguments", list(commands()))
def test_a_command_line_in_the_docs_is_understood(arguments, monkeypatch, capsys):
    taught = []

    def remember(config, options, console):
        taught.append(config)
        return 0

    monkeypatch.setattr(cli, "run_teach", remember)
    exit_code = cli.main(arguments)
    printed = capsys.readouterr()
    if arguments[0] == "report":
        assert "There is no experiment called" in printed.err
        return
    assert exit_code == 0, printed.err
    for config in taught:
        has_own_teacher = ":" in config.teacher
        check(replace(config, teacher="oracle") if has_own_teacher else config)


def test_command_lines_were_found():
    assert len(list(commands())) > 5


# --- flags ---


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_every_flag_that_is_mentioned_exists(path, settings):
    known = {setting.flag for setting in settings} | {"--help", "--version", "--plot"}
    mentioned = {
        flag.replace("_", "-")
        for line in path.read_text().splitlines()
        for flag in FLAG.findall(OTHER_PROGRAMS.sub("", line))
        if not OTHER_PROGRAMS.match(line)
    }
    assert mentioned <= known


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_every_short_flag_that_is_mentioned_exists(path, settings):
    known = {setting.short for setting in settings if setting.short}
    assert set(SHORT_FLAG.findall(path.read_text())) <= known


def test_the_page_of_settings_is_current():
    script = make_settings()
    assert script.page() == script.SETTINGS_PAGE.read_text(), "run python docs/make_settings.py"


def test_every_flag_in_the_page_of_settings_is_one_of_the_command_line(settings, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["teach", "--help"])
    assert ended.value.code == 0
    on_the_command_line = set(FLAG.findall(capsys.readouterr().out))
    assert {setting.flag for setting in settings} == on_the_command_line - {"--help", "--n-labels."}


def test_every_setting_is_explained(settings):
    assert all(setting.help for setting in settings)


# --- links ---


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_every_relative_link_leads_somewhere(path):
    for link in LINK.findall(path.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if target.relative_to(ROOT).as_posix() in AWAITED:
            continue
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_no_path_of_one_machine_is_in_the_docs(path):
    assert not re.search(r"(?<![\w.~])/(home|root|work|tmp|Users)/", path.read_text())


# --- Python ---


@pytest.mark.parametrize("source", list(python_blocks()))
def test_a_python_block_compiles(source):
    ast.parse(source)


def run_as_script(source, folder):
    script = folder / "example.py"
    script.write_text(source)
    return subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HOME": str(folder), "RL_TEACHER_HOME": str(folder / "home")},
    )


@pytest.mark.slow
def test_the_example_of_the_readme_learns_to_lean_back(tmp_path):
    (example,) = blocks(ROOT / "README.md", "python")
    done = run_as_script(example, tmp_path)
    assert done.returncode == 0, done.stderr
    last_line = done.stdout.splitlines()[-1]
    back, forward = map(float, re.findall(r"-?\d+\.\d+", last_line))
    assert back > forward


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_example_of_own_code_runs(number, tmp_path):
    example = blocks(ROOT / "docs" / "own-code.md", "python")[number]
    done = run_as_script(example, tmp_path)
    assert done.returncode == 0, done.stderr


# --- numbers and tables ---


@pytest.mark.parametrize(
    "said",
    [
        f"or {DEFAULT_PRETRAIN_LABELS} if that is not given either",
        f"one compiled call of {fit.CHUNK_STEPS} steps",
        f"looks at about {fit.SAMPLED_STEPS} of its steps",
        f"on up to {fit.EVALUATED} labels",
        f"has not fallen by {fit.IMPROVEMENT} nats in {fit.PATIENCE} calls",
        f"take {reward_learner.REFIT_STEPS} gradient steps at most",
        f"end after {reward_learner.REFIT_PATIENCE} call",
        f"have grown by {reward_learner.FIT_GROWTH:.0%}".replace("%", " %"),
        f"if ratio > {fit.LOSS_RATIO_RANGE[1]}",
        f"if ratio < {fit.LOSS_RATIO_RANGE[0]}",
        f"within {fit.L2_RANGE[0]} .. {fit.L2_RANGE[1]:g}",
        f"`T0` = {HYPERBOLIC_STEPS:,} steps",
        f"`P + t / {Budget(None, 0, 1).steps_between}`",
        f"At most {reward_learner.ASKED_AT_ONCE} comparisons",
        f"the latest {reward_learner.REMEMBERED_STEPS:,} steps",
    ],
)
def test_a_number_in_how_it_works_is_that_of_the_code(said):
    assert said in " ".join((ROOT / "docs" / "how-it-works.md").read_text().split())


def test_the_table_of_the_suite_is_that_of_the_code():
    rows = {}
    for line in (ROOT / "docs" / "environments.md").read_text().splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if cells[0] in SUITE and len(cells) == 5:
            rows[cells[0]] = [float(cell) for cell in cells[1:]]
    long_tasks = {name: task for name, task in SUITE.items() if not name.startswith("Short")}
    assert rows == {
        name: [
            task.view.size,
            task.body.fps,
            task.max_episode_steps,
            SUITE[f"Short{name}"].max_episode_steps,
        ]
        for name, task in long_tasks.items()
    }


def test_the_readme_has_the_lengths_and_the_pace_of_the_suite():
    rows = {}
    for line in (ROOT / "README.md").read_text().splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if cells[0] in SUITE:
            rows[cells[0]] = [float(cell) for cell in cells[2:]]
    assert rows == {
        name: [
            task.max_episode_steps,
            SUITE[f"Short{name}"].max_episode_steps,
            task.body.fps,
        ]
        for name, task in SUITE.items()
        if not name.startswith("Short")
    }
