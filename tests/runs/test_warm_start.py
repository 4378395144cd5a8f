"""Tests of warm starts from earlier experiments."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from rl_teacher.agents.registry import make_agent
from rl_teacher.common.errors import BadInput
from rl_teacher.config.experiment import (
    A2CConfig,
    OtherAgentConfig,
    PPOConfig,
    RunOptions,
    TeachConfig,
)
from rl_teacher.envs.registry import make_vector
from rl_teacher.runs.folder import Experiment
from rl_teacher.runs.warm_start import load_warm_start
from rl_teacher.teach import teach

QUIET = RunOptions(no_tensorboard=True)
HIDDEN = (16, 16)
SMALL = ("n_steps=16", "batch_size=32", "policy_kwargs={'net_arch': [16, 16]}")


def config(path, agent="ppo", env_id="ShortReacher-v1", **changes):
    start = TeachConfig(
        env_id,
        "rl",
        name="test",
        agent=agent,
        num_timesteps=256,
        clip_length=1.0,
        agent_path=str(path),
        ppo=PPOConfig(num_envs=4, rollout_steps=16, minibatch_size=32, hidden=HIDDEN),
        a2c=A2CConfig(num_envs=4, hidden=HIDDEN),
        other=OtherAgentConfig(4, SMALL),
    )
    return dataclasses.replace(start, **changes)


def warm_started(start) -> Any:
    agent = make_agent(start, make_vector(start.env_id, 4))
    state = load_warm_start(start).agent
    assert state is not None
    agent.warm_start_from(state)
    return agent


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param("sb3:PPO", marks=pytest.mark.slow),
        "tests.agents.test_custom:Constant",
    ],
)
def test_agent_of_any_kind_warm_starts_from_experiment(agent):
    other = config(None, agent).other if agent == "sb3:PPO" else OtherAgentConfig(4)
    first = dataclasses.replace(config(None, agent), agent_path=None, other=other)
    teach(dataclasses.replace(first, name="first"), QUIET)
    second = dataclasses.replace(first, name="second", agent_path="first")
    seen = np.random.default_rng(0).normal(0, 4.0, (200, 10)).astype(np.float32)
    taught = make_agent(first, make_vector("ShortReacher-v1", 4))
    checkpoint = Experiment.find("first").checkpoints.load()
    assert checkpoint is not None
    taught.load_state(
        {name[6:]: each for name, each in checkpoint.arrays.items() if name.startswith("agent/")}
    )
    np.testing.assert_array_equal(
        warm_started(second).predict(seen, deterministic=True),
        taught.predict(seen, deterministic=True),
    )
    teach(second, QUIET)
    assert Experiment.find("second").metrics()[-1]["step"] >= 256


@pytest.mark.parametrize("saved", [{"fit": {}}, {"agent": "ppo", "collect_only": True}])
def test_experiment_without_agent_is_refused(saved):
    Experiment.open("labels", saved).close()
    with pytest.raises(BadInput, match="labels"):
        load_warm_start(config("labels"))
