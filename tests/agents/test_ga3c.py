import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.agents.ga3c import GA3C, num_batches, prepare_off_policy, split_envs
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import GA3CConfig
from rl_teacher.envs.registry import make_vector
from tests.agents.rollouts import new_agent, state_after, train

CARTPOLE = GA3CConfig(num_envs=32, learning_rate=2e-3)


def on_device(lived):
    return jax.tree.map(jnp.asarray, lived)


def same(here, there):
    assert here.keys() == there.keys()
    for name, array in here.items():
        np.testing.assert_array_equal(array, there[name], err_msg=name)


@pytest.mark.slow
def test_it_balances_the_cartpole():
    _, _, episodes = train(GA3C, make_vector("CartPole-v1", 32), CARTPOLE, 500, seed=0)
    assert episodes.mean_return(20) > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_swings_the_pendulum_up(seed):
    config = GA3CConfig(rollout_steps=8, gamma=0.9, learning_rate=2e-3)
    _, _, episodes = train(GA3C, make_vector("Pendulum-v1", 64), config, 3000, seed)
    assert episodes.mean_return(50) > -400


def test_a_rollout_is_lived_by_the_policy_of_the_update_before_last():
    venv = make_vector("CartPole-v1", 32)
    agent = new_agent(GA3C, venv, CARTPOLE)
    collector = Collector(venv, seed=0)
    acted, learned = [], []
    for _ in range(4):
        acted.append(agent.state()["pending/acting"])
        rollout = collector.collect(agent.act, CARTPOLE.rollout_steps)
        agent.learn(rollout, rollout.rewards)
        learned.append(np.asarray(agent._pending.networks))
    np.testing.assert_array_equal(acted[0], acted[1])  # nothing was learned yet
    np.testing.assert_array_equal(acted[2], learned[0])
    np.testing.assert_array_equal(acted[3], learned[1])
    assert not np.array_equal(learned[0], learned[1])


def test_a_saved_agent_goes_on_exactly():
    venv, other_venv = (make_vector("CartPole-v1", 32) for _ in range(2))
    agent, collector, _ = train(GA3C, venv, CARTPOLE, 20, seed=0)
    other, other_collector, _ = train(GA3C, other_venv, CARTPOLE, 3, seed=1)
    other.load_state(agent.state())
    other_collector.load_state(collector.state())
    same(state_after(agent, collector, 20), state_after(other, other_collector, 20))


def test_the_same_seed_gives_the_same_numbers():
    first, again = (
        train(GA3C, make_vector("CartPole-v1", 32), CARTPOLE, 10, seed=3)[0].state()
        for _ in range(2)
    )
    same(first, again)


def test_asking_how_it_stands_changes_nothing():
    venv, other_venv = (make_vector("CartPole-v1", 32) for _ in range(2))
    agent, collector, _ = train(GA3C, venv, CARTPOLE, 0, seed=0)
    other, other_collector, _ = train(GA3C, other_venv, CARTPOLE, 0, seed=0)
    for _ in range(5):
        state_after(agent, collector, 1)
    same(agent.state(), state_after(other, other_collector, 5))


def test_one_that_begins_anew_drops_what_it_is_learning():
    agent, _, _ = train(GA3C, make_vector("CartPole-v1", 32), CARTPOLE, 5, seed=0)
    agent.reinitialise()
    state = agent.state()
    np.testing.assert_array_equal(agent._pending.networks, state["pending/acting"])
    everywhere = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    assert 0.3 < agent.predict(everywhere, deterministic=True).mean() < 0.7


def test_it_begins_with_what_another_of_its_kind_had_learned():
    venv = make_vector("CartPole-v1", 32)
    agent, _, _ = train(GA3C, venv, CARTPOLE, 20, seed=0)
    other = new_agent(GA3C, venv, CARTPOLE, seed=5)
    other.warm_start_from(agent.state())
    np.testing.assert_array_equal(other.state()["pending/acting"], agent._pending.networks)


def test_networks_of_another_size_are_refused_in_words():
    venv = make_vector("CartPole-v1", 2)
    small = new_agent(GA3C, venv, dataclasses.replace(CARTPOLE, num_envs=2, hidden=(8,)))
    with pytest.raises(BadConfig, match="hidden"):
        new_agent(GA3C, venv, dataclasses.replace(CARTPOLE, num_envs=2)).warm_start_from(
            small.state()
        )


@pytest.mark.parametrize(
    ("num_envs", "least", "wanted"),
    [(64, 16, 4), (20, 16, 1), (40, 16, 2), (37, 16, 1), (8, 16, 1)],
)
def test_environments_are_divided_into_equal_batches(num_envs, least, wanted):
    assert num_batches(num_envs, least) == wanted


def test_a_batch_holds_all_steps_of_its_environments():
    agent, collector, _ = train(GA3C, make_vector("CartPole-v1", 32), CARTPOLE, 0, seed=0)
    rollout = collector.collect(agent.act, 5)
    batches = split_envs(on_device(agent._rollout_batch(rollout, rollout.rewards)), 2)
    assert batches.observations.shape == (2, 5, 16, 4)
    np.testing.assert_array_equal(batches.observations[1, :, 3], rollout.observations[:, 19])
    np.testing.assert_array_equal(batches.actions[0, :, 7], rollout.actions[:, 7])


def test_without_a_lag_nothing_is_corrected():
    agent, collector, _ = train(GA3C, make_vector("CartPole-v1", 32), CARTPOLE, 0, seed=0)
    networks = agent._networks
    rollout = collector.collect(agent.act, 5)
    lived = on_device(agent._rollout_batch(rollout, rollout.rewards))
    _, _, ratio = prepare_off_policy(networks, networks, lived, CARTPOLE)
    assert ratio == 1
