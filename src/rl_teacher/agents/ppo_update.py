"""What PPO's compiled updates are: of vectors two, side by side; of pictures one, piece by piece.

T: steps of a rollout, N: environments, B = T * N, M: samples of a minibatch.
"""

import functools
from concurrent.futures import Executor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int32, UInt8

from rl_teacher.agents.minibatch_sgd import descend, value_loss
from rl_teacher.agents.on_policy import (
    ActorCritic,
    PolicyBatch,
    ValueBatch,
    standardised,
    weighted_mean,
)
from rl_teacher.agents.policies import Policy
from rl_teacher.config.agents import PPOConfig

PIECE = 128
"""Pictures, at most, whose gradient is one compiled call; so many cores have something to do as a
minibatch has pieces."""


def optimiser(config: PPOConfig) -> optax.GradientTransformation:
    """Adam, after clipping by the norm."""
    # Note: flattened, since for arrays this small each operation costs more than its arithmetic.
    return optax.flatten(
        optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5))
    )


def policy_loss(
    policy: Policy, batch: PolicyBatch, config: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The clipped surrogate (eq. 7) less the entropy bonus, over valid steps.

    Args:
        policy: of the batch's observations.
        batch: steps of a minibatch, whose advantages are standardised over all of it.
        config: the settings.
    """

    def mean(x: Array) -> Array:
        return weighted_mean(x, batch.weights)

    log_probs = policy.log_prob(batch.observations, batch.actions, batch.masks)
    log_ratio = log_probs - batch.log_probs
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip_range, 1 + config.clip_range)
    surrogate = mean(jnp.minimum(ratio * batch.advantages, clipped * batch.advantages))
    entropy = mean(policy.entropy(batch.observations, batch.masks))
    figures = {
        "policy_loss": -surrogate,
        "entropy": entropy,
        # Source: Schulman, "Approximating KL divergence" (2020), the estimator k3.
        "kl": mean(ratio - 1 - log_ratio),
        "clipped": mean(jnp.abs(ratio - 1) > config.clip_range),
    }
    return -surrogate - config.entropy_coef * entropy, figures


# --- vectors ---


@functools.partial(jax.jit, static_argnames="config")
def improve_policy(policy, state, batch, order, learning_rate, config):  # noqa: ANN001, ANN201
    """All gradient steps of a rollout for the policy; see `descend`."""

    def loss(policy: Policy, batch: PolicyBatch) -> tuple[Array, dict[str, Array]]:
        advantages = standardised(batch.advantages, batch.weights)
        return policy_loss(policy, batch._replace(advantages=advantages), config)

    return descend(loss, optimiser(config), learning_rate, policy, state, batch, order)


@functools.partial(jax.jit, static_argnames="config")
def improve_value(value, state, batch, order, learning_rate, config):  # noqa: ANN001, ANN201
    """The same for the value function."""
    return descend(value_loss, optimiser(config), learning_rate, value, state, batch, order)


# --- pictures ---


def joint_loss(
    networks: ActorCritic, batch: tuple[PolicyBatch, ValueBatch], config: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Both losses on features that are shared, as the paper's eq. 9 has it."""
    for_policy, for_value = batch
    features = networks.encoder(for_policy.observations)
    of_policy, figures = policy_loss(
        networks.policy, for_policy._replace(observations=features), config
    )
    of_value, value_figures = value_loss(networks.value, for_value._replace(observations=features))
    return of_policy + of_value, figures | value_figures


@jax.jit
def _standardised_by_minibatch(advantages, weights, order):  # noqa: ANN001, ANN202
    return jax.vmap(standardised)(advantages[order], weights[order])


@functools.partial(jax.jit, static_argnames="config")
def _gradients_of(networks, batch, samples, advantages, config):  # noqa: ANN001, ANN202
    """Of a piece of a minibatch: gradients, figures, and the steps that count."""
    for_policy, for_value = jax.tree.map(lambda column: column[samples], batch)
    piece = for_policy._replace(advantages=advantages), for_value
    gradients, figures = jax.grad(joint_loss, has_aux=True)(networks, piece, config)
    return gradients, figures, for_policy.weights.sum()


@functools.partial(jax.jit, static_argnames="config")
def _step(networks, state, pieces, learning_rate, config):  # noqa: ANN001, ANN202
    """A gradient step, and its figures: means over pieces, by the steps that count in each.

    Note: this is the whole minibatch's gradient, since its loss is a mean over steps.
    """
    *parts, counts = zip(*pieces, strict=True)
    total = jnp.maximum(sum(counts), 1.0)

    def mean(*each: Array) -> Array:
        return sum(count * one for count, one in zip(counts, each, strict=True)) / total  # pyright: ignore[reportReturnType]

    gradients, figures = (jax.tree.map(mean, *part) for part in parts)
    updates, state = optimiser(config).update(gradients, state)
    networks = jax.tree.map(lambda p, u: p - learning_rate * u, networks, updates)
    return networks, state, figures


def improve_by_sight(  # noqa: PLR0913 - what every descent needs
    networks: ActorCritic,
    state: Any,
    pictures: UInt8[Array, "batch byte"],
    batch: tuple[PolicyBatch, ValueBatch],
    order: Int32[np.ndarray, "epoch minibatch sample"],
    learning_rate: Any,
    config: PPOConfig,
    cores: Executor,
) -> tuple[ActorCritic, Any, dict[str, Any]]:
    """All gradient steps of a rollout of pictures; pieces of a minibatch run side by side.

    Note: what is made of a piece fits into the caches, and side by side pieces leave no core idle.
    However many cores there are, the pieces are the same; XLA rounds otherwise on one core alone.

    Args:
        networks: who is improved.
        state: of the optimiser.
        pictures: [B, P] that were observed.
        batch: [B, ...] what is learned from them.
        order: [E, K, M] the samples of each minibatch, epoch by epoch.
        learning_rate: of every step.
        config: the settings.
        cores: run the pieces.

    Returns:
        The networks, the optimiser's state, and figures by name, means over all gradient steps.
    """
    for_policy, for_value = batch
    batch = for_policy._replace(observations=pictures), for_value
    samples = order.reshape(-1, order.shape[-1])
    advantages = _standardised_by_minibatch(for_policy.advantages, for_policy.weights, samples)
    num_pieces = -(-samples.shape[1] // PIECE) if jax.default_backend() == "cpu" else 1
    all_figures = []
    for of_minibatch in zip(samples, np.asarray(advantages), strict=True):
        piece = functools.partial(_piece, networks, batch, config)
        pieces = cores.map(piece, *(np.array_split(each, num_pieces) for each in of_minibatch))
        networks, state, figures = _step(networks, state, tuple(pieces), learning_rate, config)
        all_figures.append(figures)
    return networks, state, jax.tree.map(lambda *each: np.mean(np.stack(each)), *all_figures)


def _piece(networks, batch, config, samples, advantages):  # noqa: ANN001, ANN202
    # Note: waits here, so that a thread is busy until its piece is done.
    return jax.block_until_ready(_gradients_of(networks, batch, samples, advantages, config))
