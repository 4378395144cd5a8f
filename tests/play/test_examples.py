"""The command `rl-teacher examples`."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from rl_teacher.cli import main
from rl_teacher.config.experiment import PPOConfig, PredictorConfig
from rl_teacher.play import examples
from rl_teacher.preparation import check
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import Outcome

SMALL = {
    "n_labels": 8,
    "num_timesteps": 256,
    "pretrain_iters": 8,
    "ppo": PPOConfig(num_envs=4, rollout_steps=32, hidden=(8,)),
    "reward": PredictorConfig(hidden=(8,)),
}


@pytest.fixture
def small_examples(monkeypatch):
    small = tuple(replace(each, **SMALL) for each in examples.EXAMPLES)
    monkeypatch.setattr(examples, "EXAMPLES", small)


def test_stopped_example_ends_command_without_label_sets(monkeypatch, capsys):
    trained = []

    def stopped(config, options):
        trained.append(config.name)
        return Outcome(is_finished=False, step=128, plot_path=Path("plot.png"))

    monkeypatch.setattr(examples, "teach", stopped)
    assert main(["examples"]) == 0
    assert trained == ["example-hopper"]
    assert "Repeat the command to continue it." in capsys.readouterr().out
    assert not examples.labels_path(examples.EXAMPLES[0]).exists()


def test_settings_of_examples_are_valid():
    assert [check(each).id for each in examples.EXAMPLES] == [
        "ShortHopper-v1",
        "ShortReacher-v1",
        "CartPole-v1",
    ]


def test_commands_to_try_quote_a_home_with_spaces(monkeypatch, tmp_path):
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "my home"))
    words = {each.split()[1]: shlex.split(each) for each in examples.commands_to_try()}
    assert words["import"][2] == str(examples.labels_path(examples.EXAMPLES[1]))
    assert words["fit"][2] == str(examples.labels_path(examples.EXAMPLES[2]))


@pytest.mark.slow
@pytest.mark.usefixtures("small_examples", "_shapes_unchecked")
def test_examples_can_be_played_fitted_and_imported(capsys):
    assert main(["examples"]) == 0
    printed = capsys.readouterr().out
    commands = [shlex.split(line) for line in printed.splitlines() if line.startswith("  rl-")]
    assert [words[1] for words in commands] == ["play", "report", "fit", "import", "fit", "serve"]
    assert all(Experiment.find(each.name).load_checkpoint() for each in examples.EXAMPLES)
    # Those that neither open a browser nor take long.
    for words in commands:
        if words[1] in ("report", "import"):
            assert main(words[1:]) == 0
    assert main([*commands[2][1:], "-i", "8"]) == 0
    # A repeated command trains nothing again and keeps the label sets.
    before = examples.labels_path(examples.EXAMPLES[0]).stat().st_mtime_ns
    assert main(["examples"]) == 0
    assert examples.labels_path(examples.EXAMPLES[0]).stat().st_mtime_ns == before
