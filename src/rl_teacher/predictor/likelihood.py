"""Losses of predicted rewards: the likelihood of answers, and regression on the rank of a clip.

The first is the Bradley-Terry likelihood of Christiano et al. 2017, 2.2.3; the second is the
ordinal regression of rl-teacher-atari.

B: comparisons, or clips; T: steps of a segment.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def preference_logit(
    rewards_left: Float[Array, "*batch time"],
    rewards_right: Float[Array, "*batch time"],
) -> Float[Array, "*batch"]:
    """Compute the Bradley-Terry log-odds that the left clip is preferred (eq. 1).

    Args:
        rewards_left: [B, T] predicted reward per step; padded steps are 0.
        rewards_right: [B, T].

    Returns:
        [B] log-odds; positive means left.
    """
    # log P(left) / P(right) = sum_t r(left_t) - sum_t r(right_t)
    return jnp.sum(rewards_left, axis=-1) - jnp.sum(rewards_right, axis=-1)


def preference_loss(
    logits: Float[Array, "*batch"], targets: Float[Array, "*#batch"], error_rate: float = 0.1
) -> Float[Array, "*batch"]:
    """Compute the cross-entropy of answers from a labeler who sometimes answers at random.

    Args:
        logits: [B] log-odds that the left clip is preferred.
        targets: [B] 1 for left, 0 for right, 1/2 for equal.
        error_rate: e, the probability of a uniformly random answer.

    Returns:
        [B] in nats.
    """
    if error_rate == 0.0:
        log_p_left, log_p_right = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
    else:
        # p = (1 - e) * sigmoid(logit) + e / 2, as a log-sum-exp: the gradient never vanishes by
        # clipping, however wrong a confident prediction is.
        log_sure, log_random = jnp.log1p(-error_rate), jnp.log(error_rate / 2)
        log_p_left = jnp.logaddexp(log_sure + jax.nn.log_sigmoid(logits), log_random)
        log_p_right = jnp.logaddexp(log_sure + jax.nn.log_sigmoid(-logits), log_random)
    return -(targets * log_p_left + (1 - targets) * log_p_right)


def mean_reward(
    rewards: Float[Array, "*batch time"], weights: Float[Array, "*batch time"]
) -> Float[Array, "*batch"]:
    """Compute the mean reward per step of a clip.

    Args:
        rewards: [B, T] weighted reward per step; padded steps are 0.
        weights: [B, T] weight of each step.

    Returns:
        [B]; 0 for a clip without steps.
    """
    # Subsampling may leave out all steps of a clip that ended early.
    return jnp.sum(rewards, axis=-1) / jnp.maximum(jnp.sum(weights, axis=-1), 1e-9)


def regression_loss(
    scores: Float[Array, "*batch"],
    targets: Float[Array, "*#batch"],
    certainty: Float[Array, "*#batch"],
) -> Float[Array, "*batch"]:
    """Compute the weighted squared error of clips whose rank is known.

    rl-teacher-atari's (s z - sum_t r_t)^2 divided by s^2, where s is the number of steps: the scale
    of the loss does not depend on the length of a clip.

    Args:
        scores: [B] mean reward per step.
        targets: [B] z, the normal quantile of the clip's rank.
        certainty: [B] weights.
    """
    return certainty * jnp.square(targets - scores)
