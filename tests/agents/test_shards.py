"""Environments divided into shards have the numbers of one process with all environments."""

from typing import Any

import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.registry import make_agent
from rl_teacher.agents.shards import ShardGenerator, ShardPolicy
from rl_teacher.common.state_dict import array_to_rng
from rl_teacher.config.agents import PPOConfig
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.envs.episode_replay import record_in
from rl_teacher.envs.interface import Shard
from rl_teacher.envs.registry import make_vector
from rl_teacher.nn.conv import BLOCK_IMAGES
from rl_teacher.nn.numpy_networks import BLOCK_ROWS

NUM_ENVS = 7
SHARDS = [Shard(0, 3, NUM_ENVS), Shard(3, 4, NUM_ENVS), Shard(4, 7, NUM_ENVS)]
STAGGER = 20
VECTORS = ["ShortHopper-v1", "Humanoid-v5", "CartPole-v1", "Pusher-v5"]
EMULATOR = pytest.param("Breakout-v0", marks=pytest.mark.slow)


def collectors_of(env_id, seed=3, shards=SHARDS):
    stagger = STAGGER if env_id.startswith("Short") else 0
    return [
        Collector(
            make_vector(env_id, len(shard), shard=shard), seed=seed, stagger=stagger, shard=shard
        )
        for shard in shards
    ]


def whole(env_id, seed=3) -> Any:
    [collector] = collectors_of(env_id, seed, [Shard(0, NUM_ENVS, NUM_ENVS)])
    return collector


def divided(one, shards=SHARDS):
    return Collector.split_state(one.venv, one.state(), shards)


def agent_for(env_id):
    config = TeachConfig(env_id, "rl", name="x", ppo=PPOConfig(num_envs=NUM_ENVS))
    agent = make_agent(config, make_vector(env_id, NUM_ENVS))
    assert isinstance(agent, OnPolicyAgent)
    return agent


def policy_in(agent, shard):
    rng = np.random.default_rng()
    array_to_rng(rng, agent.generator_state)
    return ShardPolicy(agent.acting_policy(), rng, shard)


def assert_equal_rollouts(expected, parts):
    for name, column in vars(expected).items():
        if column is not None:
            joined = np.concatenate([getattr(part, name) for part in parts], axis=1)
            np.testing.assert_array_equal(column, joined, err_msg=name)


def assert_equal_states(expected, actual):
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, actual[name], err_msg=name)


@pytest.mark.parametrize("env_id", [*VECTORS, "MovingDot-v0", EMULATOR])
def test_shards_collect_the_rollout_of_one_process(env_id):
    one, parts, agent = whole(env_id), collectors_of(env_id), agent_for(env_id)
    warm_up = one.collect(one.random_actions, 30)
    assert_equal_rollouts(warm_up, [part.collect(part.random_actions, 30) for part in parts])
    agent.observe(warm_up)
    policies = [policy_in(agent, shard) for shard in SHARDS]
    rollout = one.collect(agent.act, 60)
    assert_equal_rollouts(
        rollout, [part.collect(act, 60) for part, act in zip(parts, policies, strict=True)]
    )
    # The others have long episodes.
    assert rollout.ended.any() == (env_id in ("Humanoid-v5", "CartPole-v1"))
    if env_id not in VECTORS:
        features = np.concatenate([np.stack(policy.features) for policy in policies], axis=1)
        np.testing.assert_array_equal(features, np.stack(agent._features))
    recorded = np.concatenate([np.stack(policy.actions) for policy in policies], axis=1)
    np.testing.assert_array_equal(recorded, np.stack(agent._actions))


@pytest.mark.parametrize("env_id", [*VECTORS, "MovingDot-v0", EMULATOR])
def test_joined_state_of_shards_is_state_of_one_process(env_id):
    one, parts = whole(env_id), collectors_of(env_id)
    for each in (one, *parts):
        each.collect(each.random_actions, 60)
    states = [part.state() for part in parts]
    assert_equal_states(one.state(), Collector.join_states(one.venv, states))
    for state, part in zip(states, divided(one), strict=True):
        assert_equal_states(state, part)


@pytest.mark.parametrize("env_id", ["ShortHopper-v1", "CartPole-v1", EMULATOR])
def test_shards_of_other_sizes_continue_exactly(env_id):
    one = whole(env_id)
    one.collect(one.random_actions, 60)
    shards = [Shard(0, 1, NUM_ENVS), Shard(1, NUM_ENVS, NUM_ENVS)]
    parts = collectors_of(env_id, seed=4, shards=shards)
    for part, state in zip(parts, divided(one, shards), strict=True):
        part.load_state(state)
    expected = one.collect(one.random_actions, 60)
    assert_equal_rollouts(expected, [part.collect(part.random_actions, 60) for part in parts])


def test_networks_of_more_than_one_block_are_computed_in_the_same_blocks():
    agent, num_envs = agent_for("Humanoid-v5"), BLOCK_ROWS + 5
    policy = agent.numpy_policy()
    observations = np.random.default_rng(0).normal(size=(num_envs, policy.encoder.num_features))
    expected = agent.act(observations)
    for shard in (Shard(0, 3, num_envs), Shard(100, num_envs, num_envs)):
        again = agent_for("Humanoid-v5")
        actions = policy_in(again, shard)(observations[shard.rows])
        np.testing.assert_array_equal(actions, expected[shard.rows])


@pytest.mark.slow
def test_images_of_more_than_one_block_are_encoded_with_the_same_numbers():
    agent, num_envs = agent_for("MovingDot-v0"), 2 * BLOCK_IMAGES + 4
    shape = (num_envs, *agent.numpy_policy().encoder.shape)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = agent.act(images)
    [features] = agent._features
    for shard in (Shard(0, 7, num_envs), Shard(7, 17, num_envs), Shard(18, 19, num_envs)):
        policy = policy_in(agent_for("MovingDot-v0"), shard)
        np.testing.assert_array_equal(policy(images[shard.rows]), expected[shard.rows])
        np.testing.assert_array_equal(policy.features[0], features[shard.rows])


def test_shard_generator_draws_rows_of_the_whole():
    shard, rng = Shard(2, 5, 9), np.random.default_rng(0)
    drawn = ShardGenerator(np.random.default_rng(0), shard)
    for expected, actual in [
        (rng.standard_normal((9, 2), np.float32), drawn.standard_normal((3, 2), np.float32)),
        (rng.gumbel(size=(9, 4)), drawn.gumbel(size=(3, 4))),
        (rng.integers(1, 7, 9), drawn.integers(1, 7, 3)),
        (rng.random((9, 2)), drawn.random((3, 2))),
        (rng.uniform(-1, 2, (9, 3)), drawn.uniform(-1, 2, (3, 3))),
    ]:
        np.testing.assert_array_equal(expected[2:5], actual)


def test_record_of_episode_is_found_in_the_state():
    one = whole("CartPole-v1")
    rollout = one.collect(one.random_actions, 60)
    state = one.venv.get_state()
    for episode in np.unique(rollout.scene_states[..., 0]).astype(int).tolist():
        expected, found = one.venv.replay_record(episode), record_in(state, episode)
        assert expected.reset_state == found.reset_state
        np.testing.assert_array_equal(expected.actions, found.actions)
    with pytest.raises(LookupError, match="not kept"):
        record_in(state, 10_000)
