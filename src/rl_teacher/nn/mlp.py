"""The small networks of agents and reward predictors, for JAX and for NumPy."""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

ACTIVATIONS: dict[str, tuple[Callable, Callable]] = {
    "tanh": (jnp.tanh, lambda x: np.tanh(x, out=x)),
    "leaky_relu": (
        lambda x: jax.nn.leaky_relu(x, 0.01),
        lambda x: np.maximum(x, 0.01 * x, out=x),
    ),
    "relu": (jax.nn.relu, lambda x: np.maximum(x, 0, out=x)),
}
"""By name: JAX's, and NumPy's, which changes its argument in its place."""
ROWS_AT_ONCE = 128
"""Of a batch in NumPy: what a layer says of them stays in the caches, and is not given back to the
operating system and fetched again for every layer."""


def orthogonal(
    shape: tuple[int, int], rng: np.random.Generator
) -> Float32[np.ndarray, "inputs outputs"]:
    """A matrix whose shorter side's vectors are orthonormal (Saxe et al. 2014)."""
    tall = rng.standard_normal((max(shape), min(shape)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))  # makes the draw uniform over all such matrices
    return np.asarray(q if shape[0] >= shape[1] else q.T, np.float32)


class MLP(eqx.Module):
    """A multi-layer perceptron on a batch; weights are [in, out]."""

    weights: list[Float[Array, "... inputs outputs"]]
    biases: list[Float[Array, "... outputs"]]
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        sizes: Sequence[int],
        activation: Literal["tanh", "leaky_relu", "relu"],
        output_scale: float,
        rng: np.random.Generator,
    ) -> None:
        """Orthogonal weights: gain sqrt(2) inside, `output_scale` at the end; biases 0."""
        gains = [2**0.5] * (len(sizes) - 2) + [output_scale]
        shapes = list(itertools.pairwise(sizes))
        self.weights = [
            jnp.asarray(gain * orthogonal(shape, rng))
            for gain, shape in zip(gains, shapes, strict=True)
        ]
        self.biases = [jnp.asarray(np.zeros(outputs, np.float32)) for _, outputs in shapes]
        self.activation = activation

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """The output for each input."""
        activate, _ = ACTIVATIONS[self.activation]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = activate(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


class NumpyMLP:
    """The same network, or a stack of M of them, in NumPy.

    Note: between two steps of physics there is one batch of 16 to 64 observations. A compiled JAX
    call costs 100 us there, most of it dispatch; these few matrix products cost 35 us.
    """

    def __init__(self, network: MLP) -> None:
        self._weights = [np.asarray(weight) for weight in network.weights]
        self._biases = [np.asarray(bias)[..., None, :] for bias in network.biases]
        _, self._activate = ACTIVATIONS[network.activation]

    def __call__(
        self, x: Float[np.ndarray, "... batch inputs"]
    ) -> Float[np.ndarray, "... batch outputs"]:
        """The output, equal to the JAX network's up to rounding; [M, B, ...] from a stack."""
        starts = range(0, x.shape[-2], ROWS_AT_ONCE)
        if len(starts) < 2:
            return self._of_some(x)
        said = [self._of_some(x[..., start : start + ROWS_AT_ONCE, :]) for start in starts]
        return np.concatenate(said, -2)

    def _of_some(
        self, x: Float[np.ndarray, "... batch inputs"]
    ) -> Float[np.ndarray, "... batch outputs"]:
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            x = x @ weight
            x += bias
            x = self._activate(x)
        return x @ self._weights[-1] + self._biases[-1]
