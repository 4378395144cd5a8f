"""A Gaussian squashed into bounds by tanh: what SAC draws its actions from.

B: batch, D: features of an observation, A: action dimensions.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rl_teacher.nn.mlp import MLP, NumpyMLP

LOG_2PI = float(np.log(2 * np.pi))
LOG_2 = float(np.log(2))
LOG_STD_LOW, LOG_STD_HIGH = -20.0, 2.0


class SquashedGaussian(eqx.Module):
    """tanh of a diagonal Gaussian whose mean and spread depend on the observation.

    Attributes:
        network: D -> 2A, the means and then the logarithms of the standard deviations.
    """

    network: MLP

    def __call__(
        self, observations: Float[Array, "batch features"], noise: Float[Array, "batch action"]
    ) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
        """[B, A] actions in (-1, 1) as standard normal noise draws them, and their log-density.

        Source: Haarnoja et al. 2018, appendix C, eq. 21; log(1 - tanh(u)^2) in a stable form.
        """
        mean, log_std = jnp.split(self.network(observations), 2, axis=-1)
        log_std = jnp.clip(log_std, LOG_STD_LOW, LOG_STD_HIGH)
        u = mean + jnp.exp(log_std) * noise
        gaussian = -0.5 * jnp.sum(noise**2 + 2 * log_std + LOG_2PI, axis=-1)
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u))
        squeezed = jnp.sum(2 * (LOG_2 - u - jax.nn.softplus(-2 * u)), axis=-1)
        return jnp.tanh(u), gaussian - squeezed


class HostSquashedGaussian:
    """Draws actions from the same, in NumPy (see NumpyMLP)."""

    def __init__(self, policy: SquashedGaussian) -> None:
        self._network = NumpyMLP(policy.network)

    def sample(
        self, observations: Float[np.ndarray, "batch features"], rng: np.random.Generator
    ) -> Float[np.ndarray, "batch action"]:
        """[B, A] actions in (-1, 1)."""
        mean, log_std = np.split(self._network(observations), 2, axis=-1)
        std = np.exp(np.clip(log_std, LOG_STD_LOW, LOG_STD_HIGH))
        return np.tanh(mean + std * rng.standard_normal(mean.shape, dtype=np.float32))

    def best(
        self, observations: Float[np.ndarray, "batch features"]
    ) -> Float[np.ndarray, "batch action"]:
        """[B, A] what the means become."""
        return np.tanh(np.split(self._network(observations), 2, axis=-1)[0])
