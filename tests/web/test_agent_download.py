"""Download of the agent of an experiment."""

import io
import os
import runpy
import zipfile

import pytest

from rl_teacher.cli import main
from tests.web.conftest import assert_problem

URL = "/api/v1/experiments/cart/agent"
TEACH = ["teach", "-p", "rl", "-e", "CartPole-v1", "-n", "cart", "-t", "512", "--no-tensorboard"]
TINY = ["--ppo.num-envs", "4", "--ppo.rollout-steps", "32"]


@pytest.fixture
def cart(store):
    assert main([*TEACH, *TINY]) == 0
    store.experiments.ensure("cart", "CartPole-v1", {})


def test_agent_is_downloaded_with_a_script_that_runs_it(program, cart, tmp_path):
    response = program.get(URL)
    assert response.headers["content-type"] == "application/zip"
    assert "cart-agent-numpy.zip" in response.headers["content-disposition"]
    zipfile.ZipFile(io.BytesIO(response.content)).extractall(tmp_path)
    play = runpy.run_path(os.fspath(tmp_path / "agent" / "play.py"))
    assert play["act"]([0, 0, 0, 0]) in (0, 1)


def test_experiment_without_agent_is_refused_with_what_to_do(program, guest, trainer):
    assert "hopper" in assert_problem(program.get(URL.replace("cart", "hopper")), 422)
    assert_problem(program.get(f"{URL}?format=pickle"), 422)
    assert_problem(guest.get(URL.replace("cart", "hopper")), 404)
