"""The command `rl-teacher examples`."""

import shlex
from dataclasses import replace

import pytest

from rl_teacher.cli import main
from rl_teacher.config.experiment import PPOConfig, PredictorConfig
from rl_teacher.play import examples
from rl_teacher.preparation import check
from rl_teacher.runs.folder import Experiment

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


def test_settings_of_examples_are_valid():
    assert [check(each).id for each in examples.EXAMPLES] == [
        "ShortHopper-v1",
        "ShortReacher-v1",
        "CartPole-v1",
    ]


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
