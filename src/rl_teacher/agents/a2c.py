"""Synchronous advantage actor-critic (Mnih et al. 2016), with the defaults of Stable-Baselines3.

Each update is one gradient step on a short rollout of many environments. Since rollouts are so
short, fixed costs matter: the step from observations to new weights is one compiled call, and both
networks enter and leave it as one vector.

B: samples of a rollout, P: parameters of policy and value function.
"""

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Array, Float, Float32

from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.policies import ActorCritic
from rl_teacher.agents.rollout_batch import (
    Batch,
    RolloutBatch,
    prepare_batch,
    weighted_mean,
)
from rl_teacher.config.agents import A2CConfig, RMSPropSettings

VALUE_COEF = 0.5
"""Weight of the value loss, the usual value of A2C implementations."""
VALUE_BIAS_RATE = 0.1
"""Share of the value function's mean error that a step removes through its output bias."""


@dataclass(frozen=True)
class ParameterLayout:
    """Layout of the float32 arrays of a tree within one vector.

    JAX flattens the arguments of a compiled call in Python. For the 13 arrays of a small agent that
    takes 0.3 ms, more than the arithmetic of a short rollout; for one vector it takes nothing. A
    layout is hashable, so that it can be a static argument.

    Attributes:
        structure: structure of the tree.
        shapes: shapes of its arrays.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(tree: Any) -> "ParameterLayout":
        """Return the layout of a tree, equal for all trees of the same structure."""
        leaves, structure = jax.tree.flatten(tree)
        return ParameterLayout(structure, tuple(leaf.shape for leaf in leaves))

    def pack(self, tree: Any) -> Float32[np.ndarray, " parameter"]:
        """Copy the arrays of a tree to a new vector."""
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])

    def unpack(self, vector: Any) -> Any:
        """Return the tree with views of the vector, in JAX or NumPy as the vector is."""
        ends = list(itertools.accumulate((math.prod(shape) for shape in self.shapes), initial=0))
        parts = zip(itertools.pairwise(ends), self.shapes, strict=True)
        leaves = [vector[first:end].reshape(shape) for (first, end), shape in parts]
        return jax.tree.unflatten(self.structure, leaves)


def make_optimiser(config: RMSPropSettings) -> optax.GradientTransformation:
    """Create RMSProp as in TensorFlow, with clipping by the norm over both networks.

    Source: RMSpropTFLike of Stable-Baselines3. The mean square starts at 1 instead of 0, and
    epsilon is added before the root is taken; both keep the first steps small.
    """
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.scale_by_rms(
            config.rms_alpha, config.rms_epsilon, initial_scale=1.0, eps_in_sqrt=True
        ),
    )


def init_optimiser(packed: Any, config: RMSPropSettings) -> tuple[Any, ...]:
    """Return the initial state of the optimiser of packed networks."""
    state: Any = make_optimiser(config).init(packed)
    return tuple(state)


def actor_critic_loss(
    networks: ActorCritic, batch: Batch, entropy_coef: float
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Compute -log pi * A + 1/2 (V - R)^2 - c * H over valid steps (Mnih et al. 2016)."""
    policy, value, encoder = networks
    features = encoder(batch.observations)
    masks, weights = batch.masks, batch.weights
    log_probs = policy.log_prob(features, batch.actions, masks)
    # L_policy = -E[log pi(a_t | o_t) * A_t]; the advantages are constants.
    policy_loss = -weighted_mean(log_probs * batch.advantages, weights)
    # L_value = E[(R_t - V(o_t))^2]
    errors = batch.returns - value(features)[:, 0]
    value_loss = weighted_mean(errors**2, weights)
    entropy = weighted_mean(policy.entropy(features, masks), weights)
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "value_error": weighted_mean(errors, weights),
        "entropy": entropy,
    }
    return policy_loss + VALUE_COEF * value_loss - entropy_coef * entropy, metrics


def value_bias_mask(packed: Float[Array, " parameter"], layout: ParameterLayout) -> Array:
    """Return [P] 1 at the output bias of the value function, 0 elsewhere."""
    # The derivative of the bias with respect to each parameter, known when compiling.
    return jax.grad(lambda packed: layout.unpack(packed).value.biases[-1].sum())(packed)


def gradient_step(
    packed: Float[Array, " parameter"],
    optimiser_state: Any,
    batch: Batch,
    learning_rate: Any,
    layout: ParameterLayout,
    config: RMSPropSettings,
) -> tuple[Float[Array, " parameter"], Any, dict[str, Array]]:
    """Take one gradient step on both networks.

    Args:
        packed: [P] parameters of an `ActorCritic`.
        optimiser_state: state of `make_optimiser`.
        batch: the samples.
        learning_rate: learning rate of this step.
        layout: layout of the networks.
        config: the settings.

    Returns:
        The new parameters, the state of their optimiser, and metrics by name.
    """

    def loss(packed: Array) -> tuple[Array, dict[str, Array]]:
        networks = layout.unpack(packed)
        return actor_critic_loss(networks, batch, config.entropy_coef)

    gradients, metrics = jax.grad(loss, has_aux=True)(packed)
    updates, optimiser_state = make_optimiser(config).update(gradients, optimiser_state)
    # Rewards with a nonzero mean, such as one for staying upright, make returns a large constant
    # plus a small signal. RMSProp learns that constant slowly, and meanwhile its error dominates
    # the clipped gradient of both networks. So the output bias is also moved by a share of the mean
    # error. Unlike a shift of rewards, this moves only the baseline, not the optimal policy.
    # theta <- theta - learning rate * RMSProp(g) + 0.1 * E[R - V] * (1 at the output bias)
    bias_step = VALUE_BIAS_RATE * metrics["value_error"] * value_bias_mask(packed, layout)
    return packed - learning_rate * updates + bias_step, optimiser_state, metrics


@functools.partial(jax.jit, static_argnames=("layout", "config"))
def _compiled_update(packed, state, rollout, learning_rate, layout, config):  # noqa: ANN001, ANN202
    batch = prepare_batch(layout.unpack(packed), rollout, config)
    return gradient_step(packed, state, batch, learning_rate, layout, config)


class A2C(OnPolicyAgent[A2CConfig]):
    """The A2C agent; see the module's docstring."""

    def _init_optimisers(self) -> tuple[Any, ...]:
        self._layout = ParameterLayout.of(self._networks)
        return init_optimiser(self._layout.pack(self._networks), self.config)

    def _update(self, rollout: RolloutBatch) -> dict[str, Array]:
        config = self.config
        learning_rate = self._annealed(config.learning_rate, config.final_learning_rate)
        packed = self._layout.pack(self._networks)
        packed, self._optimisers, metrics = _compiled_update(
            packed, self._optimisers, rollout, learning_rate, self._layout, config
        )
        # Views of one host array: nothing is copied per layer.
        self._networks = self._layout.unpack(np.asarray(packed))
        return metrics
