"""How likely an answer is, given predicted rewards (Christiano et al. 2017, section 2.2.3)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def preference_logit(
    rewards_left: Float[Array, "*batch time"],
    rewards_right: Float[Array, "*batch time"],
) -> Float[Array, "*batch"]:
    """Log-odds that the left clip is preferred (eq. 1).

    B comparisons, T steps.

    Args:
        rewards_left: [B, T] predicted reward per step; padded steps are 0.
        rewards_right: [B, T].

    Returns:
        [B]; positive means left.
    """
    return jnp.sum(rewards_left, axis=-1) - jnp.sum(rewards_right, axis=-1)


def preference_loss(
    logits: Float[Array, "*batch"], targets: Float[Array, "*#batch"], error_rate: float = 0.1
) -> Float[Array, "*batch"]:
    """Cross-entropy of answers from a person who errs at random now and then.

    p = (1 - e) * sigmoid(logit) + e / 2, in a form whose gradient never dies: the logarithm of
    the sum is a log-sum-exp of log-sigmoid and a constant, so nothing is clipped.

    Args:
        logits: [B] log-odds that the left clip is preferred.
        targets: [B] 1 for left, 0 for right, 1/2 for equal.
        error_rate: e, the chance of a uniformly random answer.

    Returns:
        [B] in nats.
    """
    if error_rate == 0.0:
        log_p_left, log_p_right = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
    else:
        log_sure, log_random = jnp.log1p(-error_rate), jnp.log(error_rate / 2)
        log_p_left = jnp.logaddexp(log_sure + jax.nn.log_sigmoid(logits), log_random)
        log_p_right = jnp.logaddexp(log_sure + jax.nn.log_sigmoid(-logits), log_random)
    return -(targets * log_p_left + (1 - targets) * log_p_right)
