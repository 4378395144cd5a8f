"""Tests that the documentation matches the code."""

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.routing import APIRoute

from rl_teacher import cli, sweep
from rl_teacher.agents import numpy_policy
from rl_teacher.clips import poses, segment
from rl_teacher.clips.video import GIF_FPS
from rl_teacher.config.experiment import (
    DEFAULT_PRETRAIN_LABELS,
    RunOptions,
    TeachConfig,
    validate_fit,
)
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.datasets import reading, writing
from rl_teacher.envs import check as check_of_envs
from rl_teacher.envs import moving_dot, preprocessing
from rl_teacher.envs.factories import ASSUMED_FPS
from rl_teacher.envs.mujoco.suite import SUITE
from rl_teacher.nn import image_layout, numpy_networks
from rl_teacher.play import circus, episodes
from rl_teacher.play.options import MAX_EPISODES, PlayOptions
from rl_teacher.predictor import fit, labels
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.preparation import check
from rl_teacher.quality import agreement, reliability
from rl_teacher.queries import planner, queue
from rl_teacher.queries.schedules import Budget
from rl_teacher.report import label_export, tensorboard
from rl_teacher.rewards import learner, trainer
from rl_teacher.rewards.factory import SECONDS_BETWEEN
from rl_teacher.runs import backup, doctor, reporting
from rl_teacher.store import experiment_locks, leases, media
from rl_teacher.store.access import Access
from rl_teacher.store.labelers import OWNER
from rl_teacher.store.tables import Base
from rl_teacher.web import (
    access,
    address,
    app,
    authentication,
    experiment_views,
    labelers_cli,
    problems,
    serve,
    service_log,
    service_process,
    terminal,
)
from rl_teacher.web.routes import events, experiments
from rl_teacher.web.schemas import labelling
from rl_teacher.web.schemas.labelers import NewInviteRequest
from rl_teacher.web.settings import MAX_BODY_BYTES, Limits, Settings
from rl_teacher.wrappers.settings import WrapperSettings

ROOT = Path(__file__).parents[1]

PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]

OTHER_PROGRAMS = re.compile(
    r"^\s*(tensorboard|pip|make|npm|python|ssh|curl|ray|docker|systemctl|/opt/rl-teacher/bin/pip)\b|"
    r"`(tensorboard|npm|ray|docker|down) [^`]*`"
)
FLAG = re.compile(r"(?<![\w-])(--[a-z][\w.-]*\w)(?![\w-])")
SHORT_FLAG = re.compile(r"`(-[A-Za-z])`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
ASSIGNMENT = re.compile(r"^\w+=\S*$")


OF_OTHER_SYSTEM = re.compile(r"^\| [^|]* \|", re.MULTILINE)


def own_text(path):
    """Return the text of a page without what it quotes of other systems."""
    text = path.read_text()
    if path.name == "coming-from.md":
        # The first column of its tables, and examples of spellings that are answered.
        return OF_OTHER_SYSTEM.sub("|", text.replace("`--ent_coef`", ""))
    return text


def page_named(path):
    return path.relative_to(ROOT).as_posix()


def blocks(path, *languages):
    """Return the code blocks of a page that are in one of the languages."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    return [body for language, body in fenced if language in languages]


def command_lines():
    """Yield the rl-teacher command lines of all code blocks, each with an id."""
    for path in PAGES:
        for line in "".join(blocks(path, "sh", "console")).replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and ASSIGNMENT.match(words[0]):
                del words[0]
            if words[:2] == ["docker", "compose"] and "rl-teacher" in words:
                del words[: words.index("rl-teacher")]
            if words and words[0] == "rl-teacher":
                yield words[1:], f"{page_named(path)}: {shlex.join(words)}"


def commands():
    return [pytest.param(words, id=name) for words, name in command_lines()]


def python_blocks():
    for path in PAGES:
        for number, body in enumerate(blocks(path, "python"), 1):
            yield pytest.param(body, id=f"{page_named(path)}, block {number}")


def make_settings():
    """Import the script that generates docs/settings.md."""
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
    """Return the anchors that GitHub generates for the headings of a page."""
    without_code = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- command lines ---


@pytest.mark.parametrize("arguments", commands())
def test_command_line_in_docs_is_accepted(arguments, monkeypatch, capsys, write_module, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("l2.toml").write_text(blocks(ROOT / "docs" / "workflows.md", "toml")[0])
    write_module("point", blocks(ROOT / "docs" / "own-code.md", "python")[2])
    write_module("lamp", blocks(ROOT / "docs" / "images.md", "python")[0])
    configs = []

    def record(config, options, console):
        configs.append(config)
        return 0

    monkeypatch.setattr(cli, "run_teach", record)
    monkeypatch.setattr(cli, "run_fit", lambda config: validate_fit(config) or 0)
    monkeypatch.setattr(serve, "serve", lambda options: 0)
    monkeypatch.setattr(circus, "circus", lambda options: 0)
    monkeypatch.setattr(sweep, "sweep", lambda *_: [])
    monkeypatch.setattr(terminal, "label_at_terminal", lambda name, options: 0)
    monkeypatch.setattr(
        labelers_cli, "add", lambda name, *_: labelers_cli.NewCredential(name, "rlt_x", None)
    )
    monkeypatch.setattr(Access, "revoke_credentials", lambda self, name: 1)
    monkeypatch.setattr(labelers_cli, "invite", lambda uses, days, experiment: "/join")
    monkeypatch.setattr(Access, "revoke_invite", lambda self, number: None)
    monkeypatch.setattr(backup, "save_backup", lambda path, media: "1 experiment")
    monkeypatch.setattr(backup, "restore_backup", lambda path: "1 experiment")
    monkeypatch.setattr(doctor, "examine", lambda media, is_repairing: [])
    exit_code = cli.main(arguments)
    printed = capsys.readouterr()
    if arguments[0] in ("report", "export", "play", "reward"):
        assert "There is no experiment" in printed.err
        return
    if arguments[0] == "import":
        assert "cannot be read as a label data set" in printed.err
        return
    assert exit_code == 0, printed.err
    for config in configs:
        has_own_teacher = ":" in config.teacher
        check(replace(config, teacher="oracle") if has_own_teacher else config)


def test_docs_have_command_lines_of_every_command():
    found = {words[0] for words, _ in command_lines()}
    assert found == {
        *("teach", "serve", "label", "envs", "runs", "report", "reward"),
        *("labelers", "collect", "fit", "check", "export", "import"),
        *("play", "circus", "sweep", "backup", "restore", "doctor"),
    }


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_make_targets_in_docs_exist(path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = path.read_text()
    in_text = re.findall(r"`make (?:\w+=\S+ )?([a-z-]+)`", text)
    in_blocks = re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)
    assert {*in_text, *in_blocks} <= targets


def test_extras_in_docs_match_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    rows = table("docs/getting-started.md", "extra", "for")
    assert {name for names, _ in rows for name in quoted(names)} == set(extras) - {"dev"}
    [text] = re.findall(r"all extras except (.*?)\.", text_of("docs/getting-started.md"))
    locked = re.findall(r"^([\w.-]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    installed = {name.lower().replace("_", "-") for name in locked}
    assert set(quoted(text)) == {
        extra
        for extra, packages in extras.items()
        if not {re.findall(r"^[\w-]+", package)[0] for package in packages} <= installed
    }


def test_npm_scripts_in_docs_exist():
    scripts = json.loads((ROOT / "web-ui" / "package.json").read_text())["scripts"]
    lines = "".join(blocks(ROOT / "CONTRIBUTING.md", "sh")).splitlines()
    mentioned = [line.split("#")[0].split()[-1] for line in lines if line.startswith("npm ")]
    assert mentioned
    assert set(mentioned) <= set(scripts)


# --- flags ---


def long_flags(settings):
    """Return the flags of all settings, and their shorter names such as --objective."""
    shorter = {setting.short for setting in settings if setting.short.startswith("--")}
    return {setting.flag for setting in settings} | shorter


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_flags_in_docs_exist(path, settings):
    serve_flags = {
        f"--{name.replace('_', '-')}" for name in serve.ServeOptions.__dataclass_fields__
    }
    play_flags = {f"--{name.replace('_', '-')}" for name in PlayOptions.__dataclass_fields__}
    others = {"--help", "--version", "--plot", "--experiment", "--format", "--out", "--uses"}
    others |= {"--hold-out", "--steps", "--repair"}  # of `export`, `circus` and `doctor`
    others |= {"--parallel", "--cpus", "--role"}  # of `sweep` and `labelers add`
    others |= {"--no-hide-episode-ends"}  # where a preset has switched the flag on
    known = long_flags(settings) | serve_flags | play_flags | others
    mentioned = {
        flag.replace("_", "-")
        for line in own_text(path).splitlines()
        for flag in FLAG.findall(OTHER_PROGRAMS.sub("", line))
        if not OTHER_PROGRAMS.match(line)
    }
    assert mentioned <= known


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_short_flags_in_docs_exist(path, settings):
    known = {setting.short for setting in settings if setting.short}
    assert set(SHORT_FLAG.findall(own_text(path))) <= known


def test_settings_page_is_current():
    script = make_settings()
    assert script.page() == script.SETTINGS_PAGE.read_text(), "run python docs/make_settings.py"


def test_settings_page_has_exactly_flags_of_teach(settings, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["teach", "--help"])
    assert ended.value.code == 0
    teach_flags = set(FLAG.findall(capsys.readouterr().out))
    assert long_flags(settings) == teach_flags - {"--help", "--n-labels."}


@pytest.mark.parametrize("name", ["how-it-works.md", "agents.md"])
def test_defaults_with_reasons_are_those_of_settings(settings, name):
    text = (ROOT / "docs" / name).read_text().partition("## Defaults and their reasons")[2]
    rows = re.findall(
        r"^\| `(--[\w.-]+)` \| `?([^`|]+?)`? \|", text.split("\n## ")[0], re.MULTILINE
    )
    defaults = {setting.flag: setting.default.strip("`") for setting in settings}
    assert rows
    assert dict(rows) == {flag: defaults[flag] for flag, _ in rows}


def test_help_names_parameter_of_every_synthetic_teacher(settings):
    [help_text] = [each.help for each in settings if each.flag == "--teacher-strength"]
    rows = table("docs/teachers.md", "name", "behaviour", "parameter, and B-Pref's value")
    parameters = [quoted(parameter) for *_, parameter in rows]
    assert all(name in help_text for names in parameters for name in names)


def test_every_setting_has_help(settings):
    assert all(setting.help for setting in settings)


# --- links ---


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_relative_links_resolve(path):
    for link in LINK.findall(path.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("path", PAGES, ids=page_named)
def test_docs_have_no_absolute_paths(path):
    assert not re.search(r"(?<![\w.~])/(home|root|work|tmp|Users)/", path.read_text())


# --- Python ---


@pytest.mark.parametrize("source", list(python_blocks()))
def test_python_block_parses(source):
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
def test_example_of_readme_leaves_a_fitted_predictor(tmp_path):
    example = blocks(ROOT / "README.md", "python")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
    done = run_as_script(example, tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "home" / "experiments" / "lean-back" / "predictor"
    poses = np.zeros((2, 12), np.float32)
    poses[:, 0], poses[:, 1], poses[:, 2] = 1.25, np.sin([-1, 1]), np.cos(1)
    back, forward = RewardPredictor.load(folder)(poses, np.zeros((2, 3), np.float32))
    assert back > forward


@pytest.mark.slow
def test_example_of_getting_started_learns_to_lean_back(tmp_path):
    example = blocks(ROOT / "docs" / "getting-started.md", "python")[0]
    done = run_as_script(example, tmp_path)
    assert done.returncode == 0, done.stderr
    last_line = done.stdout.splitlines()[-1]
    back, forward = map(float, re.findall(r"-?\d+\.\d+", last_line))
    assert back > forward


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
def test_example_of_own_code_runs(number, tmp_path):
    example = blocks(ROOT / "docs" / "own-code.md", "python")[number]
    done = run_as_script(example, tmp_path)
    assert done.returncode == 0, done.stderr


def test_check_of_moving_dot_prints_output_in_docs(capsys):
    assert cli.main(["check", "MovingDot-v0", "-f", "2", "--colour"]) == 0
    assert capsys.readouterr().out in blocks(ROOT / "docs" / "images.md", "text")


# --- numbers and tables ---


@pytest.mark.parametrize(
    "text",
    [
        f"or {DEFAULT_PRETRAIN_LABELS} if that is not given either",
        f"one compiled call of {fit.CHUNK_STEPS} steps",
        f"uses about {fit.SAMPLED_STEPS} steps",
        f"on up to {fit.MAX_EVALUATED} labels",
        f"has not fallen by {fit.MIN_IMPROVEMENT} in {fit.PATIENCE} calls",
        f"take {trainer.REFIT_STEPS} gradient steps at most",
        f"end after {trainer.REFIT_PATIENCE} call",
        f"have grown by {trainer.FIT_GROWTH:.0%}".replace("%", " %"),
        f"decay = min(rate * l2 / N, {fit.MAX_DECAY})",
        f"`T0` = {TeachConfig.hyperbolic_steps:,} steps",
        f"`P + t / {Budget(None, 0, 1).steps_between}`",
        f"at most {planner.MAX_QUERIES_PER_ROLLOUT} after one rollout",
        f"the latest {learner.RECORDED_STEPS:,} steps",
        f"at most {planner.MAX_WAITING} wait at any time",
        f"one in {planner.SHARED_EVERY} of the first pairs",
        f"one of up to {queue.MAX_SHARED_SEGMENTS}",
        f"`P + s / {Budget(None, 0, 1).seconds_between:g}`",
        f"heartbeat for {experiment_views.LOST_AFTER.total_seconds():g} s",
        f"every {reporting.EPISODE_EVERY_S['poses']:g} s at most where clips are poses",
        f"every {reporting.EPISODE_EVERY_S['video']:g} s where they are video",
        f"waits until there are {trainer.MIN_LABELS_TO_FINE_TUNE} labels",
        f"as if measured over {labels.WARM_START_COUNT:,} steps",
        f"fraction of the latest {learner.FRESH_LABELS} labels",
    ],
)
def test_number_in_how_it_works_matches_code(text):
    assert text in text_of("docs/how-it-works.md")


def text_of(name):
    """Return a page as one line."""
    return " ".join((ROOT / name).read_text().split())


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("docs/remote.md", f"one port: {RunOptions().port}, or the next free one"),
        (
            "docs/getting-started.md",
            f"http://{RunOptions().host}:{RunOptions().port}/e/human-175/label?token=",
        ),
        ("docs/remote.md", f"stays signed in for {authentication.SESSION_AGE.days} days"),
        ("docs/remote.md", f"is the labeler `{OWNER}`"),
        ("docs/files.md", f"a heartbeat every {experiment_locks.HEARTBEAT_S:g} seconds"),
        ("docs/files.md", f"{experiment_locks.STALE_AFTER.seconds} seconds after the last"),
        ("docs/service.md", f"At most {serve.MAX_CONNECTIONS} are open"),
        ("docs/service.md", f"not complete {serve.HEADER_TIMEOUT_S} s after it was"),
        ("docs/service.md", f"more than {serve.MAX_HEADER_BYTES:,} bytes"),
        ("docs/remote.md", f"`~/.rl-teacher/{address.ACCESS_FILE_NAME}`"),
        ("docs/labelling.md", f"at most {planner.MAX_WAITING} wait at any time"),
        ("docs/labelling.md", f"the latest {learner.FRESH_LABELS} answers"),
        ("docs/labelling.md", f"At most {segment.MAX_FPS:g} frames a second"),
        ("docs/labelling.md", f"its labeler: `{OWNER}`"),
        ("docs/quality.md", f"that of {agreement.RESAMPLES:,} bootstrap samples"),
        ("docs/quality.md", "`a` = {:g} and `b` = {:g}".format(*reliability.PRIOR)),
        ("docs/quality.md", "at least {} and at most {}".format(*reliability.TRUSTED)),
        (
            "docs/quality.md",
            f"Every {reporting.DIAGNOSTICS_EVERY_S:g} seconds, and with human labels",
        ),
        ("docs/service.md", f"--host {serve.ServeOptions().host} --port {RunOptions().port}"),
        ("docs/service.md", f"one of the next {address.PORTS_TRIED - 1} is used"),
        ("docs/service.md", f"up to {labelling.MAX_LABELS} at a time"),
        ("docs/service.md", f"At most {experiments.MAX_ROWS} rows"),
        ("docs/service.md", f"Bodies are limited to {MAX_BODY_BYTES:,} bytes"),
        ("docs/service.md", f"{8 * address.NUM_TOKEN_BYTES} random bits"),
        ("docs/service.md", f"`--end-after-runs {service_process.END_AFTER_S:g}`"),
        ("docs/service.md", f"`{service_process.LOCK_NAME}` in the home"),
        ("docs/service.md", f"`logs/{service_log.LOG_NAME}` in the home"),
        (
            "docs/service.md",
            f"started after {service_log.MAX_LOG_BYTES:,} bytes; "
            f"{service_log.NUM_OLD_LOGS} old ones",
        ),
        ("docs/service.md", f"`logs/{service_process.ERRORS_NAME}`"),
        ("docs/service.md", f"lasts {leases.LEASE_S / 60:g} minutes"),
        ("docs/service.md", f"within {events.CREDENTIAL_CHECK_S:g} seconds after"),
        ("docs/service.md", f"`schema_version` is {label_export.SCHEMA_VERSION}"),
        ("docs/scaling.md", f"multiple of {numpy_networks.BLOCK_ROWS} (the block size"),
        ("docs/service.md", f"make {Limits().labeler.per_s:g} requests a second"),
        ("docs/service.md", f"may submit {Limits().labels.per_s:g} labels a second"),
        ("docs/service.md", f"in bursts of up to {Limits().labeler.burst}"),
        ("docs/service.md", f"an owner's {Limits().owner.per_s:g} and {Limits().owner.burst}"),
        ("docs/service.md", f"{60 * Limits().anonymous.per_s:g} wrong credentials a min"),
        ("docs/service.md", f"up to {Limits().streams} event streams"),
        ("docs/labelling.md", f"within {NewInviteRequest().days:g} days"),
        ("docs/labelling.md", f"theirs for {leases.LEASE_S / 60:g} minutes"),
        ("docs/wrappers.md", f"| `clip_length` | {WrapperSettings().clip_length:g} |"),
        ("docs/wrappers.md", f"is assumed to have {ASSUMED_FPS} steps per second"),
        ("docs/environments.md", f"their `render_fps`, or {ASSUMED_FPS}."),
        ("docs/wrappers.md", f"or {DEFAULT_PRETRAIN_LABELS} | answers before the first fit"),
        ("docs/wrappers.md", f"{Budget.steps_between:,}; for a person one every {SECONDS_BETWEEN}"),
        ("docs/wrappers.md", f"{WrapperSettings().checkpoint_interval:,} | steps between two ch"),
        ("docs/workflows.md", f"once there are {trainer.MIN_LABELS_TO_FINE_TUNE} of them"),
        ("docs/environments.md", f"environment for {check_of_envs.LONG_CHECK_STEPS} steps"),
        ("docs/environments.md", f"same for {check_of_envs.SHORT_CHECK_STEPS} steps before"),
        ("docs/datasets.md", f"more than {reading.MAX_BYTES / 2**30:g} GiB, unpacked"),
        ("docs/datasets.md", f"| `schema_version` | {writing.SCHEMA_VERSION};"),
        ("docs/datasets.md", f"| `format` | `{writing.FORMAT_NAME}` |"),
        ("docs/images.md", f"has at most {image_layout.MAX_CHANNELS} entries"),
        ("docs/images.md", "{} red + {} green + {} blue".format(*preprocessing.LUMA)),
        ("docs/images.md", f"`--frame-size` | {FrameSettings().size} |"),
        ("docs/images.md", f"`--stacked-frames` | {FrameSettings().stacked} |"),
        ("docs/images.md", f"its absolute value is at least {moving_dot.THRESHOLD}"),
        ("docs/images.md", f"nearer to the centre {moving_dot.CENTRE}"),
        ("docs/images.md", f"the usual limit of {reading.MAX_BYTES / 2**30:g} GiB"),
        ("docs/images.md", f"ends after {moving_dot.NUM_MOVES:,} moves"),
        ("docs/play.md", f"({PlayOptions('').episodes} by default, {MAX_EPISODES} at most)"),
        ("docs/play.md", f"is cut after {episodes.MAX_EPISODE_STEPS:,} steps"),
        ("docs/play.md", f"at most {GIF_FPS:g} images a second"),
        ("docs/play.md", f"| `schema_version` | {numpy_policy.SCHEMA_VERSION};"),
        ("docs/play.md", f"| `format` | `{numpy_policy.FORMAT_NAME}` |"),
        ("docs/files.md", f"`{poses.MAGIC.decode()}`"),
        ("docs/files.md", f"version: {poses.VERSION} |"),
        ("docs/files.md", f"two float32 arrays of {poses.POSE} follow"),
        ("docs/files.md", f"where `scale` is at most {poses.COARSEST_STEP:.4f}"),
        ("docs/files.md", f"Each ends with a trailer of {media.SEAL_BYTES} bytes"),
        ("docs/files.md", f"`{media.SEAL_HEAD.hex(' ')}`"),
        ("docs/files.md", f"latest episodes, the last {reporting.EPISODES_KEPT} stay"),
    ],
)
def test_number_in_docs_matches_code(page, text):
    assert text in text_of(page)


def test_poll_interval_in_docs_matches_code():
    assert "polled twice a second" in text_of("docs/service.md")
    assert Settings("").poll_every_s == 0.5


# --- tables ---


def table(name, *heading):
    """Return the rows of the table with these headings, each as a list of cells."""
    lines = (ROOT / name).read_text().splitlines()
    start = lines.index(f"| {' | '.join(heading)} |") + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def quoted(cell):
    """Return the code spans of a cell."""
    return re.findall(r"`([^`]+)`", cell)


def test_wrapper_keywords_in_docs_match_code():
    keywords = table("docs/wrappers.md", "keyword", "default", "meaning")
    named = [name for keyword, *_ in keywords for name in quoted(keyword)]
    assert set(named) == set(WrapperSettings.__dataclass_fields__)


def service_routes():
    return [
        route for router in app.ROUTERS for route in router.routes if isinstance(route, APIRoute)
    ]


def test_routes_in_docs_match_code():
    rows = table("docs/service.md", "route", "what it answers")
    documented = [quoted(route)[0] for route, _ in rows]
    assert sorted(documented) == sorted(
        {
            f"{method} {route.path.replace(':path', '')}"
            for route in service_routes()
            for method in (route.methods or set()) - {"HEAD"}
        }
    )


def test_public_routes_in_docs_match_code():
    public_paths = {
        route.path.replace(":path", "")
        for route in service_routes()
        if access.required_access(route) is access.Access.PUBLIC
    }
    [text] = re.findall(r"Every route but (.*) needs a credential", text_of("docs/service.md"))
    assert set(quoted(text)) == public_paths
    rows = dict(table("docs/service.md", "route", "what it answers"))
    marked = {quoted(route)[0] for route, answer in rows.items() if "public" in answer}
    assert marked == {
        f"{'POST' if path == '/api/v1/join' else 'GET'} {path}" for path in public_paths
    }


def test_owner_routes_in_docs_match_code():
    rows = table("docs/service.md", "route", "what it answers")
    marked = {quoted(route)[0] for route, answer in rows if answer.startswith("(owner)")}
    assert marked == {
        f"{method} {route.path.replace(':path', '')}"
        for route in service_routes()
        if access.required_access(route) is access.Access.OWNER
        for method in route.methods or ()
    }


@pytest.mark.parametrize("page", ["security.md", "reliability.md"])
def test_tests_named_with_promises_exist(page):
    promises = table(f"docs/{page}", "promise", "how", "test")
    named = [name for _, _, tests in promises for name in quoted(tests)]
    assert all(quoted(tests) for _, _, tests in promises)
    for name in named:
        path, *parts = name.split("::")
        text = (ROOT / path).read_text()
        for part in parts:
            assert re.search(rf"\b(?:class|def) {part}\b", text), name


def test_problem_types_in_docs_match_code():
    rows = table("docs/service.md", "status", "type", "title")
    documented = [(int(status), quoted(slug)[0], title) for status, slug, title in rows]
    assert documented == [(kind.status, kind.slug, kind.title) for kind in problems.PROBLEM_TYPES]


def test_store_tables_in_docs_match_code():
    rows = table("docs/files.md", "table", "columns")
    documented = {quoted(name)[0]: quoted(columns) for name, columns in rows}
    assert {name: set(columns) for name, columns in documented.items()} == {
        name: set(each.columns.keys()) for name, each in Base.metadata.tables.items()
    }


def test_metrics_of_tensorboard_are_in_docs():
    rows = table("docs/how-it-works.md", "metric", "meaning")
    assert set(tensorboard.SCALARS) <= {name for metrics, _ in rows for name in quoted(metrics)}


def test_pose_file_layout_in_docs_matches_code():
    rows = table("docs/files.md", "bytes", "type", "what")
    ends = [int(cells[0].split("-")[1]) for cells in rows]
    starts = [int(cells[0].split("-")[0]) for cells in rows]
    assert starts == [0, *(end + 1 for end in ends[:-1])]
    assert ends[-1] + 1 == poses.HEADER.size
    letters = {"4 characters": "4s", "uint16": "H", "uint32": "I", "float32": "f", "": "12x"}
    assert "<" + "".join(letters[cells[1]] for cells in rows) == poses.HEADER.format


# --- labelling page ---

PAGE = ROOT / "web-ui" / "src" / "lib"

PRINTED_KEYS = {
    "ArrowLeft": "←",
    "ArrowRight": "→",
    "ArrowUp": "↑",
    "ArrowDown": "↓",
    " ": "space",
    "Escape": "Esc",
}
"""Labels of keys whose browser name differs from their label."""


def read_page_keys():
    """Return the action and the answer of each key, by its label."""
    source = (PAGE / "keys.ts").read_text()
    plain = source.split("const PLAIN")[1].split("\n}")[0]
    entry = re.compile(
        r"^  (?:'([^']+)'|(\w+)): \{ kind: '(\w+)'(?:, answer: '(\w+)')?", re.MULTILINE
    )
    return {
        PRINTED_KEYS.get(quoted_key or key, quoted_key or key): (kind, answer)
        for quoted_key, key, kind, answer in entry.findall(plain)
    }


def test_keys_in_docs_match_page():
    rows = table("docs/labelling.md", "key", "what it does", "stored as")
    documented = {key: quoted(stored) for keys, _, stored in rows for key in quoted(keys)}
    page_keys = read_page_keys()
    assert len(page_keys) > 10
    assert documented == {key: [answer] if answer else [] for key, (_, answer) in page_keys.items()}


def test_tabs_in_docs_match_page():
    source = (ROOT / "web-ui" / "src" / "owner" / "tabs.ts").read_text().split("export type")[0]
    titles = re.findall(r"^  \w+: '([^']+)'", source, re.MULTILINE)
    assert titles
    assert [tab for tab, _ in table("docs/labelling.md", "tab", "content")] == titles


def test_keys_in_getting_started_match_the_page():
    assert "`←` or `→` for the better one, `↓` for equal, `↑` if you cannot tell." in text_of(
        "docs/getting-started.md"
    )
    page_keys = read_page_keys()
    answers = {key: page_keys[key][1] for key in "←→↓↑"}
    assert answers == {"←": "left", "→": "right", "↓": "equal", "↑": "cannot_tell"}


@pytest.mark.parametrize(
    ("file", "pattern", "text"),
    [
        ("history.ts", r"MAX_HISTORY = (\d+)", "up to {}. The last {} are also"),
        ("clock.ts", r"SPEEDS = \[([^\]]+)\]", "speed: {} times"),
        ("outbox.ts", r"MAX_RETRY_MS = (\d+)_000", "at least every {} seconds"),
    ],
)
def test_number_of_page_in_docs_matches_source(file, pattern, text):
    (value,) = re.findall(pattern, (PAGE / file).read_text())
    assert text.replace("{}", value) in text_of("docs/labelling.md")


def test_terminal_letters_in_docs_match_code():
    rows = table("docs/labelling.md", "letter", "what it does")
    letters = [cells[0].strip("`") for cells in rows]
    assert letters == [*(letter.upper() or "Enter" for letter in terminal.ANSWERS), "U", "Q"]
    assert all(f"[{letter}]" in terminal.KEYS for letter in letters if letter != "Enter")


def test_suite_table_in_docs_matches_code():
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


def test_readme_is_shorter_than_200_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


def test_scores_in_readme_are_those_of_results():
    scores, intervals = table("README.md", "labels", "50", "100", "350", "700", "1,400")
    (sentence,) = re.findall(r"PPO's score is (.*?)\. 700 labels", text_of("docs/results.md"))
    assert re.findall(r"[\d.]+ \(.*?\)", sentence) == [
        f"{score} ({interval})" for score, interval in zip(scores[1:], intervals[1:], strict=True)
    ]
    assert f"({', '.join(scores[1:-1])} and {scores[-1]};" in text_of("docs/results.md")


def test_animation_of_readme_is_smaller_than_1_5_megabytes():
    (name,) = re.findall(r"\((docs/images/\w+\.gif)\)", (ROOT / "README.md").read_text())
    assert (ROOT / name).stat().st_size < 1_500_000


def test_number_of_examples_in_readme_matches_folder():
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    number = words[len(list((ROOT / "examples").glob("*.py")))]
    assert f"[`examples/`](examples) has {number} short programs" in text_of("README.md")


def test_contributing_lists_every_package_folder():
    rows = table("CONTRIBUTING.md", "folder", "content")
    documented = {Path(quoted(folder)[0]).name for folder, _ in rows}
    folders = {path.parent.name for path in (ROOT / "src" / "rl_teacher").glob("*/__init__.py")}
    assert folders <= documented


def test_import_layers_in_architecture_match_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    documented = blocks(ROOT / "docs" / "architecture.md", "text")[-1].splitlines()
    assert [line.split() for line in documented] == [
        layer.replace("rl_teacher.", "").split(" | ") for layer in layers
    ]


def test_numbers_of_files_in_architecture_match_tables():
    walks = (ROOT / "docs" / "architecture.md").read_text().split("\n## Path of ")[1:]
    for walk in walks:
        (counted,) = re.findall(r"These are \*\*(\d+) files\*\*", walk)
        files = set(re.findall(r"^\| \d+ \| \[[^]]+\]\(([^)]+)\)", walk, re.MULTILINE))
        assert len(files) == int(counted)
