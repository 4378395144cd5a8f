"""Tests of `teach` with every on-policy agent."""

import dataclasses

import numpy as np
import pytest

from rl_teacher.agents.numpy_policy import load_agent
from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput
from rl_teacher.config.experiment import (
    A2CConfig,
    GA3CConfig,
    PredictorConfig,
    RunOptions,
    TeachConfig,
    TRPOConfig,
)
from rl_teacher.envs.registry import get_env_info
from rl_teacher.plan import resolve
from rl_teacher.play.agent_export import export_agent
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import teach
from tests.image_environments import CROSSING

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

QUIET = RunOptions(no_tensorboard=True)
CONFIG = TeachConfig(
    env_id="ShortReacher-v1",
    predictor="synth",
    name="test",
    n_labels=20,
    num_timesteps=1_600,
    trpo=TRPOConfig(num_envs=16, rollout_steps=20, hidden=(8,)),
    a2c=A2CConfig(num_envs=16, hidden=(8,)),
    ga3c=GA3CConfig(num_envs=16, hidden=(8,)),
    reward=PredictorConfig(hidden=(16, 16)),
    clip_length=0.5,
    pretrain_iters=40,
    agent_reset=0.5,
)


def changed(**changes):
    return dataclasses.replace(CONFIG, **changes)


def curve(name):
    """Return the metrics of the last row that do not depend on the clock."""
    row = Experiment.find(name).metrics()[-1]
    return {k: v for k, v in row.items() if k != "steps_per_second" and not k.endswith("_s")}


def test_run_continues_from_agent_of_earlier_experiment():
    first = changed(agent="a2c", name="first", env_id="CartPole-v1", predictor="rl", n_labels=None)
    teach(first, QUIET)
    outcome = teach(dataclasses.replace(first, name="second", agent_path="first"), QUIET)
    assert outcome.is_finished
    states = [Experiment.find(name).checkpoints.load() for name in ("first", "second")]
    counts = [state.arrays["agent/observations/count"] for state in states if state is not None]
    np.testing.assert_array_less(counts[0] + 1_000, counts[1])


@pytest.mark.parametrize(
    ("env_id", "hides", "shown"),
    [("CartPole-v1", False, True), ("CartPole-v1", True, False), ("ShortHopper-v1", False, False)],
)
def test_labeler_sees_episode_ends_unless_hidden_or_absent(env_id, hides, shown):
    config = changed(env_id=env_id, hide_episode_ends=hides, num_timesteps=4_096)
    learning = resolve(config, RunOptions(), get_env_info(env_id)).learning
    assert learning is not None
    assert learning.shows_ends == shown


@pytest.mark.slow
def test_agent_learns_from_labels_what_needs_an_image_and_numbers(tmp_path):
    """The return of an agent that uses only one of the two is about 0, and the highest about 16."""
    options = "-l 300 -t 30000 -f 1 -w 1 --seed 1 --ppo.learning-rate 1e-3 --no-tensorboard"
    options += " --ppo.image-encoder small"
    words = ["teach", "-p", "synth", "-e", CROSSING, "-n", "test", *options.split()]
    assert main(words) == 0
    assert curve("test")["true_return"] > 12
    for form in ("numpy", "onnx", "sb3"):
        with pytest.raises(BadInput, match="--format safetensors"):
            export_agent("test", tmp_path / form, "latest", form)
    agent = load_agent(export_agent("test", tmp_path / "agent", "latest", "safetensors"))
    layout = agent.encoder.layout
    image = np.zeros((1, 12, 12), np.uint8)
    image[:, 5:7, 1:3] = 255  # on the left
    assert [agent(layout.join(image, np.array([wanted, 7]))) for wanted in (497, 503)] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["trpo", "a2c", "ga3c"])
def test_agent_learns_cartpole_from_labels(agent):
    """Every step has reward 1: only terminations distinguish segments."""
    config = TeachConfig(
        "CartPole-v1", "synth", name="test", n_labels=200, num_timesteps=300_000, agent=agent
    )
    teach(config, QUIET)
    assert curve("test")["true_return"] > 300
