"""Multi-layer perceptrons of agents and reward predictors, in JAX."""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

ACTIVATIONS: dict[str, Callable] = {
    "tanh": jnp.tanh,
    "leaky_relu": lambda x: jax.nn.leaky_relu(x, 0.01),
    "relu": jax.nn.relu,
}


def orthogonal(
    shape: tuple[int, int], rng: np.random.Generator
) -> Float32[np.ndarray, "inputs outputs"]:
    """Sample a matrix with orthonormal rows or columns, whichever are fewer (Saxe et al. 2014)."""
    tall = rng.standard_normal((max(shape), min(shape)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))  # makes the distribution uniform over all such matrices
    return np.asarray(q if shape[0] >= shape[1] else q.T, np.float32)


class MLP(eqx.Module):
    """A multi-layer perceptron; see `NumpyMLP` for the same network in NumPy.

    Attributes:
        weights: weight matrix of each layer, [inputs, outputs].
        biases: bias of each layer, [outputs].
        activation: activation between two layers.
    """

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
        """Initialise orthogonally: gain sqrt(2), `output_scale` in the last layer; biases 0."""
        gains = [2**0.5] * (len(sizes) - 2) + [output_scale]
        shapes = list(itertools.pairwise(sizes))
        self.weights = [
            jnp.asarray(gain * orthogonal(shape, rng))
            for gain, shape in zip(gains, shapes, strict=True)
        ]
        self.biases = [jnp.asarray(np.zeros(outputs, np.float32)) for _, outputs in shapes]
        self.activation = activation

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """Compute the output for each input."""
        activate = ACTIVATIONS[self.activation]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = activate(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]
