"""Soft actor-critic's gradient steps: all of one rollout in one compiled call.

M: samples of a minibatch, U: gradient steps, D: features of an observation, A: action dimensions.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from rl_teacher.agents.squashed_gaussian import SquashedGaussian
from rl_teacher.config.agents import SACConfig
from rl_teacher.nn.mlp import MLP

# Note: unlike those of the other agents, these products are large enough for two cores.
COMPILER_OPTIONS: dict[str, Any] = {"xla_cpu_multi_thread_eigen": True}
ADAM = optax.scale_by_adam()


class Critics(NamedTuple):
    """Two networks that say what is to come; the lower one is believed."""

    first: MLP
    second: MLP

    def __call__(
        self, observations: Float[Array, "batch features"], actions: Float[Array, "batch action"]
    ) -> Float[Array, "critic batch"]:
        """[2, M] what each says."""
        inputs = jnp.concatenate([observations, actions], axis=-1)
        return jnp.stack([critic(inputs)[:, 0] for critic in self])


class Networks(NamedTuple):
    """All that is learned."""

    actor: SquashedGaussian
    critics: Critics
    targets: Critics
    log_temperature: Float[Array, ""]


class Optimisers(NamedTuple):
    """Adam's moments of each."""

    actor: Any
    critics: Any
    temperature: Any


class Minibatch(NamedTuple):
    """What one gradient step is taken on; with a first axis of U, those of a whole rollout.

    Attributes:
        observations: [M, D]
        actions: [M, A] in -1..1.
        rewards: [M]
        next_observations: [M, D] before any reset.
        terminated: [M] 1 where nothing follows.
        noise: [M, A] that draws actions after `observations`.
        next_noise: [M, A] that draws actions after `next_observations`.
    """

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminated: Any
    noise: Any
    next_noise: Any


def new_critics(sizes: tuple[int, ...], rng: np.random.Generator) -> Critics:
    """Two new networks."""
    return Critics(MLP(sizes, "relu", 1.0, rng), MLP(sizes, "relu", 1.0, rng))


def new_networks(
    num_features: int, num_actions: int, config: SACConfig, rng: np.random.Generator
) -> Networks:
    """New weights; the first actions are spread widely around the middle."""
    actor = MLP((num_features, *config.hidden, 2 * num_actions), "relu", 0.01, rng)
    critics = new_critics((num_features + num_actions, *config.hidden, 1), rng)
    log_temperature = jnp.asarray(np.log(np.float32(config.initial_temperature)))
    return Networks(SquashedGaussian(actor), critics, critics, log_temperature)


@jax.jit
def new_optimisers(networks: Networks) -> Optimisers:
    """Moments of nothing yet."""
    return Optimisers(
        _moments_of(networks.actor),
        _moments_of(networks.critics),
        _moments_of(networks.log_temperature),
    )


def _moments_of(parameters: Any) -> Any:
    return ADAM.init(parameters)


def soft_target(
    rewards: Float[Array, " batch"],
    terminated: Float[Array, " batch"],
    next_values: Float[Array, "critic batch"],
    next_log_probs: Float[Array, " batch"],
    temperature: Float[Array, ""],
    discount: float,
) -> Float[Array, " batch"]:
    """[M] what the critics are to say (Haarnoja et al. 2018, eq. 3 and 6)."""
    # y = r + gamma * (min Q'(o', a') - alpha * log pi(a' | o'))
    soft_values = next_values.min(0) - temperature * next_log_probs
    return rewards + discount * (1 - terminated) * soft_values


def critic_loss(
    critics: Critics, batch: Minibatch, targets: Float[Array, " batch"]
) -> Float[Array, ""]:
    """Half the squared errors of both (eq. 5)."""
    errors = critics(batch.observations, batch.actions) - targets
    return 0.5 * jnp.sum(jnp.mean(errors**2, axis=-1))


def actor_loss(
    actor: SquashedGaussian, critics: Critics, temperature: Float[Array, ""], batch: Minibatch
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    """What the actor's own actions lack in value and entropy (eq. 9); their log-densities."""
    actions, log_probs = actor(batch.observations, batch.noise)
    values = critics(batch.observations, actions).min(0)
    return jnp.mean(temperature * log_probs - values), log_probs


def temperature_loss(
    log_temperature: Float[Array, ""], log_probs: Float[Array, " batch"], target_entropy: float
) -> Float[Array, ""]:
    """Positive slope while the entropy is above its target (eq. 18)."""
    return -jnp.exp(log_temperature) * jnp.mean(log_probs + target_entropy)


def _descended(parameters: Any, gradients: Any, moments: Any, config: SACConfig) -> tuple[Any, Any]:
    updates, moments = ADAM.update(gradients, moments)
    stepped = jax.tree.map(lambda p, u: p - config.learning_rate * u, parameters, updates)
    return stepped, moments


def _critic_step(
    networks: Networks, optimisers: Optimisers, batch: Minibatch, config: SACConfig
) -> tuple[Networks, Optimisers, dict[str, Array]]:
    """Critics by one gradient step, and their targets after them."""
    temperature = jnp.exp(networks.log_temperature)
    next_actions, next_log_probs = networks.actor(batch.next_observations, batch.next_noise)
    targets = soft_target(
        batch.rewards,
        batch.terminated,
        networks.targets(batch.next_observations, next_actions),
        next_log_probs,
        temperature,
        config.gamma,
    )
    loss, gradients = jax.value_and_grad(critic_loss)(networks.critics, batch, targets)
    critics, moments = _descended(networks.critics, gradients, optimisers.critics, config)
    # Polyak averaging: target <- target + tau * (critic - target)
    slow = jax.tree.map(lambda t, q: t + config.tau * (q - t), networks.targets, critics)
    figures = {
        "critic_loss": loss,
        "value": targets.mean(),
        "entropy": -next_log_probs.mean(),
        "temperature": temperature,
    }
    networks = networks._replace(critics=critics, targets=slow)
    return networks, optimisers._replace(critics=moments), figures


def _actor_step(
    networks: Networks, optimisers: Optimisers, batch: Minibatch, config: SACConfig
) -> tuple[Networks, Optimisers]:
    """The actor by one gradient step, and the temperature."""
    temperature = jnp.exp(networks.log_temperature)
    gradients, log_probs = jax.grad(actor_loss, has_aux=True)(
        networks.actor, networks.critics, temperature, batch
    )
    actor, actor_moments = _descended(networks.actor, gradients, optimisers.actor, config)
    target_entropy = -float(batch.actions.shape[-1])
    slope = jax.grad(temperature_loss)(networks.log_temperature, log_probs, target_entropy)
    log_temperature, temperature_moments = _descended(
        networks.log_temperature, slope, optimisers.temperature, config
    )
    return (
        networks._replace(actor=actor, log_temperature=log_temperature),
        optimisers._replace(actor=actor_moments, temperature=temperature_moments),
    )


@functools.partial(jax.jit, static_argnames="config", compiler_options=COMPILER_OPTIONS)
def improve(
    networks: Networks, optimisers: Optimisers, batches: Minibatch, config: SACConfig
) -> tuple[Networks, Optimisers, dict[str, Array]]:
    """U gradient steps, one after the other; figures are means over them.

    Args:
        networks: all that is learned.
        optimisers: of it.
        batches: [U, M, ...]
        config: the settings.
    """

    def gradient_step(carry, step):  # noqa: ANN001, ANN202
        number, batch = step
        networks, optimisers = carry
        networks, optimisers, figures = _critic_step(networks, optimisers, batch, config)
        if config.policy_delay == 1:
            return _actor_step(networks, optimisers, batch, config), figures
        carry = jax.lax.cond(
            number % config.policy_delay == 0,
            lambda both: _actor_step(both[0], both[1], batch, config),
            lambda both: both,
            (networks, optimisers),
        )
        return carry, figures

    numbers = jnp.arange(len(batches.rewards))
    carry, figures = jax.lax.scan(gradient_step, (networks, optimisers), (numbers, batches))
    return *carry, jax.tree.map(jnp.mean, figures)
