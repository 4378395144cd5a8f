import dataclasses

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from rl_teacher.agents.policies import CategoricalPolicy, make_policy
from rl_teacher.agents.rollout_batch import PolicyBatch
from rl_teacher.agents.trpo import (
    TRPO,
    DistributionParams,
    conjugate_gradient,
    distribution_params,
    fisher_product,
    kl_divergence,
    natural_gradient_step,
)
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import TRPOConfig
from rl_teacher.envs.registry import make_vector
from tests.agents.rollouts import new_agent, numpy_policy_of, state_after, train

CONTINUOUS = gym.spaces.Box(-1, 1, (2,))
DISCRETE = gym.spaces.Discrete(3)
CARTPOLE = TRPOConfig(num_envs=16, rollout_steps=64, target_kl=0.05)
SMALL = TRPOConfig(hidden=(4,))


def batch_of(policy, rng, masks=None, num=50):
    observations = jnp.asarray(rng.normal(size=(num, 3)).astype(np.float32))
    actions = jnp.asarray(numpy_policy_of(policy).sample(np.asarray(observations), rng, masks))
    allowed = None if masks is None else jnp.asarray(masks)
    return PolicyBatch(
        observations=observations,
        weights=jnp.asarray((np.arange(num) < num - 5).astype(np.float32)),
        actions=actions,
        masks=allowed,
        log_probs=policy.log_prob(observations, actions, allowed),
        advantages=jnp.asarray(rng.normal(size=num).astype(np.float32)),
    )


def policy_for(space):
    policy = make_policy(3, space, (4,), np.random.default_rng(0))
    noise = np.random.default_rng(1)
    return jax.tree.map(
        lambda x: jnp.asarray(x + 0.3 * noise.normal(size=x.shape), jnp.float32), policy
    )


def test_the_divergence_of_two_gaussians_by_hand():
    # log(2 / 1) + (1 + 3^2) / (2 * 4) - 1 / 2
    old = DistributionParams(jnp.array([[1.0]]), jnp.array([0.0]))
    new = DistributionParams(jnp.array([[4.0]]), jnp.log(jnp.array([2.0])))
    assert kl_divergence(old, new)[0] == pytest.approx(np.log(2) + 10 / 8 - 0.5, rel=1e-6)


def test_the_divergence_of_two_softmaxes_by_hand():
    old, new = (
        DistributionParams(jnp.log(jnp.array([p])), None) for p in ([0.5, 0.5], [0.25, 0.75])
    )
    wanted = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert kl_divergence(old, new)[0] == pytest.approx(wanted, rel=1e-5)


def test_conjugate_gradient_solves_three_equations_in_three_steps():
    matrix = jnp.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
    x = conjugate_gradient(lambda v: matrix @ v, jnp.array([1.0, 2.0, 3.0]), 3)
    np.testing.assert_allclose(matrix @ x, [1.0, 2.0, 3.0], atol=1e-5)


@pytest.mark.parametrize("space", [CONTINUOUS, DISCRETE])
def test_the_fisher_product_is_that_of_the_divergences_second_derivative(space):
    policy = policy_for(space)
    rng = np.random.default_rng(2)
    batch = batch_of(policy, rng)
    theta, unravel = ravel_pytree(policy)

    def said_by(policy):
        return distribution_params(policy, batch.observations)

    def kl(other):
        divergences = kl_divergence(said_by(policy), said_by(unravel(other)))
        return jnp.sum(batch.weights * divergences) / batch.weights.sum()

    v = jnp.asarray(rng.normal(size=theta.shape).astype(np.float32))
    old, pushed = jax.linearize(lambda t: said_by(unravel(t)), theta)
    (product,) = jax.linear_transpose(pushed, theta)(fisher_product(old, pushed(v), batch.weights))
    _, wanted = jax.jvp(jax.grad(kl), (theta,), (v,))
    np.testing.assert_allclose(product, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("space", [CONTINUOUS, DISCRETE])
def test_a_step_stays_within_the_limit_and_improves(space):
    policy = policy_for(space)
    after, metrics = natural_gradient_step(
        policy, batch_of(policy, np.random.default_rng(3)), SMALL
    )
    assert 0.001 < metrics["kl"] < SMALL.target_kl
    assert metrics["improved"]
    assert metrics["policy_loss"] < 0
    assert not np.array_equal(ravel_pytree(after)[0], ravel_pytree(policy)[0])


@pytest.mark.parametrize("space", [CONTINUOUS, DISCRETE])
def test_without_anything_to_gain_the_policy_stays(space):
    policy = policy_for(space)
    batch = batch_of(policy, np.random.default_rng(3))
    nothing = batch._replace(advantages=jnp.zeros_like(batch.advantages))
    after, metrics = natural_gradient_step(policy, nothing, SMALL)
    np.testing.assert_array_equal(ravel_pytree(after)[0], ravel_pytree(policy)[0])
    assert not metrics["improved"]
    assert metrics["kl"] == 0


def test_a_step_that_goes_too_far_however_short_leaves_the_policy_as_it_was():
    policy = policy_for(CONTINUOUS)
    batch = batch_of(policy, np.random.default_rng(3))
    # Only actions close to the mean pay, so the spread wants to shrink, which the quadratic
    # model thinks far too cheap.
    closeness = -jnp.sum((batch.actions - policy.mean(batch.observations)) ** 2, axis=-1)
    config = dataclasses.replace(SMALL, target_kl=3.0, cg_damping=0.0, line_search_steps=1)
    after, metrics = natural_gradient_step(policy, batch._replace(advantages=closeness), config)
    assert not metrics["improved"]
    np.testing.assert_array_equal(ravel_pytree(after)[0], ravel_pytree(policy)[0])


def test_forbidden_actions_stay_forbidden():
    policy = policy_for(DISCRETE)
    masks = np.tile([True, True, False], (50, 1))
    batch = batch_of(policy, np.random.default_rng(3), masks)
    after, metrics = natural_gradient_step(policy, batch, SMALL)
    assert metrics["improved"]
    assert isinstance(after, CategoricalPolicy)
    assert jnp.exp(after.log_probs(batch.observations, batch.masks))[:, 2].max() == 0


@pytest.mark.slow
def test_it_balances_the_cartpole():
    _, _, episodes = train(TRPO, make_vector("CartPole-v1", 16), CARTPOLE, 40, seed=0)
    assert episodes.mean_return(20) > 300


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_swings_the_pendulum_up(seed):
    config = TRPOConfig(num_envs=16, rollout_steps=128, gamma=0.95, target_kl=0.03)
    _, _, episodes = train(TRPO, make_vector("Pendulum-v1", 16), config, 150, seed)
    assert episodes.mean_return(50) > -400


def test_a_saved_agent_goes_on_exactly():
    venv, other_venv = (make_vector("CartPole-v1", 16) for _ in range(2))
    agent, collector, _ = train(TRPO, venv, CARTPOLE, 2, seed=0)
    other, other_collector, _ = train(TRPO, other_venv, CARTPOLE, 1, seed=1)
    other.load_state(agent.state())
    other_collector.load_state(collector.state())
    here, there = state_after(agent, collector, 2), state_after(other, other_collector, 2)
    assert here.keys() == there.keys()
    for name, array in here.items():
        np.testing.assert_array_equal(array, there[name], err_msg=name)


def test_it_begins_as_another_of_its_kind_acts():
    venv = make_vector("CartPole-v1", 16)
    agent, _, _ = train(TRPO, venv, CARTPOLE, 2, seed=0)
    other = new_agent(TRPO, venv, CARTPOLE, seed=5)
    other.warm_start_from(agent.state())
    somewhere = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    np.testing.assert_array_equal(
        agent.predict(somewhere, deterministic=True), other.predict(somewhere, deterministic=True)
    )


def test_networks_of_another_size_are_refused_in_words():
    venv = make_vector("CartPole-v1", 2)
    small = new_agent(TRPO, venv, dataclasses.replace(CARTPOLE, hidden=(8,)))
    with pytest.raises(BadConfig, match="hidden"):
        new_agent(TRPO, venv, CARTPOLE).warm_start_from(small.state())
