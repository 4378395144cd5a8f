"""Functions and runs of a sweep on the nodes of a cluster."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from rl_teacher.cli import main
from rl_teacher.cluster.connection import connected
from rl_teacher.cluster.jobs import ClusterFunction, num_cluster_cpus
from rl_teacher.common.errors import BadInput
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.runs.status import Phase
from rl_teacher.sweep import RunFailed
from tests.cluster import clusters
from tests.test_teach import wait_for_checkpoint

pytestmark = pytest.mark.filterwarnings(clusters.FORKS)


def home_of_call(number):
    return number, os.environ["RL_TEACHER_HOME"]


def failing_call(number):
    raise RunFailed(f"run {number} failed")


@pytest.mark.slow
def test_calls_have_the_home_and_errors_pass(nodes, monkeypatch):
    monkeypatch.setenv("RL_TEACHER_HOME", "relative")
    with connected(nodes.address):
        assert num_cluster_cpus() == 2
        assert ClusterFunction(home_of_call, 1)(3) == (3, str(home()))
        with pytest.raises(RunFailed, match=r"^run 4 failed$"):
            ClusterFunction(failing_call, 1)(4)


def test_call_that_no_node_can_execute_is_refused(nodes):
    with connected(nodes.address), pytest.raises(BadInput, match="--cpus 2"):
        ClusterFunction(home_of_call, 2)


@pytest.mark.slow
def test_run_whose_node_dies_has_failed(tmp_path, capsys):
    flags = (
        "-p rl -e ShortReacher-v1 -t 60000 --ppo.num-envs 4 --ppo.rollout-steps 32 "
        "--checkpoint-seconds 0.1 --no-tensorboard"
    )
    path = tmp_path / "one.toml"
    path.write_text(f'flags = "{flags}"\nseeds = [0, 1]')
    with clusters.running(3, head_cpus=0) as nodes, ThreadPoolExecutor() as pool:
        # Both nodes execute one run each.
        finished = pool.submit(main, ["sweep", str(path), "--cluster", str(nodes.address)])
        for seed in (0, 1):
            wait_for_checkpoint(f"one_seed={seed}")
        nodes.kill(nodes.added[0])
        assert finished.result() == 2
    assert "1 of 2 runs failed" in capsys.readouterr().err
    phases = [Experiment.find(f"one_seed={seed}").summary().phase for seed in (0, 1)]
    assert sorted(phases) == [Phase.FINISHED, Phase.LOST]


@pytest.mark.slow
def test_interrupted_sweep_ends_its_runs(nodes, tmp_path):
    path = tmp_path / "long.toml"
    flags = "-p rl -e ShortReacher-v1 -t 1e9 --checkpoint-seconds 0.1 --no-tensorboard"
    path.write_text(f'flags = "{flags}"\nseeds = [0]')
    command = [sys.executable, "-m", "rl_teacher", "sweep", str(path), "--cluster", nodes.address]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        wait_for_checkpoint("long_seed=0")
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=20)
    assert process.returncode == 130, printed
    clusters.wait_until(lambda: Experiment.find("long_seed=0").summary().phase is Phase.LOST)


def test_cpus_without_cluster_are_refused(tmp_path, capsys):
    assert main(["sweep", str(tmp_path / "none.toml"), "--cpus", "2"]) == 2
    assert "--cluster" in capsys.readouterr().err
