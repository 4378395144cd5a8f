"""Trust region policy optimisation (Schulman et al. 2015), with the defaults of sb3-contrib.

The update is a natural gradient step. Conjugate gradient computes its direction F^-1 g, and the
quadratic model of the KL divergence its length. A line search then shortens it until the measured
KL divergence is below the target and the surrogate has improved. If no length succeeds, the policy
stays unchanged.

The Fisher matrix F is never formed. Its product with a vector is J' M J v, where J is the Jacobian
of the distribution parameters (means and log std, or logits) and M their Fisher matrix. This takes
one forward and one backward pass, less than differentiating the KL divergence twice.

Policy and value function share no weights: their updates are two compiled calls in parallel.

T: steps of a rollout, N: environments, B = T * N, A: actions, P: parameters of the policy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from rl_teacher.agents.actions import MASKED_LOGIT
from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.policies import ActorCritic, GaussianPolicy, Policy
from rl_teacher.agents.ppo import make_optimiser, minibatches, update_value
from rl_teacher.agents.rollout_batch import (
    Batch,
    RolloutBatch,
    prepare_batch,
    standardise,
    weighted_mean,
)
from rl_teacher.config.agents import TRPOConfig

CG_TOLERANCE = 1e-10
"""Squared residual below which conjugate gradient stops."""


class DistributionParams(NamedTuple):
    """Parameters of the action distributions for B observations.

    Attributes:
        means: [B, A] means of a Gaussian, or logits of a softmax.
        log_std: [A] log standard deviation of a Gaussian; None for a softmax.
    """

    means: Float[Array, "batch action"]
    log_std: Float[Array, " action"] | None


def distribution_params(
    policy: Policy,
    observations: Float[Array, "batch features"],
    masks: Bool[Array, "batch action"] | None = None,
) -> DistributionParams:
    """Compute the parameters of a policy's action distributions."""
    if isinstance(policy, GaussianPolicy):
        return DistributionParams(policy.mean(observations), policy.log_std)
    logits = policy.logits(observations)
    masked = logits if masks is None else jnp.where(masks, logits, MASKED_LOGIT)
    return DistributionParams(masked, None)


def kl_divergence(old: DistributionParams, new: DistributionParams) -> Float[Array, " batch"]:
    """Compute [B] KL(old || new) in nats."""
    if old.log_std is None or new.log_std is None:
        log_p_old, log_p_new = jax.nn.log_softmax(old.means), jax.nn.log_softmax(new.means)
        return jnp.sum(jnp.exp(log_p_old) * (log_p_old - log_p_new), axis=-1)
    # KL = log(s_new / s_old) + (s_old^2 + (m_old - m_new)^2) / (2 s_new^2) - 1/2, summed over A
    squares = jnp.exp(2 * old.log_std) + (old.means - new.means) ** 2
    return jnp.sum(
        new.log_std - old.log_std + 0.5 * squares * jnp.exp(-2 * new.log_std) - 0.5, axis=-1
    )


def fisher_product(
    params: DistributionParams, tangent: DistributionParams, weights: Float[Array, " batch"]
) -> DistributionParams:
    """Compute M v, with M the Fisher matrix of the parameters, averaged over valid steps."""
    share = (weights / jnp.maximum(weights.sum(), 1.0))[:, None]
    if params.log_std is None or tangent.log_std is None:
        # M = diag(p) - p p'
        p = jax.nn.softmax(params.means)
        centred = tangent.means - jnp.sum(p * tangent.means, axis=-1, keepdims=True)
        return DistributionParams(share * p * centred, None)
    # M = 1 / s^2 for a mean, 2 for a log standard deviation
    means = share * tangent.means * jnp.exp(-2 * params.log_std)
    return DistributionParams(means, 2 * tangent.log_std)


def conjugate_gradient(
    product: Callable[[Array], Array], g: Float[Array, " parameter"], max_steps: int
) -> Float[Array, " parameter"]:
    """Solve A x = g approximately (Hestenes & Stiefel 1952).

    Args:
        product: x -> A x, with A symmetric and positive definite.
        g: [P]
        max_steps: maximum number of steps; P steps solve it exactly.

    Returns:
        [P] x.
    """

    def is_unsolved(state: tuple) -> Array:
        i, *_, squared_residual = state
        return (i < max_steps) & (squared_residual > CG_TOLERANCE)

    def step(state: tuple) -> tuple:
        i, x, residual, direction, squared_residual = state
        # alpha = r'r / d'A d;  x <- x + alpha d;  r <- r - alpha A d
        curvature = product(direction)
        alpha = squared_residual / (direction @ curvature)
        x, residual = x + alpha * direction, residual - alpha * curvature
        # d <- r + (r'r / previous r'r) d
        squared_residual, before = residual @ residual, squared_residual
        direction = residual + squared_residual / before * direction
        return i + 1, x, residual, direction, squared_residual

    _, x, *_ = jax.lax.while_loop(is_unsolved, step, (0, jnp.zeros_like(g), g, g, g @ g))
    return x


def natural_gradient_step(
    policy: Policy, batch: Batch, config: TRPOConfig
) -> tuple[Policy, dict[str, Array]]:
    """Take one step within the trust region; return the policy and metrics by name."""
    theta, unravel = ravel_pytree(policy)
    advantages = standardise(batch.advantages, batch.weights)

    def surrogate(theta: Array) -> Array:
        # L = E[pi(a | o) / pi_old(a | o) * A]
        log_probs = unravel(theta).log_prob(batch.observations, batch.actions, batch.masks)
        return weighted_mean(jnp.exp(log_probs - batch.log_probs) * advantages, batch.weights)

    def params_of(theta: Array) -> DistributionParams:
        return distribution_params(unravel(theta), batch.observations, batch.masks)

    before, g = jax.value_and_grad(surrogate)(theta)
    old, jvp = jax.linearize(params_of, theta)
    vjp = jax.linear_transpose(jvp, theta)

    def damped_fisher(v: Array) -> Array:
        # (F + damping) v = J' M J v + damping * v
        return vjp(fisher_product(old, jvp(v), batch.weights))[0] + config.cg_damping * v

    direction = conjugate_gradient(damped_fisher, g, config.cg_steps)
    # The longest step s with 1/2 s'F s <= target KL along the direction d (appendix C):
    # sqrt(2 * target KL / d'F d)
    max_length = jnp.sqrt(2 * config.target_kl / (direction @ damped_fisher(direction)))

    def evaluate(length: Array) -> tuple[Array, Array]:
        candidate = theta + length * direction
        kl = weighted_mean(kl_divergence(old, params_of(candidate)), batch.weights)
        return (kl < config.target_kl) & (surrogate(candidate) > before), kl

    length, kl, is_improved = _line_search(evaluate, max_length, config)
    # A selection instead of a product with 0, since a failed step may be NaN.
    theta = jnp.where(is_improved, theta + length * direction, theta)
    entropy = unravel(theta).entropy(batch.observations, batch.masks)
    metrics = {
        "policy_loss": -surrogate(theta),
        "entropy": weighted_mean(entropy, batch.weights),
        "kl": jnp.where(is_improved, kl, 0.0),
        "improved": is_improved,
        "step_length": jnp.where(is_improved, length / max_length, 0.0),
    }
    return unravel(theta), metrics


def _line_search(
    evaluate: Callable[[Array], tuple[Array, Array]], max_length: Array, config: TRPOConfig
) -> tuple[Array, Array, Array]:
    """Return the first acceptable length, its KL divergence, and whether there is one."""

    def is_searching(state: tuple) -> Array:
        i, _, _, is_acceptable = state
        return ~is_acceptable & (i < config.line_search_steps)

    def try_next(state: tuple) -> tuple:
        i, *_ = state
        length = max_length * config.line_search_shrinkage**i
        is_acceptable, kl = evaluate(length)
        return i + 1, length, kl, is_acceptable

    start = (jnp.asarray(0), max_length, jnp.zeros(()), jnp.asarray(False))
    _, length, kl, is_acceptable = jax.lax.while_loop(is_searching, try_next, start)
    return length, kl, is_acceptable


_update_policy = jax.jit(natural_gradient_step, static_argnames="config")


class TRPO(OnPolicyAgent[TRPOConfig]):
    """The TRPO agent; see the module's docstring."""

    def _init_optimisers(self) -> tuple[Any, ...]:
        return (jax.jit(make_optimiser().init)(self._networks.value),)

    def _update(self, rollout: RolloutBatch) -> dict[str, Array]:
        config = self.config
        policy, value, _ = self._networks
        batch = prepare_batch(self._networks, rollout, config)
        batch_size = rollout.weights.size
        order = minibatches(self._rng, batch_size, config.num_epochs, config.minibatch_size)
        (value_state,) = self._optimisers
        # A compiled call releases the GIL, so the two updates run on two cores.
        value_update = self._threads.submit(
            lambda: jax.block_until_ready(
                update_value(value, value_state, batch, order, config.learning_rate)
            )
        )
        policy, metrics = _update_policy(policy, batch, config)
        value, value_state, value_metrics = value_update.result()
        self._networks, self._optimisers = ActorCritic(policy, value), (value_state,)
        return metrics | value_metrics
