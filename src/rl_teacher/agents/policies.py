"""Policies: what an agent draws its actions from.

B: batch, D: features of an observation, A: action dimensions (or number of discrete actions).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from rl_teacher.agents.actions import Masks
from rl_teacher.nn.mlp import MLP, NumpyMLP

LOG_2PI = float(np.log(2 * np.pi))
FORBIDDEN = -1e8
"""The logit of an action that is not allowed: finite, so that its product with 0 is 0."""


class GaussianPolicy(eqx.Module):
    """A diagonal Gaussian whose spread does not depend on the observation."""

    mean: MLP
    log_std: Float[Array, " action"]

    def log_prob(
        self,
        observations: Float[Array, "batch features"],
        actions: Float[Array, "batch action"],
        masks: Array | None = None,  # noqa: ARG002 - only discrete actions can be forbidden
    ) -> Float[Array, " batch"]:
        """[B] log-density of the actions."""
        z = (actions - self.mean(observations)) * jnp.exp(-self.log_std)
        return -0.5 * jnp.sum(z**2 + 2 * self.log_std + LOG_2PI, axis=-1)

    def entropy(
        self,
        observations: Float[Array, "batch features"],
        masks: Array | None = None,  # noqa: ARG002
    ) -> Float[Array, " batch"]:
        """[B] differential entropy in nats; the same for every observation."""
        entropy = jnp.sum(self.log_std + 0.5 * (1 + LOG_2PI))
        return jnp.broadcast_to(entropy, observations.shape[:1])


class CategoricalPolicy(eqx.Module):
    """A softmax over discrete actions."""

    logits: MLP

    def log_probs(
        self,
        observations: Float[Array, "batch features"],
        masks: Bool[Array, "batch action"] | None = None,
    ) -> Float[Array, "batch action"]:
        """[B, A] log-probability of each action; as good as minus infinity where forbidden."""
        logits = self.logits(observations)
        if masks is not None:
            logits = jnp.where(masks, logits, FORBIDDEN)
        return jax.nn.log_softmax(logits)

    def log_prob(
        self,
        observations: Float[Array, "batch features"],
        actions: Shaped[Array, " batch"],
        masks: Bool[Array, "batch action"] | None = None,
    ) -> Float[Array, " batch"]:
        """[B] log-probability of the actions, which are numbers 0..A-1."""
        log_probs = self.log_probs(observations, masks)
        return jnp.take_along_axis(log_probs, actions[:, None], axis=-1)[:, 0]

    def entropy(
        self,
        observations: Float[Array, "batch features"],
        masks: Bool[Array, "batch action"] | None = None,
    ) -> Float[Array, " batch"]:
        """[B] entropy in nats, over the actions that are allowed."""
        log_probs = self.log_probs(observations, masks)
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


Policy = GaussianPolicy | CategoricalPolicy


class HostPolicy:
    """Draws actions from a policy, in NumPy (see NumpyMLP)."""

    def __init__(self, policy: Policy) -> None:
        if isinstance(policy, GaussianPolicy):
            self._network = NumpyMLP(policy.mean)
            self._std: np.ndarray | None = np.exp(np.asarray(policy.log_std))
        else:
            self._network = NumpyMLP(policy.logits)
            self._std = None

    def sample(
        self,
        observations: Float[np.ndarray, "batch features"],
        rng: np.random.Generator,
        masks: Masks = None,
    ) -> Shaped[np.ndarray, "batch ..."]:
        """[B, A] float32 actions, or [B] int64 when they are discrete."""
        outputs = self._outputs(observations, masks)
        if self._std is not None:
            noise = rng.standard_normal(outputs.shape, dtype=np.float32)
            return outputs + self._std * noise
        # The Gumbel trick: the argmax of logits plus Gumbel noise is a draw from the softmax.
        return np.argmax(outputs + rng.gumbel(size=outputs.shape), axis=-1)

    def best(
        self, observations: Float[np.ndarray, "batch features"], masks: Masks = None
    ) -> Shaped[np.ndarray, "batch ..."]:
        """The most likely actions, for watching an agent."""
        outputs = self._outputs(observations, masks)
        return outputs if self._std is not None else np.argmax(outputs, axis=-1)

    def _outputs(self, observations: np.ndarray, masks: Masks) -> np.ndarray:
        outputs = self._network(observations)
        return outputs if masks is None else np.where(masks, outputs, FORBIDDEN)
