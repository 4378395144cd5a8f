import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents.a2c import (
    VALUE_BIAS_RATE,
    ParameterLayout,
    actor_critic_loss,
    gradient_step,
    init_optimiser,
    make_optimiser,
)
from rl_teacher.agents.policies import ActorCritic, make_policy
from rl_teacher.agents.rollout_batch import Batch
from rl_teacher.config.agents import A2CConfig
from rl_teacher.nn.mlp import MLP

CARTPOLE = A2CConfig(learning_rate=2e-3)


def networks_for(space):
    rng = np.random.default_rng(0)
    return ActorCritic(make_policy(3, space, (4,), rng), MLP((3, 4, 1), "tanh", 1.0, rng))


def test_rmsprop_first_step_matches_hand_computation():
    # mean square = 0.99 * 1 + 0.01 * 0.3^2 = 0.9909; step = 0.3 / sqrt(0.9909 + 1e-5)
    optimiser = make_optimiser(A2CConfig())
    updates, _ = optimiser.update(jnp.array([0.3]), optimiser.init(jnp.array([0.0])))
    assert jnp.asarray(updates)[0] == pytest.approx(0.3 / np.sqrt(0.99091), rel=1e-6)


def test_gradient_above_max_norm_is_clipped_globally():
    # [3, 4] becomes [0.3, 0.4], of norm 0.5; mean squares are 0.99 + 0.01 * [0.09, 0.16].
    optimiser = make_optimiser(A2CConfig())
    updates, _ = optimiser.update(jnp.array([3.0, 4.0]), optimiser.init(jnp.zeros(2)))
    expected = np.array([0.3, 0.4]) / np.sqrt([0.99091, 0.99161])
    np.testing.assert_allclose(jnp.asarray(updates), expected, rtol=1e-5)


def test_actor_critic_loss_matches_hand_computation():
    networks = networks_for(gym.spaces.Discrete(2))
    observations = jnp.asarray(np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32))
    actions, weights = jnp.array([0, 1, 1]), jnp.array([1.0, 1.0, 0.0])
    log_probs = networks.policy.log_prob(observations, actions)
    advantages, returns = jnp.array([2.0, -1.0, 9.0]), jnp.array([1.0, 2.0, 99.0])
    batch = Batch(observations, weights, actions, None, log_probs, advantages, returns)
    loss, metrics = actor_critic_loss(networks, batch, 0.1)
    values = networks.value(observations)[:, 0]
    policy_loss = -(2 * log_probs[0] - log_probs[1]) / 2
    value_loss = ((values[0] - 1) ** 2 + (values[1] - 2) ** 2) / 2
    entropy = networks.policy.entropy(observations)[:2].mean()
    assert metrics["policy_loss"] == pytest.approx(float(policy_loss), rel=1e-5)
    value_error = (1 - values[0] + 2 - values[1]) / 2
    assert metrics["value_error"] == pytest.approx(float(value_error), rel=1e-5)
    assert loss == pytest.approx(float(policy_loss + 0.5 * value_loss - 0.1 * entropy), rel=1e-5)


def test_gradient_step_moves_value_bias_towards_mean_error():
    networks = networks_for(gym.spaces.Discrete(2))
    layout = ParameterLayout.of(networks)
    packed = jnp.asarray(layout.pack(networks))
    observations = jnp.asarray(np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32))
    actions, weights = jnp.array([0, 1, 1]), jnp.array([1.0, 1.0, 0.0])
    returns = networks.value(observations)[:, 0] + jnp.array([5.0, 7.0, 99.0])
    batch = Batch(observations, weights, actions, None, jnp.zeros(3), jnp.zeros(3), returns)
    # With a learning rate of 0 only the value bias changes.
    updated, _, _ = gradient_step(
        packed, init_optimiser(packed, CARTPOLE), batch, 0.0, layout, CARTPOLE
    )
    updated_networks = layout.unpack(updated)
    assert updated_networks.value.biases[-1] == pytest.approx(6 * VALUE_BIAS_RATE, rel=1e-5)
    assert (updated != packed).sum() == 1


def test_parameter_layout_round_trips():
    networks = networks_for(gym.spaces.Box(-1, 1, (2,)))
    layout = ParameterLayout.of(networks)
    restored = layout.unpack(layout.pack(networks))
    for before, after in zip(jax.tree.leaves(networks), jax.tree.leaves(restored), strict=True):
        np.testing.assert_array_equal(before, after)
    assert layout == ParameterLayout.of(restored)
    assert hash(layout) == hash(ParameterLayout.of(restored))
