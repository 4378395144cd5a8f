import dataclasses
import math
from typing import Any

import pytest

from rl_teacher.agents.reset import AgentReset
from rl_teacher.config.experiment import RunOptions, TeachConfig
from rl_teacher.envs.registry import get_env_info
from rl_teacher.plan import resolve

NUM_STEPS = 1_000


class CountedAgent:
    num_resets = 0

    def reinitialise(self):
        self.num_resets += 1


def test_agent_is_reset_once_at_label_threshold():
    agent: Any = CountedAgent()
    agent_reset = AgentReset(10.0)
    agent_reset.apply_if_due(agent, 50, NUM_STEPS, 9)
    assert agent.num_resets == 0
    agent_reset.apply_if_due(agent, 60, NUM_STEPS, 10)
    agent_reset.apply_if_due(agent, 70, NUM_STEPS, 11)
    assert agent.num_resets == 1
    resumed = AgentReset(10.0)
    resumed.load_state(agent_reset.state())
    resumed.apply_if_due(agent, 80, NUM_STEPS, 12)
    assert agent.num_resets == 1


def test_agent_is_reset_only_if_half_of_steps_remain():
    agents: Any = CountedAgent(), CountedAgent()
    late, in_time = agents
    agent_reset = AgentReset(10.0)
    agent_reset.apply_if_due(late, NUM_STEPS // 2 + 1, NUM_STEPS, 10)
    # Not even if the run is extended.
    agent_reset.apply_if_due(late, NUM_STEPS, 2 * NUM_STEPS, 10)
    AgentReset(10.0).apply_if_due(in_time, NUM_STEPS // 2, NUM_STEPS, 10)
    assert (late.num_resets, in_time.num_resets) == (0, 1)


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
        ({"n_labels": None}, math.inf),
        ({"agent_path": "earlier"}, math.inf),
        ({"pretrain_labels": 19}, 20.0),
        ({"pretrain_labels": 20}, math.inf),
        ({"schedule": "upfront"}, math.inf),
    ],
)
def test_label_threshold_is_share_of_budget(changes, threshold):
    config = TeachConfig("ShortHopper-v1", "synth", name="test", n_labels=40, agent_reset=0.5)
    config = dataclasses.replace(config, **changes)
    plan = resolve(config, RunOptions(), get_env_info(config.env_id))
    assert plan.agent.labels_before_reset == threshold
