import dataclasses
import math

import numpy as np
import pytest

from rl_teacher.agents.reset import MAX_SAMPLES, STRIDE, AgentReset, RecentSteps
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.envs.rollout import Rollout
from rl_teacher.teach import labels_before_reset


class Remembering:
    """An agent that knows one number, and remembers all that it lived."""

    def __init__(self):
        self.knows = 1.0

    def reinitialise(self):
        self.knows = 0.0

    def state(self):
        return {"knows": np.array(self.knows)}


class Returning(Remembering):
    def restore_checkpoint(self, state):
        self.knows = float(state["knows"])


def rollout(value, num_steps=8, num_envs=4, is_valid=True):
    """All observations are of one value."""
    shape = (num_steps, num_envs)
    observations = np.full((*shape, 3), value, np.float32)
    flags = np.zeros(shape, bool)
    return Rollout(
        observations=observations,
        actions=np.zeros((*shape, 2), np.float32),
        rewards=np.zeros(shape, np.float32),
        next_observations=observations,
        terminated=flags,
        truncated=flags,
        is_valid=np.full(shape, is_valid),
        scene_states=np.zeros((*shape, 0)),
    )


def first_feature(observations, actions):
    assert observations.shape[:-1] == actions.shape[:-1]
    return observations[..., 0]


def begun_anew(agent, value, step=100):
    """A fresh start that was taken at a step, by an agent that had seen a value."""
    agent_reset = AgentReset(10.0)
    agent_reset.observe(rollout(value))
    agent_reset.apply_if_due(agent, step, 10, first_feature)
    return agent_reset


def test_it_begins_anew_when_the_labels_have_come_and_not_before():
    agent = Returning()
    agent_reset = AgentReset(10.0)
    agent_reset.observe(rollout(1.0))
    agent_reset.apply_if_due(agent, 50, 9, first_feature)
    assert agent.knows == 1.0
    agent_reset.apply_if_due(agent, 60, 10, first_feature)
    assert agent.knows == 0.0


@pytest.mark.parametrize(("now", "knows"), [(1.0, 1.0), (3.0, 5.0)], ids=["worse", "better"])
def test_the_better_one_goes_on_when_both_had_as_many_steps(now, knows):
    agent = Returning()
    agent_reset = begun_anew(agent, 2.0)
    agent.knows = 5.0
    agent_reset.observe(rollout(now))
    agent_reset.apply_if_due(agent, 199, 10, first_feature)
    assert agent.knows == 5.0
    agent_reset.apply_if_due(agent, 200, 10, first_feature)
    assert agent.knows == knows


def test_it_is_judged_by_the_newest_predictor_and_once():
    agent = Returning()
    agent_reset = begun_anew(agent, 2.0)
    agent_reset.observe(rollout(1.0))
    agent_reset.apply_if_due(agent, 200, 10, lambda *each: -first_feature(*each))
    agent_reset.observe(rollout(1.0))
    agent_reset.apply_if_due(agent, 300, 20, first_feature)
    assert agent.knows == 0.0


def test_one_that_remembers_what_it_lived_begins_anew_for_good():
    agent = Remembering()
    agent_reset = begun_anew(agent, 2.0)
    agent_reset.observe(rollout(1.0))
    agent_reset.apply_if_due(agent, 200, 10, first_feature)
    assert agent.knows == 0.0
    assert agent_reset.state().keys() == {"self/reset_step", "self/is_finished"}


def test_it_goes_on_from_a_saved_state():
    agent = Returning()
    agent_reset = begun_anew(agent, 2.0)
    agent_reset.observe(rollout(1.0))
    other = AgentReset(10.0)
    other.load_state(agent_reset.state())
    other.apply_if_due(agent, 200, 10, first_feature)
    assert agent.knows == 1.0
    again = AgentReset(10.0)
    again.load_state(other.state())
    again.apply_if_due(agent, 900, 20, first_feature)
    assert agent.knows == 1.0


def test_of_the_latest_steps_one_in_some_is_kept_and_older_ones_go():
    latest = RecentSteps()
    latest.observe(rollout(9.0))
    latest.observe(rollout(9.0, is_valid=False))
    assert len(latest.state()["observations"]) == 8 * 4 / STRIDE
    latest.observe(rollout(1.0, num_steps=STRIDE, num_envs=MAX_SAMPLES - 1))
    assert latest.mean_reward(first_feature) == pytest.approx(1 + 8 / MAX_SAMPLES)
    assert latest.state()["observations"].shape == (MAX_SAMPLES, 3)


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ({}, 20.0),
        ({"agent_reset": 0.25}, 10.0),
        ({"agent_reset": 0.0}, math.inf),
        ({"predictor": "rl"}, math.inf),
        ({"n_labels": None}, math.inf),
        ({"agent_path": "earlier"}, math.inf),
    ],
)
def test_it_is_due_at_a_share_of_the_labels(changes, labels):
    config = TeachConfig("ShortHopper-v1", "synth", name="test", n_labels=40)
    assert labels_before_reset(dataclasses.replace(config, **changes)) == labels
