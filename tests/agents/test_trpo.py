import dataclasses

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from rl_teacher.agents.policies import make_policy
from rl_teacher.agents.rollout_batch import Batch
from rl_teacher.agents.trpo import (
    DistributionParams,
    conjugate_gradient,
    distribution_params,
    fisher_product,
    kl_divergence,
    natural_gradient_step,
)
from rl_teacher.config.agents import TRPOConfig
from tests.agents.rollouts import numpy_policy_of

CONTINUOUS = gym.spaces.Box(-1, 1, (2,))
DISCRETE = gym.spaces.Discrete(3)
CARTPOLE = TRPOConfig(num_envs=16, rollout_steps=64, target_kl=0.05)
SMALL = TRPOConfig(hidden=(4,))


def batch_of(policy, rng, masks=None, num=50):
    observations = jnp.asarray(rng.normal(size=(num, 3)).astype(np.float32))
    actions = jnp.asarray(
        numpy_policy_of(policy).policy_actions(np.asarray(observations), rng, masks)
    )
    allowed = None if masks is None else jnp.asarray(masks)
    return Batch(
        observations=observations,
        weights=jnp.asarray((np.arange(num) < num - 5).astype(np.float32)),
        actions=actions,
        masks=allowed,
        log_probs=policy.log_prob(observations, actions, allowed),
        advantages=jnp.asarray(rng.normal(size=num).astype(np.float32)),
        returns=None,
    )


def policy_for(space):
    policy = make_policy(3, space, (4,), np.random.default_rng(0))
    noise = np.random.default_rng(1)
    return jax.tree.map(
        lambda x: jnp.asarray(x + 0.3 * noise.normal(size=x.shape), jnp.float32), policy
    )


def test_kl_divergence_of_gaussians_matches_hand_computation():
    # log(2 / 1) + (1 + 3^2) / (2 * 4) - 1 / 2
    old = DistributionParams(jnp.array([[1.0]]), jnp.array([0.0]))
    new = DistributionParams(jnp.array([[4.0]]), jnp.log(jnp.array([2.0])))
    assert kl_divergence(old, new)[0] == pytest.approx(np.log(2) + 10 / 8 - 0.5, rel=1e-6)


def test_kl_divergence_of_categoricals_matches_hand_computation():
    old, new = (
        DistributionParams(jnp.log(jnp.array([p])), None) for p in ([0.5, 0.5], [0.25, 0.75])
    )
    expected = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert kl_divergence(old, new)[0] == pytest.approx(expected, rel=1e-5)


def test_conjugate_gradient_solves_3x3_system_in_three_steps():
    matrix = jnp.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
    x = conjugate_gradient(lambda v: matrix @ v, jnp.array([1.0, 2.0, 3.0]), 3)
    np.testing.assert_allclose(matrix @ x, [1.0, 2.0, 3.0], atol=1e-5)


@pytest.mark.parametrize("space", [CONTINUOUS, DISCRETE])
def test_fisher_product_equals_hessian_product_of_kl_divergence(space):
    policy = policy_for(space)
    rng = np.random.default_rng(2)
    batch = batch_of(policy, rng)
    theta, unravel = ravel_pytree(policy)

    def params_of(policy):
        return distribution_params(policy, batch.observations)

    def kl(other):
        divergences = kl_divergence(params_of(policy), params_of(unravel(other)))
        return jnp.sum(batch.weights * divergences) / batch.weights.sum()

    v = jnp.asarray(rng.normal(size=theta.shape).astype(np.float32))
    old, jvp = jax.linearize(lambda t: params_of(unravel(t)), theta)
    (product,) = jax.linear_transpose(jvp, theta)(fisher_product(old, jvp(v), batch.weights))
    _, expected = jax.jvp(jax.grad(kl), (theta,), (v,))
    np.testing.assert_allclose(product, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("space", [CONTINUOUS, DISCRETE])
def test_step_improves_within_target_kl(space):
    policy = policy_for(space)
    after, metrics = natural_gradient_step(
        policy, batch_of(policy, np.random.default_rng(3)), SMALL
    )
    assert 0.001 < metrics["kl"] < SMALL.target_kl
    assert metrics["improved"]
    assert metrics["policy_loss"] < 0
    assert not np.array_equal(ravel_pytree(after)[0], ravel_pytree(policy)[0])


def test_failed_line_search_leaves_policy_unchanged(monkeypatch):
    policy = policy_for(CONTINUOUS)
    batch = batch_of(policy, np.random.default_rng(3))
    # Advantages reward actions close to the mean, so the update shrinks the standard deviation,
    # whose KL divergence the quadratic model underestimates.
    closeness = -jnp.sum((batch.actions - policy.mean(batch.observations)) ** 2, axis=-1)
    monkeypatch.setattr(TRPOConfig, "cg_damping", 0.0)
    monkeypatch.setattr(TRPOConfig, "line_search_steps", 1)
    config = dataclasses.replace(SMALL, target_kl=3.0)
    after, metrics = natural_gradient_step(policy, batch._replace(advantages=closeness), config)
    assert not metrics["improved"]
    np.testing.assert_array_equal(ravel_pytree(after)[0], ravel_pytree(policy)[0])
