"""Trust region policy optimisation (Schulman et al. 2015), after sb3-contrib's settings.

A natural gradient step: the direction F^-1 g by conjugate gradient, as long as the quadratic
model of the KL divergence allows; then shorter and shorter, until the KL divergence that was really
reached is below the limit and the surrogate has grown. If none does, the policy stays.

The Fisher matrix F is never there. Its product with a vector is worked out as J' M J v, where J is
the Jacobian of what the policy says (means and spreads, or logits) and M the Fisher matrix of that:
one pass forwards and one backwards, cheaper than differentiating the KL divergence twice.

Policy and value function share no weights: they are two compiled calls, side by side on two cores.

T: steps of a rollout, N: environments, B = T * N, A: actions, P: parameters of the policy.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from rl_teacher.agents.minibatch_sgd import descend, value_loss
from rl_teacher.agents.on_policy import (
    ActorCritic,
    Lived,
    OnPolicyAgent,
    PolicyBatch,
    minibatches,
    prepare,
    standardised,
    weighted_mean,
)
from rl_teacher.agents.policies import FORBIDDEN, GaussianPolicy, Policy
from rl_teacher.config.agents import TRPOConfig

CG_TOLERANCE = 1e-10
"""Conjugate gradient ends early when the squared residual is below this."""


class Says(NamedTuple):
    """What a policy says of B observations.

    Attributes:
        means: [B, A] of a Gaussian; of a softmax its log-probabilities, up to a constant.
        log_std: [A] of a Gaussian; None of a softmax.
    """

    means: Float[Array, "batch action"]
    log_std: Float[Array, " action"] | None


def says(
    policy: Policy,
    observations: Float[Array, "batch features"],
    masks: Bool[Array, "batch action"] | None = None,
) -> Says:
    """What the policy's actions are drawn from."""
    if isinstance(policy, GaussianPolicy):
        return Says(policy.mean(observations), policy.log_std)
    logits = policy.logits(observations)
    return Says(logits if masks is None else jnp.where(masks, logits, FORBIDDEN), None)


def kl_divergence(old: Says, new: Says) -> Float[Array, " batch"]:
    """[B] KL(old || new) in nats."""
    if old.log_std is None or new.log_std is None:
        before, after = jax.nn.log_softmax(old.means), jax.nn.log_softmax(new.means)
        return jnp.sum(jnp.exp(before) * (before - after), axis=-1)
    # KL = log(s_new / s_old) + (s_old^2 + (m_old - m_new)^2) / (2 s_new^2) - 1/2, summed over A
    squares = jnp.exp(2 * old.log_std) + (old.means - new.means) ** 2
    return jnp.sum(
        new.log_std - old.log_std + 0.5 * squares * jnp.exp(-2 * new.log_std) - 0.5, axis=-1
    )


def fisher_of(said: Says, tangent: Says, weights: Float[Array, " batch"]) -> Says:
    """M v: the Fisher matrix of what the policy says, averaged over the valid steps, times v."""
    share = (weights / jnp.maximum(weights.sum(), 1.0))[:, None]
    if said.log_std is None or tangent.log_std is None:
        p = jax.nn.softmax(said.means)
        # M = diag(p) - p p'
        centred = tangent.means - jnp.sum(p * tangent.means, axis=-1, keepdims=True)
        return Says(share * p * centred, None)
    # M = 1 / s^2 for a mean, 2 for the logarithm of a spread
    return Says(share * tangent.means * jnp.exp(-2 * said.log_std), 2 * tangent.log_std)


def conjugate_gradient(
    product: Callable[[Array], Array], g: Float[Array, " parameter"], max_steps: int
) -> Float[Array, " parameter"]:
    """[P] x with A x = g, as well as so many steps can (Hestenes & Stiefel 1952).

    Args:
        product: x -> A x, with A symmetric and positive definite.
        g: [P]
        max_steps: with as many as P it is exact.
    """

    def goes_on(state: tuple) -> Array:
        i, *_, squared_residual = state
        return (i < max_steps) & (squared_residual > CG_TOLERANCE)

    def step(state: tuple) -> tuple:
        i, x, residual, direction, squared_residual = state
        curved = product(direction)
        alpha = squared_residual / (direction @ curved)
        x, residual = x + alpha * direction, residual - alpha * curved
        squared_residual, before = residual @ residual, squared_residual
        return (
            i + 1,
            x,
            residual,
            residual + squared_residual / before * direction,
            squared_residual,
        )

    _, x, *_ = jax.lax.while_loop(goes_on, step, (0, jnp.zeros_like(g), g, g, g @ g))
    return x


def natural_step(
    policy: Policy, batch: PolicyBatch, config: TRPOConfig
) -> tuple[Policy, dict[str, Array]]:
    """The policy after one step within the trust region, and figures by name."""
    theta, unravel = ravel_pytree(policy)
    advantages = standardised(batch.advantages, batch.weights)

    def surrogate(theta: Array) -> Array:
        log_probs = unravel(theta).log_prob(batch.observations, batch.actions, batch.masks)
        return weighted_mean(jnp.exp(log_probs - batch.log_probs) * advantages, batch.weights)

    def said_by(theta: Array) -> Says:
        return says(unravel(theta), batch.observations, batch.masks)

    before, g = jax.value_and_grad(surrogate)(theta)
    old, pushed = jax.linearize(said_by, theta)
    pulled = jax.linear_transpose(pushed, theta)

    def curved(v: Array) -> Array:
        # (F + damping) v = J' M J v + damping * v
        return pulled(fisher_of(old, pushed(v), batch.weights))[0] + config.cg_damping * v

    direction = conjugate_gradient(curved, g, config.cg_steps)
    # Source: appendix C. The longest step with 1/2 step' F step <= limit along the direction.
    longest = jnp.sqrt(2 * config.target_kl / (direction @ curved(direction)))

    def is_good(theta: Array) -> tuple[Array, Array]:
        kl = weighted_mean(kl_divergence(old, said_by(theta)), batch.weights)
        return (kl < config.target_kl) & (surrogate(theta) > before), kl

    length, kl, is_improved = _line_search(
        lambda length: is_good(theta + length * direction), longest, config
    )
    # Note: a choice and no product, since a step that failed may be no number.
    theta = jnp.where(is_improved, theta + length * direction, theta)
    entropy = unravel(theta).entropy(batch.observations, batch.masks)
    figures = {
        "policy_loss": -surrogate(theta),
        "entropy": weighted_mean(entropy, batch.weights),
        "kl": jnp.where(is_improved, kl, 0.0),
        "improved": is_improved,
        "step_length": jnp.where(is_improved, length / longest, 0.0),
    }
    return unravel(theta), figures


def _line_search(
    tried: Callable[[Array], tuple[Array, Array]], longest: Array, config: TRPOConfig
) -> tuple[Array, Array, Array]:
    """The first length that is good, the KL divergence reached there, and whether there is one."""

    def goes_on(state: tuple) -> Array:
        i, _, _, is_good = state
        return ~is_good & (i < config.line_search_steps)

    def try_next(state: tuple) -> tuple:
        i, *_ = state
        length = longest * config.line_search_shrinkage**i
        is_good, kl = tried(length)
        return i + 1, length, kl, is_good

    start = (jnp.asarray(0), longest, jnp.zeros(()), jnp.asarray(False))
    _, length, kl, is_good = jax.lax.while_loop(goes_on, try_next, start)
    return length, kl, is_good


def _optimiser() -> optax.GradientTransformation:
    # Note: flattened, since for arrays this small each operation costs more than its arithmetic.
    return optax.flatten(optax.scale_by_adam(eps=1e-5))


_improve_policy = jax.jit(natural_step, static_argnames="config")


@jax.jit
def _improve_value(value, state, batch, order, learning_rate):  # noqa: ANN001, ANN202
    return descend(value_loss, _optimiser(), learning_rate, value, state, batch, order)


class TRPO(OnPolicyAgent[TRPOConfig]):
    """The agent: see the module's text."""

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: TRPOConfig,
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        """Make a new agent; see `OnPolicyAgent`."""
        self._second_core = ThreadPoolExecutor(1, thread_name_prefix="value-update")
        super().__init__(
            observation_space, action_space, config, total_steps=total_steps, seed=seed
        )

    def _begin_optimisers(self) -> tuple[Any, ...]:
        return (jax.jit(_optimiser().init)(self._networks.value),)

    def _improve(self, lived: Lived) -> dict[str, Array]:
        config = self.config
        policy, value, _ = self._networks
        for_policy, for_value = prepare(self._networks, lived, config)
        order = minibatches(self._rng, lived.weights.size, config.num_epochs, config.minibatch_size)
        (value_state,) = self._optimisers
        value_update = self._second_core.submit(
            lambda: jax.block_until_ready(
                _improve_value(value, value_state, for_value, order, config.learning_rate)
            )
        )
        policy, figures = _improve_policy(policy, for_policy, config)
        value, value_state, value_figures = value_update.result()
        self._networks, self._optimisers = ActorCritic(policy, value), (value_state,)
        return figures | value_figures
