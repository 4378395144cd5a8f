import dataclasses
import math

import numpy as np
import pytest

from rl_teacher.agents.reset import MAX_SAMPLES, STRIDE, AgentReset, RecentSteps
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.envs.rollout import Rollout

NUM_STEPS = 1_000


class ReplayAgent:
    """Stub of an off-policy agent, which cannot restore a checkpoint."""

    def __init__(self):
        self.value = 1.0

    def reinitialise(self):
        self.value = 0.0

    def state(self):
        return {"value": np.array(self.value)}


class CheckpointAgent(ReplayAgent):
    def restore_checkpoint(self, state):
        self.value = float(state["value"])


def rollout(value, num_steps=8, num_envs=4, is_valid=True):
    """Create a rollout whose observations all have one value."""
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


def reset_after(agent, value, step=100):
    """Return an agent reset that was applied at a step after observations of a value."""
    agent_reset = AgentReset(10.0)
    agent_reset.observe(rollout(value))
    agent_reset.apply_if_due(agent, step, NUM_STEPS, 10, first_feature)
    return agent_reset


def test_reset_happens_at_label_threshold():
    agent = CheckpointAgent()
    agent_reset = AgentReset(10.0)
    agent_reset.observe(rollout(1.0))
    agent_reset.apply_if_due(agent, 50, NUM_STEPS, 9, first_feature)
    assert agent.value == 1.0
    agent_reset.apply_if_due(agent, 60, NUM_STEPS, 10, first_feature)
    assert agent.value == 0.0


@pytest.mark.parametrize(("new_value", "value"), [(1.0, 1.0), (3.0, 5.0)], ids=["worse", "better"])
def test_better_of_old_and_new_agent_continues_after_equal_steps(new_value, value):
    agent = CheckpointAgent()
    agent_reset = reset_after(agent, 2.0)
    agent.value = 5.0
    agent_reset.observe(rollout(new_value))
    agent_reset.apply_if_due(agent, 199, NUM_STEPS, 10, first_feature)
    assert agent.value == 5.0
    agent_reset.apply_if_due(agent, 200, NUM_STEPS, 10, first_feature)
    assert agent.value == value


def test_agent_is_reset_only_if_half_of_steps_remain():
    late, in_time = CheckpointAgent(), CheckpointAgent()
    agent_reset = reset_after(late, 2.0, step=NUM_STEPS // 2 + 1)
    # Not even if the run is extended.
    agent_reset.apply_if_due(late, NUM_STEPS, 2 * NUM_STEPS, 10, first_feature)
    reset_after(in_time, 2.0, step=NUM_STEPS // 2)
    assert (late.value, in_time.value) == (1.0, 0.0)


def test_reset_is_judged_once_by_newest_predictor():
    agent = CheckpointAgent()
    agent_reset = reset_after(agent, 2.0)
    agent_reset.observe(rollout(1.0))
    agent_reset.apply_if_due(agent, 200, NUM_STEPS, 10, lambda *each: -first_feature(*each))
    agent_reset.observe(rollout(1.0))
    agent_reset.apply_if_due(agent, 300, NUM_STEPS, 20, first_feature)
    assert agent.value == 0.0


def test_reset_of_replay_agent_is_final():
    agent = ReplayAgent()
    agent_reset = reset_after(agent, 2.0)
    agent_reset.observe(rollout(1.0))
    agent_reset.apply_if_due(agent, 200, NUM_STEPS, 10, first_feature)
    assert agent.value == 0.0
    assert agent_reset.state().keys() == {"self/reset_step", "self/is_finished"}


def test_restored_reset_continues():
    agent = CheckpointAgent()
    agent_reset = reset_after(agent, 2.0)
    agent_reset.observe(rollout(1.0))
    other = AgentReset(10.0)
    other.load_state(agent_reset.state())
    other.apply_if_due(agent, 200, NUM_STEPS, 10, first_feature)
    assert agent.value == 1.0
    restored = AgentReset(10.0)
    restored.load_state(other.state())
    restored.apply_if_due(agent, 900, NUM_STEPS, 20, first_feature)
    assert agent.value == 1.0


def test_recent_steps_come_from_every_environment():
    """Neighbouring steps of an environment are alike, not those of two environments."""
    given, recent = rollout(0.0, num_steps=2 * STRIDE, num_envs=STRIDE), RecentSteps()
    given.observations[..., 0], given.observations[..., 1] = np.indices(given.rewards.shape)
    recent.observe(given)
    time, env, _ = recent.state()["observations"].T
    assert {*time.tolist()} == {0, STRIDE}
    assert {*env.tolist()} == {*range(STRIDE)}


def test_recent_steps_are_subsampled_and_bounded():
    recent = RecentSteps()
    recent.observe(rollout(9.0))
    recent.observe(rollout(9.0, is_valid=False))
    assert len(recent.state()["observations"]) == 8 * 4 / STRIDE
    recent.observe(rollout(1.0, num_steps=STRIDE, num_envs=MAX_SAMPLES - 1))
    assert recent.mean_reward(first_feature) == pytest.approx(1 + 8 / MAX_SAMPLES)
    assert recent.state()["observations"].shape == (MAX_SAMPLES, 3)


@pytest.mark.parametrize(
    ("changes", "threshold"),
    [
        ({}, 20.0),
        ({"agent_reset": 0.75}, 30.0),
        ({"agent_reset": 0.0}, math.inf),
        ({"agent_reset": None}, math.inf),
        ({"agent_reset": None, "agent": "sac"}, 20.0),
        ({"agent_reset": None, "agent": "sac", "n_labels": None}, math.inf),
        ({"agent_reset": 0.0, "agent": "sac"}, math.inf),
        ({"predictor": "rl"}, math.inf),
        ({"n_labels": None}, math.inf),
        ({"agent_path": "earlier"}, math.inf),
        ({"pretrain_labels": 19}, 20.0),
        ({"pretrain_labels": 20}, math.inf),
        ({"schedule": "upfront"}, math.inf),
    ],
)
def test_label_threshold_is_share_of_budget(changes, threshold):
    config = TeachConfig("ShortHopper-v1", "synth", name="test", n_labels=40, agent_reset=0.5)
    assert dataclasses.replace(config, **changes).labels_before_reset == threshold
