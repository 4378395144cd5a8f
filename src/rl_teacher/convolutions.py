"""Convolutional layers, for agents and reward predictors that see pictures.

B: batch, P: bytes of a picture, H, W: its height and width, I, O: channels in and out.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from rl_teacher.networks import ACTIVATIONS, orthogonal
from rl_teacher.picture_shape import PictureShape
from rl_teacher.pictures import Plan

STATISTICS_SHARE = 0.1
"""Of a minibatch, in the running statistics of batch normalisation."""
LEAST_VARIANCE = 1e-3


_is_outside_loops = contextvars.ContextVar("is_outside_loops", default=False)


@contextlib.contextmanager
def outside_loops() -> Iterator[None]:
    """Say, where a compiled function begins, that what follows is in no loop; see `convolve`."""
    before = _is_outside_loops.set(True)
    try:
        yield
    finally:
        _is_outside_loops.reset(before)


@jax.jit
def applied(network, pictures):  # noqa: ANN001, ANN201
    """What a network says of a batch of pictures, in one compiled call."""
    with outside_loops():
        return network(pictures)


class BatchNorm(eqx.Module):
    """Batch normalisation over channels (Ioffe and Szegedy 2015)."""

    scale: Float[Array, " channel"]
    shift: Float[Array, " channel"]
    mean: Float[Array, " channel"]
    variance: Float[Array, " channel"]

    def __init__(self, num_channels: int) -> None:
        zeros, ones = np.zeros(num_channels, np.float32), np.ones(num_channels, np.float32)
        self.scale, self.shift = jnp.asarray(ones), jnp.asarray(zeros)
        self.mean, self.variance = jnp.asarray(zeros), jnp.asarray(ones)

    def __call__(self, x: Float[Array, "*batch channel"]) -> Float[Array, "*batch channel"]:
        """By the running statistics."""
        return self._by(x, self.mean, self.variance)

    def train(
        self, x: Float[Array, "*batch channel"]
    ) -> tuple[Float[Array, "*batch channel"], "BatchNorm"]:
        """By the minibatch's own statistics; and itself with the running ones moved on."""
        axes = tuple(range(x.ndim - 1))
        mean, variance = x.mean(axes), x.var(axes)
        moved = [
            jax.lax.stop_gradient((1 - STATISTICS_SHARE) * running + STATISTICS_SHARE * now)
            for running, now in ((self.mean, mean), (self.variance, variance))
        ]
        replaced = eqx.tree_at(lambda norm: (norm.mean, norm.variance), self, moved)
        return self._by(x, mean, variance), replaced

    def _by(self, x: Array, mean: Array, variance: Array) -> Array:
        return (x - mean) * jax.lax.rsqrt(variance + LEAST_VARIANCE) * self.scale + self.shift


class Convolutions(eqx.Module):
    """Some convolutional layers, without padding, on pictures given as bytes.

    Attributes:
        filters: of each layer, [width, width, I, O].
        biases: of each layer, [O].
        norms: of each layer, or nothing.
        strides: of each layer.
        picture: how the bytes lie.
        activation: after each layer.
    """

    filters: list[Float[Array, "... inputs outputs"]]
    biases: list[Float[Array, "... outputs"]]
    norms: list[BatchNorm]
    strides: tuple[int, ...] = eqx.field(static=True)
    picture: PictureShape = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        picture: PictureShape,
        plan: Plan,
        activation: Literal["relu", "leaky_relu"],
        rng: np.random.Generator,
        *,
        normalises: bool = False,
    ) -> None:
        """Orthogonal filters with a gain of sqrt(2); biases 0."""
        self.picture, self.activation = picture, activation
        self.filters, self.biases, self.norms = [], [], []
        inputs = picture.num_channels
        for outputs, width, _ in plan.convolutions:
            matrix = 2**0.5 * orthogonal((width * width * inputs, outputs), rng)
            self.filters.append(jnp.asarray(matrix.reshape(width, width, inputs, outputs)))
            self.biases.append(jnp.asarray(np.zeros(outputs, np.float32)))
            if normalises:
                self.norms.append(BatchNorm(outputs))
            inputs = outputs
        self.strides = tuple(layer.stride for layer in plan.convolutions)

    def __call__(self, pictures: Shaped[Array, "batch byte"]) -> Float[Array, "batch feature"]:
        """[B, F] all that the last layer says, one row for each picture."""
        activate, _ = ACTIVATIONS[self.activation]
        x = self.picture.channels_last(pictures)
        for layer, (weights, bias) in enumerate(zip(self.filters, self.biases, strict=True)):
            x = convolve(x, weights, self.strides[layer]) + bias
            if self.norms:
                x = self.norms[layer](x)
            x = activate(x)
        return x.reshape(len(x), -1)

    def train(
        self, pictures: Shaped[Array, "batch byte"], drop: Callable[[Array, int], Array]
    ) -> tuple[Float[Array, "batch feature"], "Convolutions"]:
        """The same while fitting: with dropout, and batch normalisation by the minibatch.

        Args:
            pictures: [B, P].
            drop: leaves out some of what a layer says; the second argument is the layer's number.

        Returns:
            [B, F], and these layers with their running statistics moved on.
        """
        activate, _ = ACTIVATIONS[self.activation]
        x, norms = self.picture.channels_last(pictures), []
        for layer, (weights, bias) in enumerate(zip(self.filters, self.biases, strict=True)):
            x = convolve(x, weights, self.strides[layer]) + bias
            if self.norms:
                x, norm = self.norms[layer].train(x)
                norms.append(norm)
            x = drop(activate(x), layer)
        return x.reshape(len(x), -1), eqx.tree_at(lambda own: own.norms, self, norms)


def convolve(
    x: Shaped[Array, "batch height width inputs"],
    weights: Float[Array, "window window inputs outputs"],
    stride: int,
) -> Float[Array, "batch out_height out_width outputs"]:
    """A convolution without padding; of bytes as if each were a 255th.

    Note: on a CPU, XLA's own is 10 times slower within a loop, such as a scan over minibatches.
    Products of matrices are as quick there as elsewhere; outside of loops XLA's own is quicker.
    """
    if x.dtype == jnp.uint8:
        weights = weights / 255
    if _is_outside_loops.get() or jax.default_backend() != "cpu":
        return jax.lax.conv_general_dilated(
            x.astype(jnp.float32),
            weights,
            (stride, stride),
            "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
    is_tiled = stride > 1 and len(weights) % stride == 0
    return _by_tiles(x, weights, stride) if is_tiled else _by_patches(x, weights, stride)


def _by_patches(x: Array, weights: Array, stride: int) -> Array:
    """What each filter looks at, side by side, times the filters: one large product."""
    batch, height, width, _ = x.shape
    window, outputs = len(weights), weights.shape[-1]
    rows, columns = (1 + (size - window) // stride for size in (height, width))
    parts = [
        x[:, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
        for i in range(window)
        for j in range(window)
    ]
    patches = jnp.concatenate(parts, axis=-1).astype(jnp.float32)
    product = patches.reshape(batch * rows * columns, -1) @ weights.reshape(-1, outputs)
    return product.reshape(batch, rows, columns, outputs)


def _by_tiles(x: Array, weights: Array, stride: int) -> Array:
    """The picture in tiles as large as the stride, each times its part of every filter.

    A filter covers k x k tiles. What it says is the sum of what its parts say of them, so nothing
    that it looks at is copied k * k times, as patches are.
    """
    batch, height, width, inputs = x.shape
    window, outputs = len(weights), weights.shape[-1]
    k = window // stride
    rows, columns = (1 + (size - window) // stride for size in (height, width))
    high, wide = rows - 1 + k, columns - 1 + k
    x = x[:, : high * stride, : wide * stride]
    x = x.reshape(batch, high, stride, wide, stride, inputs).transpose(0, 1, 3, 2, 4, 5)
    tiles = x.reshape(batch * high * wide, -1).astype(jnp.float32)
    parts = weights.reshape(k, stride, k, stride, inputs, outputs).transpose(1, 3, 4, 0, 2, 5)
    said = (tiles @ parts.reshape(tiles.shape[1], -1)).reshape(batch, high, wide, k, k, outputs)
    return sum(said[:, i : i + rows, j : j + columns, i, j] for i in range(k) for j in range(k))  # pyright: ignore[reportReturnType]
