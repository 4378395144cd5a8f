"""Functions and runs of a sweep on the nodes of a cluster."""

import json
import os

import pytest

from rl_teacher.cli import main
from rl_teacher.cluster.connection import connected
from rl_teacher.cluster.jobs import num_cluster_cpus, on_cluster
from rl_teacher.common.errors import BadInput
from rl_teacher.runs.folder import Experiment, State, home
from rl_teacher.sweep import RunFailed
from tests.cluster import clusters

pytestmark = pytest.mark.filterwarnings(clusters.FORKS)


def home_of_call(number):
    return number, os.environ["RL_TEACHER_HOME"]


def failing_call(number):
    raise RunFailed(f"run {number} failed")


def test_calls_have_the_home_and_errors_pass(nodes):
    with connected(nodes.address):
        assert num_cluster_cpus() == 2
        assert on_cluster(home_of_call, 1)(3) == (3, str(home()))
        with pytest.raises(RunFailed, match=r"^run 4 failed$"):
            on_cluster(failing_call, 1)(4)


def test_call_that_no_node_can_execute_is_refused(nodes):
    message = "--cpus 2 was given, and the largest node of the cluster has 1"
    with connected(nodes.address), pytest.raises(BadInput, match=message):
        on_cluster(home_of_call, 2)


def test_runs_of_a_sweep_are_executed_on_the_cluster(nodes, tmp_path, capsys):
    flags = "-p rl -e ShortReacher-v1 -t 512 --ppo.num-envs 4 --ppo.rollout-steps 32"
    path = tmp_path / "one.toml"
    path.write_text(f'flags = "{flags}"\nseeds = [0, 1]')
    assert main(["sweep", str(path), "--cluster", nodes.address]) == 0
    assert "2 runs, 2 of them to do" in capsys.readouterr().out
    names = [f"one_seed={seed}" for seed in (0, 1)]
    assert [Experiment.find(name).state for name in names] == [State.FINISHED] * 2
    rows = [json.loads(row) for row in (home() / "sweeps" / "one.jsonl").read_text().splitlines()]
    assert {row["name"] for row in rows} == set(names)
    assert main(["sweep", str(path)]) == 0
    assert "2 runs, 0 of them to do" in capsys.readouterr().out


def test_cpus_without_cluster_are_refused(tmp_path, capsys):
    assert main(["sweep", str(tmp_path / "none.toml"), "--cpus", "2"]) == 2
    assert "no effect without --cluster" in capsys.readouterr().err
