"""Policies: what an agent draws its actions from.

B: batch, D: features of an observation, A: action dimensions (or number of discrete actions).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from rl_teacher.networks import MLP, HostMLP

LOG_2PI = float(np.log(2 * np.pi))


class GaussianPolicy(eqx.Module):
    """A diagonal Gaussian whose spread does not depend on the observation."""

    mean: MLP
    log_std: Float[Array, " action"]

    def log_prob(
        self, observations: Float[Array, "batch features"], actions: Float[Array, "batch action"]
    ) -> Float[Array, " batch"]:
        """[B] log-density of the actions."""
        z = (actions - self.mean(observations)) * jnp.exp(-self.log_std)
        return -0.5 * jnp.sum(z**2 + 2 * self.log_std + LOG_2PI, axis=-1)

    def entropy(self, observations: Float[Array, "batch features"]) -> Float[Array, " batch"]:
        """[B] differential entropy in nats; the same for every observation."""
        entropy = jnp.sum(self.log_std + 0.5 * (1 + LOG_2PI))
        return jnp.broadcast_to(entropy, observations.shape[:1])


class CategoricalPolicy(eqx.Module):
    """A softmax over discrete actions."""

    logits: MLP

    def log_prob(
        self, observations: Float[Array, "batch features"], actions: Shaped[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """[B] log-probability of the actions, which are numbers 0..A-1."""
        log_probs = jax.nn.log_softmax(self.logits(observations))
        return jnp.take_along_axis(log_probs, actions[:, None], axis=-1)[:, 0]

    def entropy(self, observations: Float[Array, "batch features"]) -> Float[Array, " batch"]:
        """[B] entropy in nats."""
        log_probs = jax.nn.log_softmax(self.logits(observations))
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


Policy = GaussianPolicy | CategoricalPolicy


class HostPolicy:
    """Draws actions from a policy, in NumPy (see HostMLP)."""

    def __init__(self, policy: Policy) -> None:
        if isinstance(policy, GaussianPolicy):
            self._network = HostMLP(policy.mean)
            self._std: np.ndarray | None = np.exp(np.asarray(policy.log_std))
        else:
            self._network = HostMLP(policy.logits)
            self._std = None

    def sample(
        self, observations: Float[np.ndarray, "batch features"], rng: np.random.Generator
    ) -> Shaped[np.ndarray, "batch ..."]:
        """[B, A] float32 actions, or [B] int64 when they are discrete."""
        outputs = self._network(observations)
        if self._std is not None:
            noise = rng.standard_normal(outputs.shape, dtype=np.float32)
            return outputs + self._std * noise
        # The Gumbel trick: the argmax of logits plus Gumbel noise is a draw from the softmax.
        return np.argmax(outputs + rng.gumbel(size=outputs.shape), axis=-1)

    def best(
        self, observations: Float[np.ndarray, "batch features"]
    ) -> Shaped[np.ndarray, "batch ..."]:
        """The most likely actions, for watching an agent."""
        outputs = self._network(observations)
        return outputs if self._std is not None else np.argmax(outputs, axis=-1)
