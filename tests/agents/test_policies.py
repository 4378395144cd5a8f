import equinox as eqx
import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rl_teacher.agents.policies import CategoricalPolicy, make_policy
from rl_teacher.nn.mlp import MLP, orthogonal
from rl_teacher.nn.numpy_networks import BLOCK_ROWS, NumpyMLP
from tests.agents.rollouts import numpy_policy_of

OBSERVATIONS = np.random.default_rng(0).normal(size=(20_000, 3)).astype(np.float32)
JAX_OBSERVATIONS = jnp.asarray(OBSERVATIONS)


def gaussian():
    policy = make_policy(3, gym.spaces.Box(-1, 1, (2,)), (8,), np.random.default_rng(0))
    return eqx.tree_at(lambda p: p.log_std, policy, jnp.log(jnp.array([0.5, 2.0])))


def categorical():
    return make_policy(3, gym.spaces.Discrete(4), (8,), np.random.default_rng(0))


def test_gaussian_log_prob_matches_scipy():
    policy = gaussian()
    actions = np.random.default_rng(1).normal(size=(5, 2)).astype(np.float32)
    means = np.asarray(policy.mean(JAX_OBSERVATIONS[:5]))
    expected = stats.norm.logpdf(actions, means, [0.5, 2.0]).sum(1)
    np.testing.assert_allclose(
        policy.log_prob(JAX_OBSERVATIONS[:5], jnp.asarray(actions)), expected, rtol=1e-4
    )


def test_gaussian_entropy_matches_scipy():
    expected = stats.norm.entropy(scale=[0.5, 2.0]).sum()
    assert gaussian().entropy(JAX_OBSERVATIONS[:1])[0] == pytest.approx(expected, rel=1e-5)


def test_categorical_probabilities_sum_to_one():
    policy = categorical()
    log_probs = [policy.log_prob(JAX_OBSERVATIONS[:6], jnp.full(6, a)) for a in range(4)]
    np.testing.assert_allclose(np.exp(log_probs).sum(0), 1.0, rtol=1e-5)


def test_uniform_categorical_entropy_is_log_4():
    policy = eqx.tree_at(lambda p: p.logits.weights[-1], categorical(), replace_fn=jnp.zeros_like)
    assert policy.entropy(JAX_OBSERVATIONS[:1])[0] == pytest.approx(np.log(4))


def test_gaussian_samples_have_mean_and_standard_deviation_of_policy():
    policy = gaussian()
    drawn = numpy_policy_of(policy).policy_actions(OBSERVATIONS, np.random.default_rng(0))
    residual = drawn - np.asarray(policy.mean(JAX_OBSERVATIONS))
    assert residual.mean(0) == pytest.approx([0, 0], abs=0.06)
    assert residual.std(0) == pytest.approx([0.5, 2.0], rel=0.03)


def test_categorical_samples_have_probabilities_of_policy():
    policy = eqx.tree_at(
        lambda p: p.logits.biases[-1], categorical(), jnp.array([0.0, 1.0, 2.0, -1.0])
    )
    same = np.tile(OBSERVATIONS[:1], (20_000, 1))
    drawn = numpy_policy_of(policy).policy_actions(same, np.random.default_rng(0))
    expected = [np.exp(policy.log_prob(JAX_OBSERVATIONS[:1], jnp.array([a]))[0]) for a in range(4)]
    assert np.bincount(drawn, minlength=4) / 20_000 == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize("activation", ["tanh", "leaky_relu", "relu"])
@pytest.mark.parametrize("num_rows", [0, 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS + 5])
def test_numpy_network_equals_jax_network(activation, num_rows):
    network = MLP((3, 16, 16, 2), activation, 1.0, np.random.default_rng(0))
    observations = np.resize(OBSERVATIONS, (num_rows, 3))
    before = observations.copy()
    np.testing.assert_allclose(
        NumpyMLP.from_jax(network)(observations), network(jnp.asarray(before)), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(observations, before)


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5)])
def test_orthogonal_weights_are_orthonormal_along_shorter_side(shape):
    weight = orthogonal(shape, np.random.default_rng(0))
    product = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-5)


def test_masked_action_has_zero_probability():
    rng = np.random.default_rng(0)
    policy = CategoricalPolicy(MLP((2, 3), "tanh", 1.0, rng))
    observations = rng.normal(size=(500, 2)).astype(np.float32)
    masks = np.tile([True, False, True], (500, 1))
    host = numpy_policy_of(policy)
    assert set(host.policy_actions(observations, rng, masks).tolist()) == {0, 2}
    assert set(host.policy_actions(observations, None, masks).tolist()) <= {0, 2}
    log_probs = policy.log_probs(jnp.asarray(observations), jnp.asarray(masks))
    np.testing.assert_allclose(np.exp(log_probs[:, [0, 2]]).sum(-1), 1.0, rtol=1e-5)
    # The entropy of a distribution over two actions is at most log 2.
    assert policy.entropy(jnp.asarray(observations), jnp.asarray(masks)).max() <= np.log(2) + 1e-6
