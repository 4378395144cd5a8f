"""Convolutional layers, for agents and reward predictors that see pictures.

B: batch, P: bytes of a picture, H, W: its height and width, I, O: channels in and out.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from rl_teacher.nn.encoders import Plan
from rl_teacher.nn.image_layout import ImageLayout, num_tiles
from rl_teacher.nn.mlp import ACTIVATIONS, orthogonal

STATISTICS_SHARE = 0.1
"""Of a minibatch, in the running statistics of batch normalisation."""
LEAST_VARIANCE = 1e-3
SEEN_AT_ONCE = 8
"""Pictures that go through the layers at once on a CPU: what is said of more fits no cache."""


@jax.jit
def applied(network, pictures):  # noqa: ANN001, ANN201
    """What a network says of a batch of pictures, in one compiled call."""
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
    picture: ImageLayout = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        picture: ImageLayout,
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
        return some_at_once(self._of_pictures, pictures)

    def _of_pictures(self, pictures: Array) -> Array:
        x = self.picture.channels_last(pictures)
        return self._from_first(convolve(x, self.filters[0], self.strides[0]))

    def of_tiles(self, tiles: Shaped[Array, "batch byte"]) -> Float[Array, "batch feature"]:
        """The same of pictures that lie tile by tile, as the first layer looks at them.

        Args:
            tiles: [B, P'] by `ImageLayout.in_tiles`, as large as the first layer's stride, which
                divides its width.
        """
        return some_at_once(self._of_tiles, tiles)

    def _of_tiles(self, tiles: Array) -> Array:
        stride, window = self.strides[0], len(self.filters[0])
        size = (num_tiles(pixels, stride, window) for pixels in self.picture.size)
        parts = by_tiles(self.filters[0], stride, channels_first=self.picture.channel_axis == 0)
        return self._from_first(of_tiles(tiles.reshape(len(tiles), *size, parts.shape[2]), parts))

    def _from_first(self, said: Array) -> Array:
        """[B, F] of the last layer, from what the filters of the first one say."""
        activate, _ = ACTIVATIONS[self.activation]
        x = said
        for layer, bias in enumerate(self.biases):
            if layer > 0:
                x = convolve(x, self.filters[layer], self.strides[layer])
            x = x + bias
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


def some_at_once(
    f: Callable[[Array], Array], rows: Shaped[Array, "batch byte"]
) -> Float[Array, "batch feature"]:
    """[B, F] what a function says of each row, told few of them at a time where that is quicker."""
    num = len(rows)
    if num <= SEEN_AT_ONCE or not _is_cpu():
        return f(rows)
    padded = jnp.pad(rows, ((0, -num % SEEN_AT_ONCE), (0, 0)))
    said = jax.lax.map(f, padded.reshape(-1, SEEN_AT_ONCE, rows.shape[-1]))
    return said.reshape(len(padded), -1)[:num]


def convolve(
    x: Shaped[Array, "batch height width inputs"],
    weights: Float[Array, "window window inputs outputs"],
    stride: int,
) -> Float[Array, "batch out_height out_width outputs"]:
    """A convolution without padding; of bytes as if each were a 255th.

    Note: on a CPU, XLA's own is 10 times slower within a loop, such as one over minibatches or over
    few pictures at a time. Products of matrices are as quick there as elsewhere.
    """
    if stride > 1 and len(weights) % stride == 0:
        return of_tiles(in_tiles(x, stride, len(weights)), by_tiles(weights, stride))
    if x.dtype == jnp.uint8:
        weights = weights / 255
    return (_by_patches if _is_cpu() else _xlas_own)(x, weights, stride)


def _is_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _xlas_own(x: Array, weights: Array, stride: int) -> Array:
    layout = ("NHWC", "HWIO", "NHWC")
    x, strides = x.astype(jnp.float32), (stride, stride)
    return jax.lax.conv_general_dilated(x, weights, strides, "VALID", dimension_numbers=layout)


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


# --- by tiles: pictures cut into squares as large as the stride ---


def in_tiles(x: Array, stride: int, window: int) -> Shaped[Array, "batch rows columns tile"]:
    """[B, H, W, I] tile by tile, as far as some filter looks; in each the channels come last."""
    batch, *size, inputs = x.shape
    rows, columns = (num_tiles(pixels, stride, window) for pixels in size)
    x = x[:, : rows * stride, : columns * stride]
    x = x.reshape(batch, rows, stride, columns, stride, inputs).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(batch, rows, columns, stride * stride * inputs)


def by_tiles(
    weights: Float[Array, "window window inputs outputs"],
    stride: int,
    *,
    channels_first: bool = False,
) -> Float[Array, "across across tile outputs"]:
    """Filters in parts, each for one of the tiles that they cover.

    Args:
        weights: the filters, whose width is a multiple of the stride.
        stride: as wide is a tile.
        channels_first: how the numbers of a tile lie.
    """
    window, _, inputs, outputs = weights.shape
    across = window // stride
    parts = weights.reshape(across, stride, across, stride, inputs, outputs)
    order = (0, 2, 4, 1, 3, 5) if channels_first else (0, 2, 1, 3, 4, 5)
    return parts.transpose(order).reshape(across, across, stride * stride * inputs, outputs)


def of_tiles(
    tiles: Shaped[Array, "batch rows columns tile"],
    parts: Float[Array, "across across tile outputs"],
) -> Float[Array, "batch out_rows out_columns outputs"]:
    """What filters say that move by whole tiles; of bytes as if each were a 255th."""
    if tiles.dtype == jnp.uint8:
        parts = parts / 255
    return _of_tiles(tiles, parts) if _is_cpu() else _xlas_own(tiles, parts, 1)


@jax.custom_vjp
def _of_tiles(tiles, parts):  # noqa: ANN001, ANN202
    """Each tile times all parts of the filters; what a filter says is the sum of its parts.

    Nothing that a filter looks at is copied, as it is where patches are made. The gradients are
    written out, so that they are two more products.
    """
    # Note: the barriers keep XLA from working a sum out anew wherever it is used.
    across, _, size, outputs = parts.shape
    batch, rows, columns, _ = tiles.shape
    flat = jax.lax.optimization_barrier(tiles.astype(jnp.float32)).reshape(-1, size)
    said = jax.lax.optimization_barrier(flat @ _side_by_side(parts))
    said = said.reshape(batch, rows, columns, across, across, outputs)
    high, wide = rows - across + 1, columns - across + 1
    places = [(i, j) for i in range(across) for j in range(across)]
    return jax.lax.optimization_barrier(
        sum(said[:, i : i + high, j : j + wide, i, j] for i, j in places)
    )


def _side_by_side(parts: Array) -> Array:
    """[I, k * k * O] of [k, k, I, O]."""
    return parts.transpose(2, 0, 1, 3).reshape(parts.shape[2], -1)


def _of_tiles_forward(tiles: Array, parts: Array) -> tuple[Array, tuple[Array, Array]]:
    return _of_tiles(tiles, parts), (tiles, parts)


def _of_tiles_backward(seen: tuple[Array, Array], gradient: Array) -> tuple[Array | None, Array]:
    """The gradients; bytes have none."""
    tiles, parts = seen
    across, _, size, outputs = parts.shape
    flat = jax.lax.optimization_barrier(tiles.astype(jnp.float32)).reshape(-1, size)
    # Note: with the outputs in front, the products below take their quickest way through memory.
    batch, rows, columns, _ = tiles.shape
    rest = across - 1
    on_grid = jax.lax.optimization_barrier(gradient.transpose(3, 0, 1, 2))
    on_grid = jnp.pad(on_grid, ((0, 0), (0, 0), (0, rest), (0, rest)))
    on_grid = jax.lax.optimization_barrier(on_grid.reshape(outputs, batch * rows * columns))
    # The part i, j of a filter looks at the tile that is i rows and j tiles further on. What comes
    # around from the end is 0, since no filter begins in the last rows and columns.
    offsets = [i * columns + j for i in range(across) for j in range(across)]
    of_said = jnp.concatenate([jnp.roll(on_grid, offset, axis=1) for offset in offsets])
    of_said = jax.lax.optimization_barrier(of_said)
    of_parts = jax.lax.optimization_barrier(of_said @ flat)
    of_parts = of_parts.reshape(across, across, outputs, size).transpose(0, 1, 3, 2)
    if tiles.dtype == jnp.uint8:
        return None, of_parts
    return (of_said.T @ _side_by_side(parts).T).reshape(tiles.shape), of_parts


_of_tiles.defvjp(_of_tiles_forward, _of_tiles_backward)
