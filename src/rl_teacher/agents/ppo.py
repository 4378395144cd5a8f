"""Proximal policy optimisation (Schulman et al. 2017), with the defaults of Stable-Baselines3.

It differs from common implementations in two ways, both for speed:

* Actions are sampled in NumPy between two steps of the simulation; log-probabilities and values
  are computed once for the whole rollout.
* For vector observations, policy and value function share no weights, so their updates are
  independent: two compiled calls run in parallel, each with its own gradient clipping.

For images, both share an encoder, which dominates the cost. Then there is one loss, one optimiser
and one gradient norm, and each minibatch is split between the cores.

T: steps of a rollout, N: environments, B = T * N, E: epochs, K: minibatches of an epoch,
M: samples of a minibatch.
"""

import functools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int32

from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.policies import ActorCritic, Policy
from rl_teacher.agents.rollout_batch import (
    Batch,
    RolloutBatch,
    flatten_time,
    prepare_batch,
    standardise,
    weighted_mean,
)
from rl_teacher.config.agents import PPOConfig
from rl_teacher.nn.mlp import MLP

CHUNK = 128
"""Maximum number of images whose gradient is one compiled call; the chunks of a minibatch are
distributed over the cores."""


class PPO(OnPolicyAgent[PPOConfig]):
    """The PPO agent; see the module's docstring."""

    def _init_optimisers(self) -> tuple[Any, ...]:
        init = jax.jit(make_optimiser(self.config.max_grad_norm).init)
        if self._image_layout is not None:
            return (init(self._networks),)
        return init(self._networks.policy), init(self._networks.value)

    def _update(self, rollout: RolloutBatch) -> dict[str, Any]:
        config = self.config
        batch_size = rollout.weights.size
        order = minibatches(self._rng, batch_size, config.num_epochs, config.minibatch_size)
        learning_rate = self._annealed(config.learning_rate, config.final_learning_rate)
        if self._image_layout is not None:
            images = jnp.asarray(flatten_time(rollout.observations))
            # The features are known from acting, so the large images are kept out of this call.
            rollout = rollout._replace(observations=rollout.observations[..., :0])
            batch = prepare_batch(self._networks, rollout, config)
            batch = batch._replace(observations=images)
            (state,) = self._optimisers
            self._networks, state, metrics = update_jointly(
                self._networks, state, batch, order, learning_rate, config, self._threads
            )
            self._optimisers = (state,)
            return metrics
        batch = prepare_batch(self._networks, rollout, config)
        policy, value, _ = self._networks
        policy_state, value_state = self._optimisers
        # A compiled call releases the GIL, so the two updates run on two cores.
        value_update = self._threads.submit(
            lambda: jax.block_until_ready(
                update_value(value, value_state, batch, order, learning_rate, config.max_grad_norm)
            )
        )
        policy, policy_state, metrics = update_policy(
            policy, policy_state, batch, order, learning_rate, config
        )
        value, value_state, value_metrics = value_update.result()
        self._networks = ActorCritic(policy, value)
        self._optimisers = policy_state, value_state
        return metrics | value_metrics


def policy_loss(
    policy: Policy, batch: Batch, config: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Compute the negative clipped surrogate (eq. 7) and entropy bonus over valid steps.

    Args:
        policy: policy on the batch's observations.
        batch: a minibatch with standardised advantages.
        config: the settings.

    Returns:
        The loss, and metrics by name.
    """

    def mean(x: Array) -> Array:
        return weighted_mean(x, batch.weights)

    log_probs = policy.log_prob(batch.observations, batch.actions, batch.masks)
    # r_t = pi(a_t | o_t) / pi_old(a_t | o_t)
    log_ratio = log_probs - batch.log_probs
    ratio = jnp.exp(log_ratio)
    # L = E[min(r_t * A_t, clip(r_t, 1 - epsilon, 1 + epsilon) * A_t)]
    clipped = jnp.clip(ratio, 1 - config.clip_range, 1 + config.clip_range)
    surrogate = mean(jnp.minimum(ratio * batch.advantages, clipped * batch.advantages))
    entropy = mean(policy.entropy(batch.observations, batch.masks))
    metrics = {
        "policy_loss": -surrogate,
        "entropy": entropy,
        # KL(old || new) = E[r - 1 - log r], the estimator k3 of Schulman,
        # "Approximating KL divergence" (2020).
        "kl": mean(ratio - 1 - log_ratio),
        "clipped": mean(jnp.abs(ratio - 1) > config.clip_range),
    }
    return -surrogate - config.entropy_coef * entropy, metrics


@functools.partial(jax.jit, static_argnames="config")
def update_policy(policy, state, batch, order, learning_rate, config):  # noqa: ANN001, ANN201
    """Run all gradient steps of a rollout on the policy; see `run_sgd`."""

    def loss(policy: Policy, batch: Batch) -> tuple[Array, dict[str, Array]]:
        # By minibatch, as in most implementations, which makes the step size independent of the
        # scale of the rewards.
        advantages = standardise(batch.advantages, batch.weights)
        return policy_loss(policy, batch._replace(advantages=advantages), config)

    optimiser = make_optimiser(config.max_grad_norm)
    # Columns that are not needed would be gathered too.
    batch = batch._replace(returns=None)
    return run_sgd(loss, optimiser, learning_rate, policy, state, batch, order)


# --- minibatch gradient descent, and the value function, shared with TRPO ---


def minibatches(
    rng: np.random.Generator, batch_size: int, num_epochs: int, minibatch_size: int
) -> Int32[np.ndarray, "epoch minibatch sample"]:
    """Return [E, K, M] the samples of each minibatch; a last incomplete one is dropped."""
    size = min(minibatch_size, batch_size)
    order = np.tile(np.arange(batch_size, dtype=np.int32), (num_epochs, 1))
    # A permutation of all samples for each epoch.
    order = rng.permuted(order, axis=1)
    return order[:, : batch_size // size * size].reshape(num_epochs, -1, size)


def make_optimiser(max_grad_norm: float | None = None) -> optax.GradientTransformation:
    """Create Adam without a learning rate, after clipping by the global norm if one is given."""
    # epsilon = 1e-5 as in Baselines: a larger one keeps steps small where gradients are near 0.
    adam = optax.scale_by_adam(eps=1e-5)
    if max_grad_norm is not None:
        adam = optax.chain(optax.clip_by_global_norm(max_grad_norm), adam)
    # Flattened, since for arrays this small each operation costs more than its arithmetic.
    return optax.flatten(adam)


def value_loss(value: MLP, batch: Batch) -> tuple[Float[Array, ""], dict[str, Array]]:
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
    batch = batch._replace(actions=None, masks=None, log_probs=None, advantages=None)
    return run_sgd(value_loss, optimiser, learning_rate, value, state, batch, order)


# --- images: one update of encoder, policy and value function ---


def joint_loss(
    networks: ActorCritic, batch: Batch, config: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Compute the sum of both losses on shared features (eq. 9)."""
    batch = batch._replace(observations=networks.encoder(batch.observations))
    loss, metrics = policy_loss(networks.policy, batch, config)
    loss_of_value, value_metrics = value_loss(networks.value, batch)
    # L = L_policy + 1/2 E[(V - R)^2] - c * E[H]; the entropy bonus is part of the first term.
    return loss + loss_of_value, metrics | value_metrics


_standardise_minibatches = jax.jit(jax.vmap(standardise))


@functools.partial(jax.jit, static_argnames="config")
def _chunk_gradients(networks, batch, samples, advantages, config):  # noqa: ANN001, ANN202
    """Compute gradients, metrics and the number of valid steps of a chunk of a minibatch."""
    chunk = jax.tree.map(lambda column: column[samples], batch)._replace(advantages=advantages)
    gradients, metrics = jax.grad(joint_loss, has_aux=True)(networks, chunk, config)
    return gradients, metrics, chunk.weights.sum()


@functools.partial(jax.jit, static_argnames="max_grad_norm")
def _apply_gradients(networks, state, chunks, learning_rate, max_grad_norm):  # noqa: ANN001, ANN202
    """Take a gradient step; return metrics as means over chunks."""
    *parts, counts = zip(*chunks, strict=True)
    total = jnp.maximum(sum(counts), 1.0)

    # g = sum_k n_k g_k / sum_k n_k: the loss is a mean over valid steps, so the mean over chunks,
    # weighted by their valid steps n_k, is the gradient of the whole minibatch.
    def mean(*each: Array) -> Array:
        return sum(count * one for count, one in zip(counts, each, strict=True)) / total  # pyright: ignore[reportReturnType]

    gradients, metrics = (jax.tree.map(mean, *part) for part in parts)
    updates, state = make_optimiser(max_grad_norm).update(gradients, state)
    networks = jax.tree.map(lambda p, u: p - learning_rate * u, networks, updates)
    return networks, state, metrics


def update_jointly(  # noqa: PLR0913 - the state of an optimiser and its input
    networks: ActorCritic,
    state: Any,
    batch: Batch,
    order: Int32[np.ndarray, "epoch minibatch sample"],
    learning_rate: Any,
    config: PPOConfig,
    threads: Executor,
) -> tuple[ActorCritic, Any, dict[str, Any]]:
    """Run all gradient steps of a rollout of images, with the chunks of a minibatch in parallel.

    The activations of a chunk fit into the caches. The chunks are the same for any number of
    threads, so results do not depend on it (but XLA rounds differently if it has only one core).

    Args:
        networks: networks to improve.
        state: state of the optimiser.
        batch: [B, ...] the rollout, with images as observations.
        order: [E, K, M] the samples of each minibatch.
        learning_rate: learning rate of every step.
        config: the settings.
        threads: executor of the chunks.

    Returns:
        The networks, the state of the optimiser, and metrics as means over all gradient steps.
    """
    samples = order.reshape(-1, order.shape[-1])
    advantages = _standardise_minibatches(batch.advantages[samples], batch.weights[samples])
    num_chunks = -(-samples.shape[1] // CHUNK) if jax.default_backend() == "cpu" else 1

    def chunk_gradients(samples: np.ndarray, advantages: np.ndarray) -> Any:
        # Waits, so that the thread is occupied until its chunk is done.
        return jax.block_until_ready(_chunk_gradients(networks, batch, samples, advantages, config))

    all_metrics = []
    for minibatch in zip(samples, np.asarray(advantages), strict=True):
        chunks = threads.map(
            chunk_gradients, *(np.array_split(each, num_chunks) for each in minibatch)
        )
        networks, state, metrics = _apply_gradients(
            networks, state, tuple(chunks), learning_rate, config.max_grad_norm
        )
        all_metrics.append(metrics)
    return networks, state, jax.tree.map(lambda *each: np.mean(np.stack(each)), *all_metrics)
