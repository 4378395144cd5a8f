"""One gradient step of an actor and its critic on a whole rollout: what A2C and GA3C share.

B: steps of a rollout over all environments.
"""

from typing import Any

import jax
import optax
from jaxtyping import Array, Float

from rl_teacher.agents.flat_params import Layout
from rl_teacher.agents.on_policy import ActorCritic, PolicyBatch, ValueBatch, weighted_mean
from rl_teacher.config.agents import A2CConfig, GA3CConfig

VALUE_COEFFICIENT = 0.5
"""What the value function's squared error counts beside the policy's loss, in every A2C."""
CONSTANT_RATE = 0.1
"""Share of the value function's mean error that a step takes away at once, by its constant."""


def optimiser(config: A2CConfig | GA3CConfig) -> optax.GradientTransformation:
    """Clipping by the norm over both networks, and RMSProp as TensorFlow had it.

    Source: Stable-Baselines3's RMSpropTFLike. The mean square begins at 1, not at 0, and epsilon is
    added before the root is taken: both keep the first steps small.
    """
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.scale_by_rms(
            config.rms_alpha, config.rms_epsilon, initial_scale=1.0, eps_in_sqrt=True
        ),
    )


def begun(packed: Any, config: A2CConfig | GA3CConfig) -> tuple[Any, ...]:
    """The optimiser's state before the first step of networks that are packed."""
    state: Any = optimiser(config).init(packed)
    return tuple(state)


def actor_critic_loss(
    networks: ActorCritic,
    for_policy: PolicyBatch,
    for_value: ValueBatch,
    entropy_coef: float,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """-log pi * A + 1/2 (V - R)^2 - bonus * entropy, over the valid steps (Mnih et al. 2016)."""
    policy, value, encoder = networks
    seen, masks, weights = encoder(for_policy.observations), for_policy.masks, for_policy.weights
    log_probs = policy.log_prob(seen, for_policy.actions, masks)
    policy_loss = -weighted_mean(log_probs * for_policy.advantages, weights)
    errors = for_value.returns - value(seen)[:, 0]
    value_loss = weighted_mean(errors**2, weights)
    entropy = weighted_mean(policy.entropy(seen, masks), weights)
    figures = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "value_error": weighted_mean(errors, weights),
        "entropy": entropy,
    }
    return policy_loss + VALUE_COEFFICIENT * value_loss - entropy_coef * entropy, figures


def value_constant(packed: Float[Array, " parameter"], layout: Layout) -> Array:
    """[P] 1 for the number that the value function adds to whatever it says, 0 for all others."""
    return jax.grad(lambda packed: layout.unpack(packed).value.biases[-1].sum())(packed)


def step(  # noqa: PLR0913 - the networks, what they learn from, and how
    packed: Float[Array, " parameter"],
    optimiser_state: Any,
    for_policy: PolicyBatch,
    for_value: ValueBatch,
    learning_rate: Any,
    layout: Layout,
    config: A2CConfig | GA3CConfig,
) -> tuple[Float[Array, " parameter"], Any, dict[str, Array]]:
    """Both networks after one gradient step, their optimiser's state, and figures by name.

    Note: a reward that is never 0, such as one for being upright, makes returns a large constant
    and a little more. Steps of RMSProp come to that constant slowly, and meanwhile its error is
    most of the gradient, which is shortened with the policy's. So the constant is also moved by
    what the value function says too little on average. What is best stays best: unlike rewards,
    values may be moved where episodes end, too.

    Args:
        packed: [P] an `ActorCritic`, packed.
        optimiser_state: of `optimiser`.
        for_policy: what the policy learns from.
        for_value: what the value function learns from.
        learning_rate: of this step.
        layout: of the networks.
        config: the settings.
    """

    def loss(packed: Array) -> tuple[Array, dict[str, Array]]:
        return actor_critic_loss(layout.unpack(packed), for_policy, for_value, config.entropy_coef)

    gradients, figures = jax.grad(loss, has_aux=True)(packed)
    updates, optimiser_state = optimiser(config).update(gradients, optimiser_state)
    raised = CONSTANT_RATE * figures["value_error"] * value_constant(packed, layout)
    return packed - learning_rate * updates + raised, optimiser_state, figures
