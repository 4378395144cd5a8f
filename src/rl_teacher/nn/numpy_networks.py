"""Inference in NumPy: the networks of mlp.py and conv.py without JAX.

B: batch, H, W: rows and columns of pixels, C: channels, F: features.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float32, Shaped

from rl_teacher.nn.image_layout import ImageLayout, trailing_floats

if TYPE_CHECKING:
    from rl_teacher.nn.conv import ImageEncoder
    from rl_teacher.nn.mlp import MLP

Vector = Float32[np.ndarray, " _"]
Matrix = Float32[np.ndarray, "_ _"]
Filters = Float32[np.ndarray, "_ _ _ _"]

INPLACE_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    # max(x, 0.01 x) is x where x > 0, and 0.01 x elsewhere.
    "leaky_relu": lambda x: np.maximum(x, 0.01 * x, out=x),
    "relu": lambda x: np.maximum(x, 0, out=x),
}
BLOCK_ROWS = 64
"""Rows of a batch that are computed together: the activations of so many fit into the caches, and
their memory is not returned to the operating system after every layer."""


@dataclass(frozen=True, eq=False)
class NumpyMLP:
    """A multi-layer perceptron, or a stack of M of them.

    Rollouts use it in place of the JAX network: for a batch of 16 to 64 observations, a compiled
    JAX call takes 100 us, mostly dispatch, and these few matrix products take 35 us.

    Attributes:
        weights: weight matrix of each layer, [..., inputs, outputs].
        biases: bias of each layer, [..., outputs].
        activation: activation between two layers, a key of `INPLACE_ACTIVATIONS`.
    """

    weights: tuple[Float32[np.ndarray, "... _ _"], ...]
    biases: tuple[Float32[np.ndarray, "... _"], ...]
    activation: str

    @staticmethod
    def from_jax(network: "MLP") -> "NumpyMLP":
        """Convert a JAX network, without copying its parameters."""
        weights, biases = (
            tuple(map(np.asarray, each)) for each in (network.weights, network.biases)
        )
        return NumpyMLP(weights, biases, network.activation)

    def __call__(
        self, x: Float[np.ndarray, "... batch inputs"]
    ) -> Float[np.ndarray, "... batch outputs"]:
        """Compute the output, [M, B, ...] for a stack; it equals that of JAX up to rounding."""
        starts = range(0, x.shape[-2], BLOCK_ROWS)
        if len(starts) < 2:
            return self._forward(x)
        blocks = [self._forward(x[..., start : start + BLOCK_ROWS, :]) for start in starts]
        return np.concatenate(blocks, -2)

    def _forward(
        self, x: Float[np.ndarray, "... batch inputs"]
    ) -> Float[np.ndarray, "... batch outputs"]:
        activate = INPLACE_ACTIVATIONS[self.activation]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            # In place, so that each layer allocates one array.
            x = x @ weight
            x += bias[..., None, :]
            x = activate(x)
        return x @ self.weights[-1] + self.biases[-1][..., None, :]


@dataclass(frozen=True, eq=False)
class NumpyImageEncoder:
    """Convolutions without padding and one dense layer, each followed by ReLU.

    Attributes:
        layout: layout of the images.
        filters: filters of each convolution, [width, width, inputs, outputs].
        biases: bias of each convolution, [outputs]; where pixels are standardised, that of the
            first is [rows, columns, outputs].
        strides: stride of each convolution.
        weights: [S + V, F] weight matrix of the dense layer; see `conv.ImageEncoder`.
        bias: [F] bias of the dense layer.
    """

    layout: ImageLayout
    filters: tuple[Filters, ...]
    biases: tuple[Float32[np.ndarray, "..."], ...]
    strides: tuple[int, ...]
    weights: Matrix
    bias: Vector

    @staticmethod
    def from_jax(encoder: "ImageEncoder") -> "NumpyImageEncoder":
        """Convert a JAX encoder; standardisation becomes part of the first layer."""
        convolutions = encoder.standardised_layers()
        filters, biases = (
            tuple(map(np.asarray, each)) for each in (convolutions.filters, convolutions.biases)
        )
        dense = np.asarray(encoder.weights), np.asarray(encoder.bias)
        return NumpyImageEncoder(convolutions.layout, filters, biases, convolutions.strides, *dense)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return self.layout.observation_shape

    def features(self, observations: Shaped[np.ndarray, "B ..."]) -> Float[np.ndarray, "B F"]:
        """Compute the features of images given as bytes, with normalised vectors."""
        flat = observations.reshape(len(observations), math.prod(self.shape))
        images = flat[:, : self.layout.num_bytes].astype(np.float32)
        x = self.layout.channels_last(images) / np.float32(255)
        for filters, bias, stride in zip(self.filters, self.biases, self.strides, strict=True):
            x = np.maximum(convolve(x, filters, stride) + bias, 0.0)
        vector = trailing_floats(flat, self.layout.vector_size)
        x = x.reshape(len(x), len(self.weights) - self.layout.vector_size)
        x = np.concatenate([x, vector], axis=1)
        return np.maximum(x @ self.weights + self.bias, 0.0)

    def description(self) -> dict[str, Any]:
        """Return everything except the arrays, for JSON."""
        return {**asdict(self.layout), "strides": self.strides}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters by name."""
        arrays = {"weights": self.weights, "bias": self.bias}
        for number, (filters, bias) in enumerate(zip(self.filters, self.biases, strict=True)):
            arrays |= {f"filters/{number}": filters, f"biases/{number}": bias}
        return arrays


def convolve(
    x: Shaped[np.ndarray, "batch height width channel"],
    filters: Float32[np.ndarray, "side side channel filter"],
    stride: int,
) -> Float32[np.ndarray, "batch rows columns filter"]:
    """Compute a convolution without padding.

    The image is cut into tiles as wide as the stride. A filter covers k x k tiles, and its output
    is the sum of the products of its k x k parts with them, so no pixel is copied more than once.
    Where the stride does not divide the filter's width, filter and image are padded with zeros.
    """
    num, *size, channels = x.shape
    width, num_filters = len(filters), filters.shape[-1]
    across = -(-width // stride)
    rows, columns = ((pixels - width) // stride + 1 for pixels in size)
    high, wide = rows + across - 1, columns + across - 1
    # Image to tiles: [B, H, W, C] -> [B * high * wide, stride * stride * C]
    x = _resize(x, (high * stride, wide * stride), (1, 2))
    x = x.reshape(num, high, stride, wide, stride, channels).transpose(0, 1, 3, 2, 4, 5)
    tiles = x.reshape(num * high * wide, stride * stride * channels).astype(np.float32, copy=False)
    # Filters to parts: [width, width, C, O] -> [stride * stride * C, k * k * O]
    parts = _resize(filters, (across * stride, across * stride), (0, 1))
    parts = parts.reshape(across, stride, across, stride, channels, num_filters)
    parts = parts.transpose(1, 3, 4, 0, 2, 5).reshape(tiles.shape[1], -1)
    products = (tiles @ parts).reshape(num, high, wide, across, across, num_filters)
    # y[r, c] = sum_ij tile[r + i, c + j] @ part[i, j]
    outputs = np.zeros((num, rows, columns, num_filters), np.float32)
    for i, j in np.ndindex(across, across):
        outputs += products[:, i : i + rows, j : j + columns, i, j]
    return outputs


def _resize(x: np.ndarray, sizes: tuple[int, int], axes: tuple[int, int]) -> np.ndarray:
    """Cut off the end of two axes, or pad it with zeros."""
    padding = [(0, 0)] * x.ndim
    kept = [slice(None)] * x.ndim
    for axis, size in zip(axes, sizes, strict=True):
        padding[axis] = (0, max(size - x.shape[axis], 0))
        kept[axis] = slice(size)
    x = x[tuple(kept)]
    return np.pad(x, padding) if any(end for _, end in padding) else x
