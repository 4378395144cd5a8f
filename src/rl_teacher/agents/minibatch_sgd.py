"""Gradient descent by minibatches, and the value function's loss: what PPO and TRPO share."""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jaxtyping import Array, Float

from rl_teacher.agents.on_policy import ValueBatch, weighted_mean
from rl_teacher.nn.mlp import MLP


def value_loss(value: MLP, batch: ValueBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Half the squared error against the returns, over the valid steps of a minibatch."""
    errors = value(batch.observations)[:, 0] - batch.returns
    loss = weighted_mean(errors**2, batch.weights)
    return 0.5 * loss, {"value_loss": loss}


def descend(  # noqa: PLR0913 - what every descent needs
    loss: Callable[[Any, Any], tuple[Array, dict[str, Array]]],
    optimiser: optax.GradientTransformation,
    learning_rate: Any,
    network: Any,
    optimiser_state: Any,
    batch: Any,
    order: Any,
) -> tuple[Any, Any, dict[str, Array]]:
    """All epochs of minibatches as one compiled scan; then the figures, on the whole rollout.

    Args:
        loss: (network, minibatch) -> (loss, figures).
        optimiser: without its learning rate.
        learning_rate: of every step.
        network: what is improved.
        optimiser_state: of the network's optimiser.
        batch: a tuple of columns, [B, ...] each.
        order: [E, K, M] the samples of each minibatch, epoch by epoch.

    Returns:
        The network, its optimiser's state, and figures by name.
    """

    def minibatch_step(carry: tuple, minibatch: Any) -> tuple[tuple, None]:
        network, optimiser_state = carry
        gradients, _ = jax.grad(loss, has_aux=True)(network, minibatch)
        updates, optimiser_state = optimiser.update(gradients, optimiser_state)
        network = jax.tree.map(lambda p, u: p - learning_rate * u, network, updates)
        return (network, optimiser_state), None

    def epoch(carry: tuple, order: Array) -> tuple[tuple, None]:
        return jax.lax.scan(
            minibatch_step, carry, jax.tree.map(lambda column: column[order], batch)
        )

    (network, optimiser_state), _ = jax.lax.scan(epoch, (network, optimiser_state), order)
    _, figures = loss(network, batch)
    return network, optimiser_state, figures
