"""Commands of the READMEs of earlier systems, and the commands to type instead.

Python examples of drlhp's README are in tests/test_compat.py.
"""

import contextlib
import shlex
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from rl_teacher import settings_commands
from rl_teacher.agents.registry import check_agent
from rl_teacher.cli import main
from rl_teacher.runs.folder import Experiment
from rl_teacher.session import PreferenceSession
from rl_teacher.web import serve
from tests.test_coming_from import PAGE
from tests.test_person_teaches import Labeler

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "_no_page")


class Command(NamedTuple):
    """A command of a README.

    Attributes:
        typed: the command as it stands there.
        answer: what `rl-teacher` answers if it is given the same arguments; empty if it is no
            command of that system.
        instead: the command to type, which docs/coming-from.md names; empty if there is nothing to
            run any more.
    """

    typed: str
    answer: str
    instead: str


TEACH = "The command is missing. Use: rl-teacher teach "
RL_TEACHER = (
    Command("pip install -e .", "", ""),
    Command("pip install -e human-feedback-api", "", ""),
    Command("pip install -e agents/parallel-trpo[tf]", "", ""),
    Command("pip install -e agents/pposgd-mpi[tf]", "", ""),
    Command(
        "python rl_teacher/teach.py -p rl -e ShortHopper-v1 -n base-rl",
        f"{TEACH}-p rl -e ShortHopper-v1 -n base-rl",
        "rl-teacher teach -p rl -e ShortHopper-v1 -n base-rl",
    ),
    Command(
        "tensorboard --logdir ~/tb/rl-teacher/",
        "",
        "tensorboard --logdir ~/.rl-teacher/tensorboard",
    ),
    Command(
        "python rl_teacher/teach.py -p synth -l 1400 -e ShortHopper-v1 -n syn-1400",
        f"{TEACH}-p synth -l 1400 -e ShortHopper-v1 -n syn-1400",
        "rl-teacher teach -p synth -l 1400 -e ShortHopper-v1 -n syn-1400",
    ),
    Command("python human-feedback-api/manage.py migrate", "", ""),
    Command("python human-feedback-api/manage.py collectstatic", "", ""),
    Command(
        "python human-feedback-api/manage.py runserver 0.0.0.0:8000",
        "",
        "rl-teacher serve --host 0.0.0.0 --port 8000",
    ),
    Command("python human-feedback-api/video_server/run_server.py", "", ""),
    Command("gsutil mb $RL_TEACHER_GCS_BUCKET", "", ""),
    Command("gsutil defacl ch -u AllUsers:R $RL_TEACHER_GCS_BUCKET", "", ""),
    Command(
        "python rl_teacher/teach.py -p human --pretrain_labels 175 -e Reacher-v1 -n human-175",
        f"{TEACH}-p human --pretrain_labels 175 -e Reacher-v1 -n human-175",
        "rl-teacher teach -p human --pretrain_labels 175 -e Reacher-v1 -n human-175",
    ),
    Command("Xdummy", "", ""),
    Command(
        "DISPLAY=:0 python rl_teacher/tests/video_render_test.py",
        "",
        "rl-teacher check ShortHopper-v1 -p human",
    ),
)
RL_TEACHER_ATARI = (
    Command("pip install -e agents/ga3c", "", ""),
    Command(
        "python rl_teacher/teach.py -e Pong-v0 -n rl-test -p rl",
        f"{TEACH}-e Pong-v0 -n rl-test -p rl",
        "rl-teacher teach -e Pong-v0 -n rl-test -p rl",
    ),
    Command(
        "python rl_teacher/teach.py -e Breakout-v0 -n synth-test -p synth -l 300",
        f"{TEACH}-e Breakout-v0 -n synth-test -p synth -l 300",
        "rl-teacher teach -e Breakout-v0 -n synth-test -p synth -l 300",
    ),
    Command(
        "python rl_teacher/teach.py -e MontezumaRevenge-v0 -n human-test -p human -L 50",
        f"{TEACH}-e MontezumaRevenge-v0 -n human-test -p human -L 50",
        "rl-teacher teach -e MontezumaRevenge-v0 -n human-test -p human -L 50",
    ),
    Command(
        "python rl_teacher/teach.py -p rl -e ShortHopper-v1 -n base-rl -a parallel_trpo",
        f"{TEACH}-p rl -e ShortHopper-v1 -n base-rl -a parallel_trpo",
        "rl-teacher teach -p rl -e ShortHopper-v1 -n base-rl -a trpo",
    ),
)
LEARNING_FROM_HUMAN_PREFERENCES = (
    Command("pipenv install", "", ""),
    Command("pipenv run pip install tensorflow==1.15", "", ""),
    Command("pipenv shell", "", ""),
    Command(
        "python3 run.py train_policy_with_original_rewards PongNoFrameskip-v4",
        "The mode train_policy_with_original_rewards is a command here: rl-teacher teach -p rl.",
        "rl-teacher teach -p rl -a a2c -e Pong-v4 -n original-rewards",
    ),
    Command(
        "python3 run.py train_policy_with_preferences PongNoFrameskip-v4 --synthetic_prefs",
        "The mode train_policy_with_preferences is a command here: rl-teacher teach -p human, or "
        "-p synth.",
        "rl-teacher teach -p synth -a a2c -e Pong-v4 -n preferences -L 500",
    ),
    Command(
        "python3 run.py gather_initial_prefs PongNoFrameskip-v4 --synthetic_prefs",
        "The mode gather_initial_prefs is a command here: rl-teacher collect.",
        "rl-teacher collect -p synth -e Pong-v4 -n initial -l 500",
    ),
    Command(
        "python3 run.py pretrain_reward_predictor PongNoFrameskip-v4 --load_prefs_dir runs/x",
        "The mode pretrain_reward_predictor is a command here: rl-teacher fit.",
        "rl-teacher fit initial -n pretrained",
    ),
)
COMMANDS = (*RL_TEACHER, *RL_TEACHER_ATARI, *LEARNING_FROM_HUMAN_PREFERENCES)
TYPED = [(each.typed, each.answer) for each in COMMANDS if each.answer]
INSTEAD = [each.instead for each in COMMANDS if each.instead]


@pytest.mark.parametrize(("typed", "answer"), TYPED)
def test_command_as_it_stands_is_answered_with_the_one_to_use(typed, answer, capsys):
    _, _, *arguments = shlex.split(typed)  # the interpreter and its script
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"error: {answer}")


@pytest.mark.parametrize("command", INSTEAD)
def test_command_to_use_stands_on_the_page_and_is_accepted(command, monkeypatch, capsys):
    assert f"\n{command}\n" in PAGE.read_text()
    configs, called = [], []
    monkeypatch.setattr(
        settings_commands, "run_experiment", lambda config, *_: configs.append(config) or 0
    )
    report = SimpleNamespace(held_out_accuracy=0.9, held_out_labels=9, num_steps=1)
    outcome = SimpleNamespace(report=report, num_comparisons=1, num_held_out=0, folder="")
    monkeypatch.setattr(
        "rl_teacher.fit_offline.fit_labels", lambda config, _: called.append(config) or outcome
    )
    monkeypatch.setattr(serve, "serve", lambda options, *_: called.append(options) or 0)
    program, *arguments = command.split()
    if program == "rl-teacher":
        assert main(arguments) == 0
        assert configs or called or "can be used" in capsys.readouterr().out
        for config in configs:
            check_agent(config)


def run_shortened(command, *shorter):
    """Run a command to its end; a person who prefers the higher true return answers."""
    arguments = [*command.split()[1:], *shorter]
    name = arguments[arguments.index("-n") + 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreferenceSession, "wait_for_extension", lambda _: False)
        with Labeler(name=name) if "human" in arguments else contextlib.nullcontext():
            assert main(arguments) == 0
    return Experiment.find(name).summary()


VECTORS = ("-t", "4096", "--no-tensorboard")
IMAGES = ("-t", "9216", "--no-tensorboard")
FIT = ("-i", "20")
SHORTER = (
    VECTORS,
    (*VECTORS, *FIT, "-l", "12"),
    (*VECTORS, *FIT, "-L", "12"),
    IMAGES,
    (*IMAGES, *FIT, "-l", "12"),
    (*IMAGES, *FIT, "-L", "12"),
    VECTORS,
    IMAGES,
    (*IMAGES, *FIT, "-L", "12"),
)
"""Options that shorten each command with `teach`, in their order."""
QUICK = 2
"""Number of those that take seconds."""


@pytest.mark.parametrize(
    ("command", "shorter"),
    [
        pytest.param(*each, marks=[pytest.mark.slow] if number >= QUICK else [])
        for number, each in enumerate(
            zip([each for each in INSTEAD if " teach " in each], SHORTER, strict=True)
        )
    ],
)
def test_shortened_command_trains_to_its_end(command, shorter):
    summary = run_shortened(command, *shorter)
    assert summary.step >= int(shorter[1])
    assert (summary.labels.answered >= 12) == ("-p rl" not in command)


@pytest.mark.slow
def test_preferences_on_pong_are_collected_and_fitted(capsys):
    collect, fit = INSTEAD[-2:]
    assert run_shortened(collect, "-l", "20").labels.answered == 20
    assert main([*fit.split()[1:], *FIT]) == 0
    assert "fitted to 20 comparisons" in capsys.readouterr().out
    assert (Experiment.find("pretrained").folder / "predictor" / "predictor.json").exists()
