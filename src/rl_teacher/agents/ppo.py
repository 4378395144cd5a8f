"""Proximal policy optimisation (Schulman et al. 2017), after Stable-Baselines3's settings.

Two things differ from the usual code, both for speed:

* Actions are drawn in NumPy between two steps of physics; log-probabilities and values are worked
  out once for the whole rollout.
* Policy and value function share no weights, so their updates do not wait for each other: they
  are two compiled calls that run side by side on two cores. Each is clipped by its own norm.

Of pictures both see the same features, since those are what costs; then there is one loss for
everything, one optimiser, and one norm.

T: steps of a rollout, N: environments, B = T * N.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from rl_teacher.agent_settings import PPOConfig
from rl_teacher.agents.descent import descend, value_loss
from rl_teacher.agents.on_policy import (
    ActorCritic,
    Lived,
    OnPolicyAgent,
    PolicyBatch,
    ValueBatch,
    minibatches,
    prepare,
    standardised,
    weighted_mean,
)
from rl_teacher.agents.policies import Policy


def _optimiser(config: PPOConfig) -> optax.GradientTransformation:
    # Note: flattened, since for arrays this small each operation costs more than its arithmetic.
    return optax.flatten(
        optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5))
    )


def policy_loss(
    policy: Policy, batch: PolicyBatch, config: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The clipped surrogate (eq. 7) less the entropy bonus, over the valid steps of a minibatch."""

    def mean(x: Array) -> Array:
        return weighted_mean(x, batch.weights)

    advantages = standardised(batch.advantages, batch.weights)
    log_probs = policy.log_prob(batch.observations, batch.actions, batch.masks)
    log_ratio = log_probs - batch.log_probs
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    surrogate = mean(jnp.minimum(ratio * advantages, clipped * advantages))
    entropy = mean(policy.entropy(batch.observations, batch.masks))
    figures = {
        "policy_loss": -surrogate,
        "entropy": entropy,
        # Source: Schulman, "Approximating KL divergence" (2020), the estimator k3.
        "kl": mean(ratio - 1 - log_ratio),
        "clipped": mean(jnp.abs(ratio - 1) > config.clip),
    }
    return -surrogate - config.entropy_bonus * entropy, figures


@functools.partial(jax.jit, static_argnames="config")
def _improve_policy(policy, state, batch, order, learning_rate, config):  # noqa: ANN001, ANN202
    loss = functools.partial(policy_loss, config=config)
    return descend(loss, _optimiser(config), learning_rate, policy, state, batch, order)


@functools.partial(jax.jit, static_argnames="config")
def _improve_value(value, state, batch, order, learning_rate, config):  # noqa: ANN001, ANN202
    return descend(value_loss, _optimiser(config), learning_rate, value, state, batch, order)


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


@functools.partial(jax.jit, static_argnames="config")
def _improve_both(networks, state, lived, order, learning_rate, config):  # noqa: ANN001, ANN202
    loss = functools.partial(joint_loss, config=config)
    for_policy, for_value = prepare(networks, lived, config)
    # Note: the pictures are there once.
    batch = for_policy, for_value._replace(observations=for_value.weights)
    return descend(loss, _optimiser(config), learning_rate, networks, state, batch, order)


class PPO(OnPolicyAgent[PPOConfig]):
    """The agent: see the module's text."""

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        config: PPOConfig,
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
        begin = jax.jit(_optimiser(self.config).init)
        if self._picture is not None:
            return (begin(self._networks),)
        return begin(self._networks.policy), begin(self._networks.value)

    def _improve(self, lived: Lived) -> dict[str, Array]:
        config = self.config
        order = minibatches(self._rng, lived.weights.size, config.num_epochs, config.minibatch_size)
        rate = self._falling(config.learning_rate, config.final_learning_rate)
        if self._picture is not None:
            (state,) = self._optimisers
            self._networks, state, figures = _improve_both(
                self._networks, state, lived, order, rate, config
            )
            self._optimisers = (state,)
            return figures
        policy, value, _ = self._networks
        for_policy, for_value = prepare(self._networks, lived, config)
        policy_state, value_state = self._optimisers
        value_update = self._second_core.submit(
            lambda: jax.block_until_ready(
                _improve_value(value, value_state, for_value, order, rate, config)
            )
        )
        policy, policy_state, figures = _improve_policy(
            policy, policy_state, for_policy, order, rate, config
        )
        value, value_state, value_figures = value_update.result()
        self._networks = ActorCritic(policy, value)
        self._optimisers = policy_state, value_state
        return figures | value_figures
