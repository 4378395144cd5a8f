"""V-trace: targets and advantages from a policy that is not the one which acted.

Source: Espeholt et al., "IMPALA" (2018), section 4.1.

T: steps of a rollout, N: environments.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class VTrace(NamedTuple):
    """What a rollout says of a policy that did not live it.

    Attributes:
        targets: [T, N] v_s, what the value function is to say.
        advantages: [T, N] rho_s * (r_s + gamma * v_{s+1} - V(x_s)), for the policy's gradient.
    """

    targets: Float[Array, "time env"]
    advantages: Float[Array, "time env"]


def vtrace(  # noqa: PLR0913 - one array each
    log_ratios: Float[Array, "time env"],
    rewards: Float[Array, "time env"],
    values: Float[Array, "time env"],
    next_values: Float[Array, "time env"],
    terminated: Float[Array, "time env"],
    ended: Float[Array, "time env"],
    *,
    discount: float,
    rho_bar: float,
    c_bar: float,
) -> VTrace:
    """Correct a rollout for who lived it.

    Args:
        log_ratios: [T, N] log pi(a|x) - log mu(a|x): who learns over who acted.
        rewards: [T, N].
        values: [T, N] V(x_s).
        next_values: [T, N] V(x_{s+1}) of the observation before any reset.
        terminated: [T, N] 1 where nothing follows.
        ended: [T, N] 1 where an episode ended for any reason: no trace runs across.
        discount: gamma.
        rho_bar: rho bar, which says whose value function is learned: of a policy between the two.
        c_bar: c bar, which says how quickly.
    """
    rho = jnp.minimum(jnp.exp(log_ratios), rho_bar)
    c = jnp.minimum(jnp.exp(log_ratios), c_bar)
    follows, goes_on = 1 - terminated, 1 - ended
    # delta_s = rho_s * (r_s + gamma * V(x_{s+1}) - V(x_s))
    deltas = rho * (rewards + discount * follows * next_values - values)

    def backward(correction_tp1: Array, step: tuple) -> tuple[Array, tuple[Array, Array]]:
        delta_t, c_t, goes_on_t = step
        # v_s - V(x_s) = delta_s + gamma * c_s * (v_{s+1} - V(x_{s+1}))
        after = goes_on_t * correction_tp1
        correction_t = delta_t + discount * c_t * after
        return correction_t, (correction_t, after)

    _, (corrections, after) = jax.lax.scan(
        backward, jnp.zeros_like(deltas[0]), (deltas, c, goes_on), reverse=True
    )
    # v_{s+1} = V(x_{s+1}) + (v_{s+1} - V(x_{s+1}))
    next_targets = follows * next_values + after
    advantages = rho * (rewards + discount * next_targets - values)
    return VTrace(values + corrections, advantages)
