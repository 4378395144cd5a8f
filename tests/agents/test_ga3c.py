import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.agents.ga3c import GA3C, num_batches, prepare_off_policy
from rl_teacher.config.agents import GA3CConfig
from rl_teacher.envs.registry import make_vector
from tests.agents.rollouts import new_agent, state_after, train

CARTPOLE = GA3CConfig(num_envs=32, learning_rate=2e-3)


def on_device(batch):
    return jax.tree.map(jnp.asarray, batch)


def assert_same(expected, actual):
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, actual[name], err_msg=name)


def test_acting_policy_lags_one_update():
    venv = make_vector("CartPole-v1", 32)
    agent = new_agent(GA3C, venv, CARTPOLE)
    collector = Collector(venv, seed=0)
    acted, learned = [], []
    for _ in range(4):
        acted.append(agent.state()["pending/acting"])
        rollout = collector.collect(agent.act, CARTPOLE.rollout_steps)
        agent.learn(rollout, rollout.rewards)
        learned.append(np.asarray(agent._pending.networks))
    np.testing.assert_array_equal(acted[0], acted[1])  # no update has been applied yet
    np.testing.assert_array_equal(acted[2], learned[0])
    np.testing.assert_array_equal(acted[3], learned[1])
    assert not np.array_equal(learned[0], learned[1])


def test_reading_state_does_not_change_training():
    venv, other_venv = (make_vector("CartPole-v1", 32) for _ in range(2))
    agent, collector, _ = train(GA3C, venv, CARTPOLE, 0, seed=0)
    other, other_collector, _ = train(GA3C, other_venv, CARTPOLE, 0, seed=0)
    for _ in range(5):
        state_after(agent, collector, 1)
    assert_same(agent.state(), state_after(other, other_collector, 5))


def test_reinitialise_discards_pending_update():
    agent, _, _ = train(GA3C, make_vector("CartPole-v1", 32), CARTPOLE, 5, seed=0)
    agent.reinitialise()
    state = agent.state()
    np.testing.assert_array_equal(agent._pending.networks, state["pending/acting"])
    observations = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    assert 0.3 < agent.predict(observations, deterministic=True).mean() < 0.7


@pytest.mark.parametrize(
    ("num_envs", "min_batch", "expected"),
    [(64, 16, 4), (20, 16, 1), (40, 16, 2), (37, 16, 1), (8, 16, 1)],
)
def test_environments_split_into_equal_batches(num_envs, min_batch, expected):
    assert num_batches(num_envs, min_batch) == expected


def test_importance_ratio_is_one_without_lag():
    agent, collector, _ = train(GA3C, make_vector("CartPole-v1", 32), CARTPOLE, 0, seed=0)
    networks = agent._networks
    rollout = collector.collect(agent.act, 5)
    batch = on_device(agent.rollout_batch(rollout, rollout.rewards))
    _, ratio = prepare_off_policy(networks, networks, batch, CARTPOLE)
    assert ratio == 1
