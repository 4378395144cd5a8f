"""`rl-teacher teach --cluster`: whole runs on a cluster of several nodes."""

import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rl_teacher import cli
from rl_teacher.config.agents import GA3CConfig, PPOConfig
from rl_teacher.config.experiment import PredictorConfig, RunOptions, TeachConfig
from rl_teacher.runs.folder import Experiment, open_store
from rl_teacher.teach import teach
from tests.cluster import clusters
from tests.test_teach import saved_step, wait_for_checkpoint

pytestmark = [
    pytest.mark.usefixtures("_shapes_unchecked"),
    pytest.mark.filterwarnings(clusters.FORKS),
]

SMALL: dict[str, Any] = {"num_envs": 5, "rollout_steps": 32}
CONFIG = TeachConfig(
    "ShortHopper-v1",
    "synth",
    name="here",
    num_timesteps=1_600,
    n_labels=16,
    pretrain_iters=30,
    clip_length=0.5,
    agent_reset=0.5,
    ppo=PPOConfig(**SMALL, minibatch_size=32, num_epochs=2),
    reward=PredictorConfig(ensemble_size=1, hidden=(8,)),
)
QUIET = RunOptions(no_tensorboard=True)


def run(config, cluster=None, **options):
    assert teach(config, replace(QUIET, cluster=cluster, **options)).is_finished
    return result_of(config.name)


def result_of(name):
    """Return the arrays of the last checkpoint, and the clips that were compared."""
    checkpoint = Experiment.find(name).checkpoints.load()
    assert checkpoint is not None
    with open_store() as store:
        page = store.comparisons.page(store.experiments.get(name).id)
        pairs = [(each.left.content_hash, each.right.content_hash) for each in page.rows]
    return checkpoint.arrays, pairs


def assert_equal_results(one, other):
    (arrays, pairs), (others, other_pairs) = one, other
    assert pairs == other_pairs
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, env_id="CartPole-v1", clip_length=0.2),
        pytest.param(
            replace(CONFIG, env_id="Pong-v0", num_timesteps=320, pretrain_iters=5),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            replace(CONFIG, agent="ga3c", ga3c=GA3CConfig(**SMALL), predictor="rl", n_labels=None),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["ppo-CartPole", "ppo-Pong", "ga3c-Hopper"],
)
def test_run_with_labels_equals_that_of_one_process(nodes, config):
    there = run(replace(config, name="there"), nodes.address)
    assert_equal_results(run(config), there)


COMMAND = (
    "teach -p synth -e ShortHopper-v1 -n there -t 12000 -l 16 -i 30 -c 0.5 --no-tensorboard "
    "--ppo.num-envs 5 --ppo.rollout-steps 32 --reward.ensemble-size 1 --reward.hidden 8 "
    "--checkpoint-seconds 0.1 -s 1"
)


def start(nodes, name="there"):
    """Start a run on the cluster in another process."""
    arguments = f"{COMMAND.replace('there', name)} --cluster {nodes.address}".split()
    return subprocess.Popen(
        [sys.executable, "-m", "rl_teacher", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_run_that_is_killed_resumes_exactly(nodes):
    for _ in range(2):
        process = start(nodes)
        wait_for_checkpoint("there", saved_step("there"))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the run finished before it was killed"
    process = start(nodes)
    process.communicate()
    assert process.returncode == 0
    assert cli.main(COMMAND.replace("there", "here").split()) == 0
    assert_equal_results(result_of("here"), result_of("there"))


def refusal(capsys, given):
    """Run a command that is refused, and return the message."""
    environment = "" if "-e " in given else "-e ShortHopper-v1"
    arguments = f"teach -n refused -p rl -t 320 --no-tensorboard {environment} {given}"
    assert cli.main(arguments.split()) == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("given", "identifier"),
    [("--cluster 127.0.0.1:9", "127.0.0.1:9"), ("--cluster 10..0.1:6379", "10..0.1:6379")],
)
def test_cluster_that_cannot_be_reached_is_refused(capsys, given, identifier):
    assert identifier in refusal(capsys, given)


def test_address_in_the_environment_is_that_of_auto(capsys, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert "--cluster 127.0.0.1:9" in refusal(capsys, "--cluster auto")


def test_missing_package_is_named(capsys, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "rl-teacher[ray]" in refusal(capsys, "--cluster local")
