"""Agents where observations are pictures."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents import ppo
from rl_teacher.agents.a2c import A2C
from rl_teacher.agents.collector import Collector
from rl_teacher.agents.ga3c import GA3C
from rl_teacher.agents.minibatch_sgd import minibatches
from rl_teacher.agents.ppo import PPO
from rl_teacher.agents.registry import make_agent
from rl_teacher.agents.rollout_batch import (
    BootstrapObservations,
    bootstrap_values,
    flatten_time,
    prepare_batches,
)
from rl_teacher.common.errors import BadInput
from rl_teacher.common.state_dict import tree_to_arrays
from rl_teacher.config.agents import A2CConfig, GA3CConfig, PPOConfig
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.nn.conv import BLOCK_IMAGES, ImageEncoder
from rl_teacher.nn.encoders import POLICIES
from rl_teacher.nn.image_layout import ImageLayout
from tests.image_environments import Corridor, Seeker, make_corridors

SETTINGS = {
    PPO: PPOConfig(
        num_envs=8, rollout_steps=32, num_epochs=4, minibatch_size=64, learning_rate=1e-3
    ),
    A2C: A2CConfig(num_envs=8, learning_rate=7e-3),
    GA3C: GA3CConfig(num_envs=8, batch_envs=8, learning_rate=7e-3),
}


def made(kind, venv, seed=0):
    return kind(
        venv.single_observation_space,
        venv.single_action_space,
        SETTINGS[kind],
        total_steps=10_000,
        seed=seed,
    )


def train(agent, venv, num_rollouts):
    """The mean reward of a step in the last rollouts."""
    collector, means = Collector(venv, seed=0), []
    for _ in range(num_rollouts):
        rollout = collector.collect(agent.act, agent.rollout_steps)
        agent.learn(rollout, rollout.rewards)
        means.append(rollout.rewards.mean())
    return np.mean(means[-num_rollouts // 5 :])


@pytest.mark.parametrize("is_continuous", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ppo_learns_where_one_must_look(is_continuous):
    venv = make_corridors(8, Seeker, is_continuous=is_continuous)
    assert train(made(PPO, venv), venv, 15) > 0.8


@pytest.mark.parametrize("kind", [pytest.param(A2C, marks=pytest.mark.slow), GA3C])
def test_the_others_learn_too(kind):
    venv = make_corridors(8, Corridor)
    assert train(made(kind, venv), venv, 300) > 0.7


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_saved_agent_goes_on_exactly(kind):
    venv, other_venv = make_corridors(8), make_corridors(8)
    one, other = made(kind, venv), made(kind, other_venv, seed=1)
    train(one, venv, 2)
    other.load_state(one.state())
    seen = Collector(venv, seed=3).collect(one.predict, 4)
    other.load_state(one.state())
    np.testing.assert_array_equal(
        *(each.predict(seen.observations[-1], deterministic=True) for each in (one, other))
    )
    means = [train(each, make_corridors(8), 3) for each in (one, other)]
    assert means[0] == means[1]
    for name, array in one.state().items():
        np.testing.assert_array_equal(array, other.state()[name], err_msg=name)


def test_one_begins_with_what_another_sees():
    venv = make_corridors(8)
    one, other = made(PPO, venv), made(PPO, venv, seed=1)
    other.warm_start_from(one.state())
    pictures = np.random.default_rng(0).integers(0, 256, (50, 2, 12, 12), np.uint8)
    np.testing.assert_array_equal(one._encode(pictures), other._encode(pictures))


@pytest.mark.parametrize(
    ("shape", "channel_axis"),
    [((2, 13, 12), 0), ((12, 14, 3), 2), ((20, 21), None), ((4, 84, 84), 0), ((90, 45, 3), 2)],
)
def test_pictures_tile_by_tile_look_the_same(shape, channel_axis):
    picture = ImageLayout(shape, channel_axis)
    encoder = ImageEncoder(picture, "small", np.random.default_rng(0))
    pictures = np.random.default_rng(0).integers(0, 256, (3, picture.num_bytes), np.uint8)
    said = encoder.convolutions.encode_tiles(jnp.asarray(encoder.to_tiles(pictures)))
    np.testing.assert_allclose(said, encoder.convolutions(jnp.asarray(pictures)), atol=1e-5)


@pytest.mark.parametrize("num", [1, BLOCK_IMAGES, 3 * BLOCK_IMAGES - 1])
def test_a_whole_rollout_is_seen_piece_by_piece_and_no_different(num):
    encoder = ImageEncoder(ImageLayout((1, 12, 12), 0), "small", np.random.default_rng(0))
    pictures = np.random.default_rng(0).integers(0, 256, (3, num, 144), np.uint8)
    tiles = jnp.asarray(encoder.to_tiles(pictures.reshape(-1, 144)))
    features = jax.jit(encoder.__call__)(tiles.reshape(3, num, -1))
    assert features.shape == (3, num, POLICIES["small"].dense)
    for one, expected in zip(tiles, features.reshape(3 * num, -1), strict=True):
        np.testing.assert_allclose(encoder(one), expected, atol=1e-5)


def test_what_steps_led_to_is_worth_the_same_whether_it_is_looked_at_again_or_not():
    venv = make_corridors(8)
    agent = made(PPO, venv)
    rollout = Collector(venv, seed=0).collect(agent.act, 32)
    assert rollout.ended.any()
    lived = agent._rollout_batch(rollout, rollout.rewards)
    assert isinstance(lived.next_observations, BootstrapObservations)
    assert len(lived.next_observations.steps) <= 8 + 8 * 2
    everything = agent._flatten(rollout.next_observations)
    lived, again = (
        jax.tree.map(jnp.asarray, each)
        for each in (lived, lived._replace(next_observations=everything))
    )
    values = agent._networks.value(agent._networks.encoder(lived.observations))[..., 0]
    ours, others = (bootstrap_values(agent._networks, each, values) for each in (lived, again))
    np.testing.assert_allclose(ours, others, atol=1e-5)


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_what_was_seen_while_acting_is_not_looked_at_again_and_is_the_same(kind):
    venv = make_corridors(8)
    agent = made(kind, venv)
    for _ in range(2):
        rollout = Collector(venv, seed=0).collect(agent.act, agent.rollout_steps)
        lived = agent._rollout_batch(rollout, rollout.rewards)
        features = agent._networks.encoder(jnp.asarray(lived.observations))
        np.testing.assert_allclose(lived.features, features, atol=1e-5)


def improved(agent, lived, num_threads):
    """The networks after two epochs, and the metrics."""
    batch = prepare_batches(agent._networks, lived, agent.config)
    pictures = jnp.asarray(flatten_time(lived.observations))
    order = minibatches(np.random.default_rng(0), lived.weights.size, 2, 100)
    (state,) = agent._optimisers
    with ThreadPoolExecutor(num_threads) as cores:
        networks, _, metrics = ppo.update_jointly(
            agent._networks, state, pictures, batch, order, 1e-3, agent.config, cores
        )
    return tree_to_arrays(networks), metrics


def lived_with_gaps():
    """A PPO and a rollout in which some steps do not count."""
    venv = make_corridors(8)
    agent = made(PPO, venv)
    rollout = Collector(venv, seed=0).collect(agent.act, 32)
    lived = agent._rollout_batch(
        rollout, np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    )
    weights = (np.random.default_rng(1).random((32, 8)) < 0.8).astype(np.float32)
    return agent, lived._replace(weights=weights)


def test_a_minibatchs_pieces_have_the_gradient_of_the_whole(monkeypatch):
    agent, lived = lived_with_gaps()
    monkeypatch.setattr(ppo, "CHUNK", 30)
    in_pieces, metrics = improved(agent, lived, 2)
    monkeypatch.setattr(ppo, "CHUNK", 1000)
    whole, expected = improved(agent, lived, 2)
    for name, array in whole.items():
        np.testing.assert_allclose(in_pieces[name], array, atol=2e-5, err_msg=name)
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, abs=1e-3)


def test_the_number_of_cores_changes_nothing():
    agent, lived = lived_with_gaps()
    (one, _), (three, _) = (improved(agent, lived, num) for num in (1, 3))
    for name, array in one.items():
        np.testing.assert_array_equal(array, three[name], err_msg=name)


@pytest.mark.parametrize("name", ["trpo", "sac", "sb3:PPO"])
def test_an_agent_that_cannot_see_says_so_and_names_those_that_can(name):
    config = TeachConfig("Corridor", "rl", name="x", agent=name)
    with pytest.raises(BadInput, match="-a ppo, a2c or ga3c"):
        make_agent(config, make_corridors(1))
