"""Agents with image observations."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents import ppo
from rl_teacher.agents.a2c import A2C
from rl_teacher.agents.collector import Collector
from rl_teacher.agents.ga3c import GA3C
from rl_teacher.agents.ppo import PPO, minibatches
from rl_teacher.agents.registry import make_agent
from rl_teacher.agents.rollout_batch import (
    BootstrapObservations,
    bootstrap_values,
    prepare_batch,
)
from rl_teacher.common.errors import BadInput
from rl_teacher.common.state_dict import tree_to_arrays
from rl_teacher.config.agents import A2CConfig, GA3CConfig, PPOConfig
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.nn.conv import ImageEncoder
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.nn.random_features import random_features_for
from tests.image_environments import Corridor, Seeker, make_corridors, make_crossings

SETTINGS = {
    PPO: PPOConfig(
        num_envs=8,
        rollout_steps=32,
        num_epochs=4,
        minibatch_size=64,
        learning_rate=1e-3,
        final_learning_rate=3e-4,
    ),
    A2C: A2CConfig(num_envs=8, learning_rate=3e-2, final_learning_rate=3e-3),
    GA3C: GA3CConfig(num_envs=8, learning_rate=3e-2, final_learning_rate=3e-3),
}
CNN_RATE = {"learning_rate": 7e-3, "final_learning_rate": 7e-4}
"""Learning rate of A2C with a CNN."""


ENCODED = [(PPO, "bands"), (PPO, "small"), (A2C, "bands"), (A2C, "small"), (GA3C, "bands")]
every_encoder = pytest.mark.parametrize(("kind", "encoder"), ENCODED)
MAKERS = [make_corridors, make_crossings]


def make(kind, venv, encoder="bands", seed=0):
    choice: dict[str, Any] = {} if kind is GA3C else {"image_encoder": encoder}
    if kind is A2C and encoder != "bands":
        choice |= CNN_RATE
    return kind(
        venv.single_observation_space,
        venv.single_action_space,
        replace(SETTINGS[kind], **choice),
        total_steps=10_000,
        seed=seed,
    )


def train(agent, venv, num_rollouts):
    """Train an agent and return the mean reward of the last fifth of its rollouts."""
    collector, means = Collector(venv, seed=0), []
    for _ in range(num_rollouts):
        rollout = collector.collect(agent.act, agent.rollout_steps)
        agent.learn(rollout, rollout.rewards)
        means.append(rollout.rewards.mean())
    return np.mean(means[-num_rollouts // 5 :])


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["bands", "small"])
@pytest.mark.parametrize("is_continuous", [False, True])
@pytest.mark.usefixtures("_shapes_unchecked")
def test_ppo_learns_from_image_observations(is_continuous, encoder):
    venv = make_corridors(8, Seeker, is_continuous=is_continuous)
    assert train(make(PPO, venv, encoder), venv, 15) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "encoder"), ENCODED[2:])
@pytest.mark.usefixtures("_shapes_unchecked")
def test_a2c_and_ga3c_learn_from_image_observations(kind, encoder):
    venv = make_corridors(8, Corridor)
    assert train(make(kind, venv, encoder), venv, 300 if encoder != "bands" else 600) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["bands", "small"])
@pytest.mark.usefixtures("_shapes_unchecked")
def test_ppo_learns_what_needs_image_and_vector(encoder):
    venv = make_crossings(8)
    assert train(make(PPO, venv, encoder), venv, 60) > 0.4


@pytest.mark.parametrize(
    ("kind", "encoder", "make_envs"),
    [
        *((*each, make_corridors) for each in ENCODED),
        (PPO, "small", make_crossings),
        (GA3C, "bands", make_crossings),
    ],
)
def test_restored_image_agent_continues_exactly(kind, encoder, make_envs):
    venv, other_venv = make_envs(8), make_envs(8)
    one, other = make(kind, venv, encoder), make(kind, other_venv, encoder, seed=1)
    train(one, venv, 2)
    other.load_state(one.state())
    rollout = Collector(venv, seed=3).collect(one.predict, 4)
    other.load_state(one.state())
    first, second = (
        each.predict(rollout.observations[-1], deterministic=True) for each in (one, other)
    )
    np.testing.assert_array_equal(first, second)
    means = [train(each, make_envs(8), 3) for each in (one, other)]
    assert means[0] == means[1]
    for name, array in one.state().items():
        np.testing.assert_array_equal(array, other.state()[name], err_msg=name)


@pytest.mark.parametrize(
    ("shape", "channel_axis"),
    [
        ((2, 13, 12), 0),
        ((12, 14, 3), 2),
        ((20, 21), None),
        pytest.param((4, 84, 84), 0, marks=pytest.mark.slow),
        pytest.param((90, 45, 3), 2, marks=pytest.mark.slow),
    ],
)
def test_tiled_images_encode_like_whole_images(shape, channel_axis):
    layout = ImageLayout(shape, channel_axis)
    encoder = ImageEncoder(layout, "small", np.random.default_rng(0))
    images = np.random.default_rng(0).integers(0, 256, (3, layout.num_bytes), np.uint8)
    features = encoder.convolutions.encode_tiles(jnp.asarray(encoder.to_tiles(images)))
    np.testing.assert_allclose(features, encoder.convolutions(jnp.asarray(images)), atol=1e-5)


def test_vector_follows_the_tiles_of_its_image():
    layout = ImageLayout((8, 8), None, vector_size=1)
    images = np.arange(64, dtype=np.uint8)[None]
    rows = layout.join(images, np.array([[-2.5]], np.float32))
    tiles = layout.to_tiles(rows, 4, 4)
    # The first row of four pixels of each tile, and -2.5 in single precision.
    np.testing.assert_array_equal(tiles[0, :64].reshape(4, 4, 4)[:, 0, 0], [0, 4, 32, 36])
    np.testing.assert_array_equal(tiles[0, 64:], list((0xC0200000).to_bytes(4, sys.byteorder)))


@pytest.mark.parametrize("make_envs", MAKERS)
@pytest.mark.parametrize("encoder", ["bands", "small"])
def test_bootstrap_values_equal_values_of_all_next_observations(encoder, make_envs):
    venv = make_envs(8)
    agent = make(PPO, venv, encoder)
    rollout = Collector(venv, seed=0).collect(agent.act, 32)
    assert rollout.ended.any()
    rollout_batch = agent.rollout_batch(rollout, rollout.rewards)
    assert isinstance(rollout_batch.next_observations, BootstrapObservations)
    assert len(rollout_batch.next_observations.steps) <= 8 + 8 * 2
    all_next_observations = agent._normalised(agent._rows(rollout.next_observations))
    rollout_batch, full_batch = (
        jax.tree.map(jnp.asarray, each)
        for each in (rollout_batch, rollout_batch._replace(next_observations=all_next_observations))
    )
    values = agent._networks.value(agent._networks.encoder(rollout_batch.observations))[..., 0]
    actual, expected_values = (
        bootstrap_values(agent._networks, each, values) for each in (rollout_batch, full_batch)
    )
    np.testing.assert_allclose(actual, expected_values, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "make_envs"), [(A2C, make_corridors), *((PPO, m) for m in MAKERS)]
)
def test_features_cached_while_acting_equal_encoded_features(kind, make_envs):
    venv = make_envs(8)
    agent = make(kind, venv, "small")
    for _ in range(2):
        rollout = Collector(venv, seed=0).collect(agent.act, agent.rollout_steps)
        rollout_batch = agent.rollout_batch(rollout, rollout.rewards)
        features = agent._networks.encoder(jnp.asarray(rollout_batch.observations))
        np.testing.assert_allclose(rollout_batch.features, features, atol=1e-5)
        agent.observe(rollout)


@pytest.mark.parametrize("kind", SETTINGS)
def test_bands_are_normalised_by_those_of_earlier_rollouts(kind):
    venv = make_corridors(8)
    agent = make(kind, venv)
    collector = Collector(venv, seed=0)
    rollouts = [collector.collect(agent.act, agent.rollout_steps)]
    agent.learn(rollouts[0], rollouts[0].rewards)
    rollouts.append(collector.collect(agent.act, agent.rollout_steps))
    batch = agent.rollout_batch(rollouts[1], rollouts[1].rewards)
    layout = ImageLayout((2, Corridor.SIZE, Corridor.SIZE), 0)
    first, second = (
        random_features_for(layout)
        .bands(each.observations.reshape(-1, layout.num_bytes))
        .astype(np.float64)
        for each in rollouts
    )
    expected = (second - first.mean(0)) / np.sqrt(first.var(0) + 1e-8)
    actual = batch.observations.reshape(len(second), -1)
    np.testing.assert_allclose(actual, np.clip(expected, -10, 10), rtol=1e-3, atol=1e-3)
    assert batch.features is None


@pytest.mark.parametrize("kind", [PPO, A2C])
@pytest.mark.parametrize("explores_first", [False, True])
def test_pixels_are_standardised_by_those_of_the_first_rollout(kind, explores_first):
    venv = make_corridors(8)
    agent = make(kind, venv, "small")
    collector = Collector(venv, seed=0)
    first = collector.collect(agent.predict if explores_first else agent.act, agent.rollout_steps)
    if explores_first:
        agent.observe(first)
    else:
        agent.learn(first, first.rewards)
    pixels = first.observations.reshape(len(first.observations) * 8, -1) / 255
    differences = pixels - pixels.mean(0)
    for _ in range(3):
        rollout = collector.collect(agent.act, agent.rollout_steps)
        agent.learn(rollout, rollout.rewards)
        encoder: Any = agent._networks.encoder
        np.testing.assert_allclose(encoder.mean, pixels.mean(0), rtol=1e-5)
        np.testing.assert_allclose(encoder.scale, 1 / differences.std(), rtol=1e-5)


def test_standardised_pixels_encode_like_raw_pixels_of_folded_layers():
    layout = ImageLayout((2, 13, 12), 0)
    encoder = ImageEncoder(layout, "small", np.random.default_rng(0))
    images = np.random.default_rng(0).integers(0, 256, (30, layout.num_bytes), np.uint8)
    encoder: Any = encoder.standardised_by(images)
    standardised = (images / 255 - encoder.mean) * encoder.scale
    assert np.std(standardised) == pytest.approx(1)
    expected = encoder.convolutions(jnp.asarray(standardised, jnp.float32))
    actual = encoder.standardised_layers()(jnp.asarray(images))
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert actual.max() > 0.1


def test_pixels_of_a_black_rollout_are_not_standardised_yet():
    encoder = ImageEncoder(ImageLayout((8, 8), None), "small", np.random.default_rng(0))
    assert encoder.needs_images
    assert encoder.standardised_by(np.zeros((5, 64), np.uint8)).needs_images
    assert not encoder.standardised_by(np.ones((5, 64), np.uint8)).needs_images


def test_lost_life_terminates_returns_but_not_the_episode():
    venv = make_corridors(8)
    agent = make(PPO, venv)
    rollout = Collector(venv, seed=0).collect(agent.act, agent.rollout_steps)
    lost_life = np.zeros_like(rollout.terminated)
    lost_life[3, 5] = True
    assert not rollout.ended[3, 5]
    batch = agent.rollout_batch(replace(rollout, lost_life=lost_life), rollout.rewards)
    np.testing.assert_array_equal(batch.terminated, rollout.terminated | lost_life)
    np.testing.assert_array_equal(batch.ended, rollout.ended | lost_life)
    advantages = prepare_batch(agent._networks, batch, agent.config).advantages
    # A_t = r_t - V(o_t): nothing of the next life counts.
    values = agent._networks.value(jnp.asarray(batch.observations[3, 5]))
    expected = batch.rewards[3, 5] - values[0]
    np.testing.assert_allclose(advantages.reshape(lost_life.shape)[3, 5], expected, atol=1e-5)


def updated(agent, rollout_batch, num_threads):
    """Return the networks after two epochs and the metrics."""
    batch = prepare_batch(agent._networks, rollout_batch, agent.config)
    order = minibatches(np.random.default_rng(0), rollout_batch.weights.size, 2, 100)
    (state,) = agent._optimisers
    with ThreadPoolExecutor(num_threads) as pool:
        networks, _, metrics = ppo.update_jointly(
            agent._networks, state, batch, order, 1e-3, agent.config, pool
        )
    return tree_to_arrays(networks), metrics


def batch_with_invalid_steps():
    """Return a PPO agent and a rollout batch in which some steps have zero weight."""
    venv = make_corridors(8)
    agent = make(PPO, venv, "small")
    rollout = Collector(venv, seed=0).collect(agent.act, 32)
    rollout_batch = agent.rollout_batch(
        rollout, np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    )
    weights = (np.random.default_rng(1).random((32, 8)) < 0.8).astype(np.float32)
    return agent, rollout_batch._replace(weights=weights)


def test_chunked_minibatch_update_equals_whole_update(monkeypatch):
    agent, rollout_batch = batch_with_invalid_steps()
    monkeypatch.setattr(ppo, "CHUNK", 30)
    in_pieces, metrics = updated(agent, rollout_batch, 2)
    monkeypatch.setattr(ppo, "CHUNK", 1000)
    whole, expected = updated(agent, rollout_batch, 2)
    for name, array in whole.items():
        np.testing.assert_allclose(in_pieces[name], array, atol=2e-5, err_msg=name)
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize("name", ["trpo", "sac"])
def test_agent_without_image_encoder_is_refused_with_alternatives(name):
    config = TeachConfig("Corridor", "rl", name="x", agent=name)
    with pytest.raises(BadInput, match="ppo"):
        make_agent(config, make_corridors(1))


@pytest.mark.parametrize("name", ["trpo", "sac", "sb3:PPO"])
def test_agent_that_takes_no_images_with_vectors_is_refused_with_alternatives(name):
    config = TeachConfig("Corridor", "rl", name="x", agent=name)
    with pytest.raises(BadInput, match=r"each with a vector of size 2.* ppo"):
        make_agent(config, make_crossings(1))
