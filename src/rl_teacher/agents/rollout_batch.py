"""Rollouts as flat batches with advantages and returns, the input of the compiled updates.

T: steps of a rollout, N: environments, D: features of an observation, A: actions, B = T * N.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from rl_teacher.agents.policies import ActorCritic
from rl_teacher.config.agents import A2CConfig, PPOConfig, TRPOConfig
from rl_teacher.envs.rollout import Rollout


class BootstrapObservations(NamedTuple):
    """Next observations at episode ends and at the last step.

    All other next observations are in the rollout already, and encoding images is expensive.

    Attributes:
        steps: [E] indices among the T * N steps; some may occur repeatedly.
        observations: [E, ...] before any reset.
    """

    steps: Any
    observations: Any

    @staticmethod
    def of(rollout: Rollout) -> "BootstrapObservations":
        """Collect them from a rollout, padded to a multiple of N."""
        is_needed = rollout.ended | ~rollout.is_valid
        is_needed[-1] = True
        steps = np.flatnonzero(is_needed)
        num_envs = rollout.ended.shape[1]
        # Padding keeps the number of distinct lengths, and so of compiled programs, small.
        padded = np.resize(steps, -(-len(steps) // num_envs) * num_envs)
        time, env = np.unravel_index(padded, rollout.ended.shape)
        return BootstrapObservations(padded, rollout.next_observations[time, env])


class RolloutBatch(NamedTuple):
    """A rollout as input of a compiled update.

    Attributes:
        observations: [T, N, D] normalised; images as bytes, in tiles.
        next_observations: [T, N, D] before any reset; for images `BootstrapObservations`.
        actions: [T, N, ...] policy actions, before scaling and clipping.
        masks: [T, N, A] discrete actions that were allowed; None: all.
        rewards: [T, N] scaled rewards.
        terminated: [T, N] 1 where the episode terminated, so that nothing is bootstrapped.
        ended: [T, N] 1 where the episode terminated or was truncated.
        weights: [T, N] 1 for valid steps, 0 for steps that only reset an environment.
        features: [T, N, F] features of the images, computed while the policy acted; None for
            vectors, or if the encoder has changed since.
    """

    observations: Any
    next_observations: Any
    actions: Any
    masks: Any
    rewards: Any
    terminated: Any
    ended: Any
    weights: Any
    features: Any = None


class Batch(NamedTuple):
    """Samples of an update.

    Attributes:
        observations: [B, D] normalised; bytes for images.
        weights: [B] 1 for valid steps.
        actions: [B, ...]
        masks: [B, A] discrete actions that were allowed; None: all.
        log_probs: [B] log-probabilities of the actions under the policy before the update.
        advantages: [B]
        returns: [B] targets of the value function.
    """

    observations: Any
    weights: Any
    actions: Any
    masks: Any
    log_probs: Any
    advantages: Any
    returns: Any


def flatten_time(x: Shaped[Any, "time env ..."]) -> Shaped[Any, "batch ..."]:
    """Merge time and environments into one batch axis."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


@functools.partial(jax.jit, static_argnames="config")
def prepare_batch(
    networks: ActorCritic, rollout: RolloutBatch, config: PPOConfig | TRPOConfig | A2CConfig
) -> Batch:
    """Compute log-probabilities, advantages and returns."""
    policy, value, encoder = networks
    features = encoder(rollout.observations) if rollout.features is None else rollout.features
    # One pass over the whole rollout, in place of one small pass per step of the simulation.
    values = value(features)[..., 0]
    advantages = generalized_advantage_estimation(
        rollout.rewards,
        values,
        bootstrap_values(networks, rollout, values),
        rollout.terminated,
        rollout.ended,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
    )
    actions = flatten_time(rollout.actions)
    masks = None if rollout.masks is None else flatten_time(rollout.masks)
    return Batch(
        observations=flatten_time(rollout.observations),
        weights=flatten_time(rollout.weights),
        actions=actions,
        masks=masks,
        log_probs=policy.log_prob(flatten_time(features), actions, masks),
        advantages=flatten_time(advantages),
        # The target of the value function is the lambda-return, R_t = A_t + V(o_t).
        returns=flatten_time(advantages + values),
    )


def bootstrap_values(
    networks: ActorCritic, rollout: RolloutBatch, values: Float[Array, "time env"]
) -> Float[Array, "time env"]:
    """Compute [T, N] V(o_{t+1}) of the observations before any reset.

    Args:
        networks: value function and encoder.
        rollout: the rollout.
        values: [T, N] V(o_t), which are used again where an episode continues.
    """
    following = rollout.next_observations
    if not isinstance(following, BootstrapObservations):
        return networks.value(networks.encoder(following))[..., 0]
    # V(o_{t+1}) is V of the next row, except where the next row starts another episode.
    at_ends = networks.value(networks.encoder(following.observations))[:, 0]
    shifted = jnp.concatenate([values[1:], values[-1:]]).reshape(-1)
    return shifted.at[following.steps].set(at_ends).reshape(values.shape)


# --- estimators ---


def generalized_advantage_estimation(  # noqa: PLR0913 - one array each
    r_t: Float[Array, "time env"],
    v_t: Float[Array, "time env"],
    v_tp1: Float[Array, "time env"],
    terminated_t: Float[Array, "time env"],
    ended_t: Float[Array, "time env"],
    *,
    gamma: float,
    gae_lambda: float,
) -> Float[Array, "time env"]:
    """Compute generalised advantage estimates (Schulman et al. 2016, eq. 16).

    Args:
        r_t: [T, N] rewards.
        v_t: [T, N] V(o_t).
        v_tp1: [T, N] V(o_{t+1}) of the observation before any reset, so that an episode cut by
            its time limit bootstraps from its last observation.
        terminated_t: [T, N] 1 where the episode terminated: V(o_{t+1}) counts as 0.
        ended_t: [T, N] 1 where the episode terminated or was truncated: the sum stops there.
        gamma: discount.
        gae_lambda: decay of the weight of later temporal differences.

    Returns:
        [T, N] advantages.
    """
    # delta_t = r_t + gamma * V(o_{t+1}) - V(o_t)
    delta_t = r_t + gamma * (1 - terminated_t) * v_tp1 - v_t

    def backward(advantage_tp1: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, ended = step
        # A_t = delta_t + gamma * lambda * A_{t+1}
        advantage = delta + gamma * gae_lambda * (1 - ended) * advantage_tp1
        return advantage, advantage

    # Backwards in time, since A_t depends on A_{t+1}.
    start = jnp.zeros_like(delta_t[0])
    _, advantages = jax.lax.scan(backward, start, (delta_t, ended_t), reverse=True)
    return advantages


def weighted_mean(x: Shaped[Array, " batch"], weights: Float[Array, " batch"]) -> Float[Array, ""]:
    """Compute the weighted mean; 0 if all weights are 0."""
    return jnp.sum(weights * x) / jnp.maximum(weights.sum(), 1.0)


def standardise(x: Float[Array, " batch"], weights: Float[Array, " batch"]) -> Array:
    """Shift and scale to weighted mean 0 and standard deviation 1, except for a single sample."""
    if len(x) < 2:
        # The result would be 0, from which a policy learns nothing.
        return x
    centred = x - weighted_mean(x, weights)
    return centred / (jnp.sqrt(weighted_mean(centred**2, weights)) + 1e-8)
