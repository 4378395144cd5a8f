"""Minibatch gradient descent and the value function's update, shared by PPO and TRPO.

E: epochs, K: minibatches of an epoch, M: samples of a minibatch, B: samples of a rollout.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Array, Float, Int32

from rl_teacher.agents.advantages import weighted_mean
from rl_teacher.agents.rollout_batch import ValueBatch
from rl_teacher.nn.mlp import MLP


def shuffled_epochs(
    rng: np.random.Generator, batch_size: int, num_epochs: int
) -> Int32[np.ndarray, "epoch batch"]:
    """Return [E, B] a random permutation of the samples for each epoch."""
    order = np.tile(np.arange(batch_size, dtype=np.int32), (num_epochs, 1))
    return rng.permuted(order, axis=1)


def minibatches(
    rng: np.random.Generator, batch_size: int, num_epochs: int, minibatch_size: int
) -> Int32[np.ndarray, "epoch minibatch sample"]:
    """Return [E, K, M] the samples of each minibatch; a last incomplete one is dropped."""
    size = min(minibatch_size, batch_size)
    order = shuffled_epochs(rng, batch_size, num_epochs)
    return order[:, : batch_size // size * size].reshape(num_epochs, -1, size)


def make_optimiser(max_grad_norm: float | None = None) -> optax.GradientTransformation:
    """Create Adam without a learning rate, after clipping by the global norm if one is given."""
    # epsilon = 1e-5 as in Baselines: a larger one keeps steps small where gradients are near 0.
    adam = optax.scale_by_adam(eps=1e-5)
    if max_grad_norm is not None:
        adam = optax.chain(optax.clip_by_global_norm(max_grad_norm), adam)
    # Flattened, since for arrays this small each operation costs more than its arithmetic.
    return optax.flatten(adam)


def value_loss(value: MLP, batch: ValueBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Compute 1/2 (V - R)^2, averaged over the valid steps of a minibatch."""
    # L = 1/2 E[(V(o_t) - R_t)^2]
    errors = value(batch.observations)[:, 0] - batch.returns
    loss = weighted_mean(errors**2, batch.weights)
    return 0.5 * loss, {"value_loss": loss}


def run_sgd(  # noqa: PLR0913 - the state of an optimiser and its input
    loss: Callable[[Any, Any], tuple[Array, dict[str, Array]]],
    optimiser: optax.GradientTransformation,
    learning_rate: Any,
    network: Any,
    optimiser_state: Any,
    batch: Any,
    order: Any,
) -> tuple[Any, Any, dict[str, Array]]:
    """Run all epochs of minibatches as one compiled scan.

    Args:
        loss: (network, minibatch) -> (loss, metrics).
        optimiser: optimiser without its learning rate.
        learning_rate: learning rate of every step.
        network: network to improve.
        optimiser_state: state of the optimiser.
        batch: a tuple of columns, [B, ...] each.
        order: [E, K, M] the samples of each minibatch.

    Returns:
        The network, the state of its optimiser, and metrics on the whole batch after the last step.
    """

    def minibatch_step(carry: tuple, minibatch: Any) -> tuple[tuple, None]:
        network, optimiser_state = carry
        gradients, _ = jax.grad(loss, has_aux=True)(network, minibatch)
        updates, optimiser_state = optimiser.update(gradients, optimiser_state)
        # theta <- theta - learning rate * Adam(gradient)
        network = jax.tree.map(lambda p, u: p - learning_rate * u, network, updates)
        return (network, optimiser_state), None

    def epoch(carry: tuple, order: Array) -> tuple[tuple, None]:
        # Minibatches are gathered epoch by epoch; those of all epochs would take too much memory.
        gathered = jax.tree.map(lambda column: column[order], batch)
        return jax.lax.scan(minibatch_step, carry, gathered)

    (network, optimiser_state), _ = jax.lax.scan(epoch, (network, optimiser_state), order)
    _, metrics = loss(network, batch)
    return network, optimiser_state, metrics


@functools.partial(jax.jit, static_argnames="max_grad_norm")
def update_value(value, state, batch, order, learning_rate, max_grad_norm=None):  # noqa: ANN001, ANN201
    """Run all gradient steps of a rollout on a value function; see `run_sgd`."""
    optimiser = make_optimiser(max_grad_norm)
    return run_sgd(value_loss, optimiser, learning_rate, value, state, batch, order)
