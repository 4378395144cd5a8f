"""Policies of the agents, as distributions of actions, in JAX.

B: batch, D: features of an observation, A: action dimensions (or number of discrete actions).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from rl_teacher.agents.actions import LOG_STD_RANGE, MASKED_LOGIT, ActionHead, ActionScale
from rl_teacher.agents.agent import check_shapes
from rl_teacher.common.errors import BadConfig
from rl_teacher.common.state_dict import arrays_to_tree, tree_to_arrays
from rl_teacher.nn.conv import Encoder, Identity
from rl_teacher.nn.mlp import MLP

LOG_2PI = float(np.log(2 * np.pi))
LOG_2 = float(np.log(2))

Features = Float[Array, "batch features"]
ActionMasks = Bool[Array, "batch action"] | None
"""Discrete actions that are allowed; None: all."""


class GaussianPolicy(eqx.Module):
    """A diagonal Gaussian whose standard deviation does not depend on the observation."""

    mean: MLP
    log_std: Float[Array, " action"]

    def log_prob(
        self,
        observations: Features,
        actions: Float[Array, "batch action"],
        masks: ActionMasks = None,  # noqa: ARG002 - only discrete actions can be masked
    ) -> Float[Array, " batch"]:
        """Compute the [B] log-density of actions."""
        # log N(a; m, s) = -1/2 ((a - m) / s)^2 - log s - 1/2 log(2 pi), summed over A
        z = (actions - self.mean(observations)) * jnp.exp(-self.log_std)
        return -0.5 * jnp.sum(z**2 + 2 * self.log_std + LOG_2PI, axis=-1)

    def entropy(
        self,
        observations: Features,
        masks: ActionMasks = None,  # noqa: ARG002
    ) -> Float[Array, " batch"]:
        """Compute the [B] differential entropy in nats, the same for every observation."""
        # H = log s + 1/2 (1 + log(2 pi)), summed over A
        entropy = jnp.sum(self.log_std + 0.5 * (1 + LOG_2PI))
        return jnp.broadcast_to(entropy, observations.shape[:1])


class CategoricalPolicy(eqx.Module):
    """A softmax over discrete actions."""

    logits: MLP

    def log_probs(
        self, observations: Features, masks: ActionMasks = None
    ) -> Float[Array, "batch action"]:
        """Compute the [B, A] log-probability of each action; about -1e8 where it is masked."""
        logits = self.logits(observations)
        if masks is not None:
            logits = jnp.where(masks, logits, MASKED_LOGIT)
        return jax.nn.log_softmax(logits)

    def log_prob(
        self, observations: Features, actions: Shaped[Array, " batch"], masks: ActionMasks = None
    ) -> Float[Array, " batch"]:
        """Compute the [B] log-probability of actions, which are numbered 0 to A-1."""
        log_probs = self.log_probs(observations, masks)
        return jnp.take_along_axis(log_probs, actions[:, None], axis=-1)[:, 0]

    def entropy(self, observations: Features, masks: ActionMasks = None) -> Float[Array, " batch"]:
        """Compute the [B] entropy in nats over the allowed actions."""
        # H = -sum_a p(a) log p(a); masked actions add 0, since MASKED_LOGIT is finite.
        log_probs = self.log_probs(observations, masks)
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


class SquashedGaussianPolicy(eqx.Module):
    """tanh of a diagonal Gaussian whose mean and standard deviation depend on the observation.

    Attributes:
        network: D -> 2A, the means followed by the log standard deviations.
    """

    network: MLP

    def __call__(
        self, observations: Features, noise: Float[Array, "batch action"]
    ) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
        """Return [B, A] actions in (-1, 1) for standard normal noise, and their [B] log-density.

        Source: Haarnoja et al. 2018, appendix C, eq. 21.
        """
        mean, log_std = jnp.split(self.network(observations), 2, axis=-1)
        log_std = jnp.clip(log_std, *LOG_STD_RANGE)
        # u = m + s * epsilon: reparameterised, so that gradients flow through the sample.
        u = mean + jnp.exp(log_std) * noise
        gaussian = -0.5 * jnp.sum(noise**2 + 2 * log_std + LOG_2PI, axis=-1)
        # log pi(a) = log N(u) - sum log(1 - tanh(u)^2), where the last term is computed as
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not underflow.
        log_jacobian = jnp.sum(2 * (LOG_2 - u - jax.nn.softplus(-2 * u)), axis=-1)
        return jnp.tanh(u), gaussian - log_jacobian


Policy = GaussianPolicy | CategoricalPolicy


class ActorCritic(NamedTuple):
    """A policy, a value function, and their common encoder.

    Attributes:
        policy: policy on features.
        value: value function on features.
        encoder: image encoder; the identity for vectors, so that policy and value function share
            no weights.
    """

    policy: Policy
    value: MLP
    encoder: Encoder = Identity()


def make_policy(
    observation_size: int, space: gym.Space, hidden: tuple[int, ...], rng: np.random.Generator
) -> Policy:
    """Create a Gaussian policy for Box actions, or a categorical one for Discrete actions.

    Raises:
        BadConfig: the action space is neither.
    """
    if isinstance(space, gym.spaces.Box):
        size = math.prod(space.shape)
        mean = MLP((observation_size, *hidden, size), "tanh", 0.01, rng)
        return GaussianPolicy(mean, jnp.asarray(np.zeros(size, np.float32)))
    if isinstance(space, gym.spaces.Discrete):
        return CategoricalPolicy(MLP((observation_size, *hidden, int(space.n)), "tanh", 0.01, rng))
    raise BadConfig(
        f"The action space is {space}, but this agent needs Box or Discrete actions. "
        "Wrap the environment so that its actions are one of the two."
    )


def numpy_head(
    policy: Policy | SquashedGaussianPolicy, shape: tuple[int, ...], scale: ActionScale
) -> tuple[MLP, ActionHead]:
    """Return the network of a policy and the NumPy head for its outputs."""
    if isinstance(policy, GaussianPolicy):
        return policy.mean, ActionHead("gaussian", shape, np.asarray(policy.log_std), scale)
    if isinstance(policy, CategoricalPolicy):
        return policy.logits, ActionHead("categorical", shape, None, scale)
    return policy.network, ActionHead("squashed_gaussian", shape, None, scale)


def load_networks(like: Any, saved: Mapping[str, np.ndarray]) -> Any:
    """Return networks with the structure of `like` and saved parameters.

    Raises:
        BadConfig: the saved networks have other sizes.
    """
    check_shapes(
        tree_to_arrays(like),
        saved,
        "Use the `hidden` setting of the saved agent, and an environment with the same "
        "observations and actions.",
    )
    return arrays_to_tree(like, saved)
