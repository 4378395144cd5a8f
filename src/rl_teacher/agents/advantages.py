"""Multi-step estimators of advantages and returns, as pure functions.

T: steps of a rollout, N: environments.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped


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


class VTrace(NamedTuple):
    """Off-policy corrected targets and advantages.

    Attributes:
        targets: [T, N] v_s, targets of the value function.
        advantages: [T, N] rho_s * (r_s + gamma * v_{s+1} - V(x_s)), for the policy gradient.
    """

    targets: Float[Array, "time env"]
    advantages: Float[Array, "time env"]


def vtrace(  # noqa: PLR0913 - one array each
    log_rho_t: Float[Array, "time env"],
    r_t: Float[Array, "time env"],
    v_t: Float[Array, "time env"],
    v_tp1: Float[Array, "time env"],
    terminated_t: Float[Array, "time env"],
    ended_t: Float[Array, "time env"],
    *,
    gamma: float,
    rho_bar: float,
    c_bar: float,
) -> VTrace:
    """Compute V-trace (Espeholt et al. 2018, "IMPALA", section 4.1).

    Args:
        log_rho_t: [T, N] log pi(a|x) - log mu(a|x), where mu is the policy that acted.
        r_t: [T, N] rewards.
        v_t: [T, N] V(x_s).
        v_tp1: [T, N] V(x_{s+1}) of the observation before any reset.
        terminated_t: [T, N] 1 where the episode terminated: V(x_{s+1}) counts as 0.
        ended_t: [T, N] 1 where the episode terminated or was truncated: the sum stops there.
        gamma: discount.
        rho_bar: clip of the ratios in the temporal differences; it decides between which of the
            two policies the fixed point lies.
        c_bar: clip of the ratios in the trace; it decides the speed of convergence.
    """
    # rho_s = min(rho_bar, pi / mu),  c_s = min(c_bar, pi / mu)
    rho = jnp.minimum(jnp.exp(log_rho_t), rho_bar)
    c = jnp.minimum(jnp.exp(log_rho_t), c_bar)
    is_bootstrapped, continues = 1 - terminated_t, 1 - ended_t
    # delta_s = rho_s * (r_s + gamma * V(x_{s+1}) - V(x_s))
    deltas = rho * (r_t + gamma * is_bootstrapped * v_tp1 - v_t)

    def backward(correction_tp1: Array, step: tuple) -> tuple[Array, tuple[Array, Array]]:
        delta, c_s, continues_s = step
        # v_s - V(x_s) = delta_s + gamma * c_s * (v_{s+1} - V(x_{s+1}))
        following = continues_s * correction_tp1
        correction = delta + gamma * c_s * following
        return correction, (correction, following)

    _, (corrections, following) = jax.lax.scan(
        backward, jnp.zeros_like(deltas[0]), (deltas, c, continues), reverse=True
    )
    # v_{s+1} = V(x_{s+1}) + (v_{s+1} - V(x_{s+1}))
    next_targets = is_bootstrapped * v_tp1 + following
    advantages = rho * (r_t + gamma * next_targets - v_t)
    return VTrace(v_t + corrections, advantages)


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
