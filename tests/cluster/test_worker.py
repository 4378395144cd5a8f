"""Rollout actors step parts of a run's environments with the numbers of one process."""

import numpy as np
import pytest

from rl_teacher.agents.collector import RolloutSettings
from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.registry import make_agent
from rl_teacher.cluster.worker import RolloutTask, RolloutWorker
from rl_teacher.common.state_dict import concatenated
from rl_teacher.config.agents import PPOConfig
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.interface import Shard
from rl_teacher.envs.registry import get_env_info, make_vector

NUM_ENVS, NUM_STEPS = 10, 30
# The second one shares blocks of images with its neighbours.
BOUNDS = [(0, 3), (3, 4), (4, 10)]


@pytest.mark.parametrize("env_id", ["ShortHopper-v1", "CartPole-v1", "MovingDot-v0", "Breakout-v0"])
def test_joined_parts_equal_rollout_of_one_process(env_id):
    settings = RolloutSettings(
        *(get_env_info(env_id), 3, 0),
        hide_terminations=False,
        keep_steps=100,
        frames=FrameSettings(),
    )
    config = TeachConfig(env_id, "rl", name="x", ppo=PPOConfig(num_envs=NUM_ENVS))
    agent = make_agent(config, make_vector(env_id, 1))
    assert isinstance(agent, OnPolicyAgent)
    whole = settings.make_collector(NUM_ENVS, 1)
    agent.observe(whole.collect(whole.random_actions, 12))
    state, generator_state = whole.state(), agent.generator_state

    parts = []
    for bounds in BOUNDS:
        shard, worker = Shard(*bounds, NUM_ENVS), RolloutWorker(settings, 1)
        worker._collector = settings.make_collector(len(shard), 1, shard)
        worker._collector.load_state(state)
        worker._held = shard, 0
        task = RolloutTask(shard, NUM_STEPS, "", 0, generator_state, returns_features=True)
        parts.append(worker.collect(task, agent.policy, []))
    columns, finals = whole.collect_columns(agent.act, NUM_STEPS)

    for name, column in columns.items():
        joined = np.concatenate([part.columns[name] for part in parts], axis=1)
        np.testing.assert_array_equal(column, joined, err_msg=name)
    assert len(finals) == sum(len(part.finals[0]) for part in parts)
    actions = np.concatenate([part.policy_actions for part in parts], axis=1)
    np.testing.assert_array_equal(actions, agent._actions)
    if agent.caches_features:
        features = np.concatenate([part.features for part in parts], axis=1)
        np.testing.assert_array_equal(features, agent._features)
    after = concatenated([part.state for part in parts])
    for name, array in whole.state().items():
        own = parts[0].state[name] if name == "self/rng" else after[name]
        np.testing.assert_array_equal(array, own, err_msg=name)
