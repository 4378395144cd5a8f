"""Every on-policy agent in the whole loop."""

import dataclasses

import numpy as np
import pytest

from rl_teacher.agents.a2c import A2C
from rl_teacher.agents.ga3c import GA3C
from rl_teacher.agents.trpo import TRPO
from rl_teacher.config.experiment import (
    A2CConfig,
    GA3CConfig,
    PredictorConfig,
    RunOptions,
    TeachConfig,
    TRPOConfig,
)
from rl_teacher.rewards.factory import shows_ends
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import teach

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
    ga3c=GA3CConfig(num_envs=16, batch_envs=8, hidden=(8,)),
    reward=PredictorConfig(hidden=(16, 16)),
    clip_length=0.5,
    pretrain_iters=40,
)
AGENTS = {"trpo": TRPO, "a2c": A2C, "ga3c": GA3C}


def changed(**changes):
    return dataclasses.replace(CONFIG, **changes)


def curve(name):
    """Every figure of the last row that does not depend on the clock."""
    row = Experiment.find(name).metrics()[-1]
    return {k: v for k, v in row.items() if k not in ("wall_s", "steps_per_second")}


class Killed(Exception):
    """Ends a run without its leave."""


@pytest.mark.parametrize(
    "agent", ["trpo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("a2c", "ga3c"))]
)
def test_a_run_killed_and_continued_ends_with_the_numbers_of_one_never_stopped(agent, monkeypatch):
    teach(changed(agent=agent, name="whole"), QUIET)
    every_time = dataclasses.replace(QUIET, checkpoint_seconds=0.0)
    with monkeypatch.context() as patched:
        learn, calls = AGENTS[agent].learn, []

        def dies_later(self, rollout, rewards):
            calls.append(rollout)
            if len(calls) == 4:
                raise Killed
            return learn(self, rollout, rewards)

        patched.setattr(AGENTS[agent], "learn", dies_later)
        with pytest.raises(Killed):
            teach(changed(agent=agent, name="killed"), every_time)
    outcome = teach(changed(agent=agent, name="killed"), every_time)
    assert outcome.is_finished
    assert curve("killed") == curve("whole")
    assert curve("killed")["labels_answered"] == 20


@pytest.mark.parametrize("agent", AGENTS)
def test_it_goes_on_from_an_earlier_experiments_agent(agent):
    first = changed(agent=agent, name="first", env_id="CartPole-v1", predictor="rl", n_labels=None)
    teach(first, QUIET)
    outcome = teach(dataclasses.replace(first, name="second", agent_path="first"), QUIET)
    assert outcome.is_finished
    states = [Experiment.find(name).load_checkpoint() for name in ("first", "second")]
    counts = [state.arrays["agent/observations/count"] for state in states if state is not None]
    np.testing.assert_array_less(counts[0] + 1_000, counts[1])


@pytest.mark.parametrize(
    ("env_id", "hides", "shown"),
    [("CartPole-v1", False, True), ("CartPole-v1", True, False), ("ShortHopper-v1", False, False)],
)
def test_whoever_teaches_sees_the_ends_that_the_agent_is_told_of(env_id, hides, shown):
    assert shows_ends(changed(env_id=env_id, hide_episode_ends=hides)) == shown


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_it_learns_to_balance_the_cartpole_from_labels(agent):
    """Every step earns 1, so nothing but its end tells a good segment from a bad one."""
    config = TeachConfig(
        "CartPole-v1", "synth", name="test", n_labels=200, num_timesteps=300_000, agent=agent
    )
    teach(config, QUIET)
    assert curve("test")["true_return"] > 300
