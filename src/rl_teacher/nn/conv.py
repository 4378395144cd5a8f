"""Convolutional networks of agents and reward predictors for images, in JAX.

B: batch, P: bytes of an image, H, W: its height and width, I, O: channels in and out.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped, UInt8

from rl_teacher.nn.encoders import AGENT_CNNS, NetworkSize, Plan, num_conv_features, plan_for
from rl_teacher.nn.image_layout import FLOAT_BYTES, ImageLayout, num_tiles
from rl_teacher.nn.mlp import ACTIVATIONS, orthogonal

BATCH_NORM_MOMENTUM = 0.1
"""Weight of a minibatch in the running statistics of batch normalisation."""
BATCH_NORM_EPSILON = 1e-3
MIN_PIXEL_STD = 0.05
"""Smallest divisor of pixels from 0 to 1; in Atari, their standard deviation is 0.03 to 0.05."""
BLOCK_IMAGES = 8
"""Images that are encoded together on a CPU: the activations of more do not fit into the caches."""


@jax.jit
def apply_jitted(network, images):  # noqa: ANN001, ANN201
    """Apply a network to a batch of images in one compiled call."""
    return network(images)


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
        """Normalise by the running statistics."""
        return self._normalise(x, self.mean, self.variance)

    def train(
        self, x: Float[Array, "batch *place channel"], is_real: Bool[Array, " batch"]
    ) -> tuple[Float[Array, "batch *place channel"], "BatchNorm"]:
        """Normalise by the statistics of the minibatch; also return the updated layer.

        Args:
            x: activations.
            is_real: [B] False for padding, which does not count.
        """
        places = tuple(range(1, x.ndim - 1))
        weights = (is_real / jnp.maximum(is_real.sum(), 1))[:, None]
        mean = (weights * x.mean(places)).sum(0)
        variance = (weights * jnp.square(x - mean).mean(places)).sum(0)
        # running <- (1 - momentum) * running + momentum * batch
        updated = [
            jax.lax.stop_gradient((1 - BATCH_NORM_MOMENTUM) * running + BATCH_NORM_MOMENTUM * batch)
            for running, batch in ((self.mean, mean), (self.variance, variance))
        ]
        layer = eqx.tree_at(lambda norm: (norm.mean, norm.variance), self, updated)
        return self._normalise(x, mean, variance), layer

    def _normalise(self, x: Array, mean: Array, variance: Array) -> Array:
        return (x - mean) * jax.lax.rsqrt(variance + BATCH_NORM_EPSILON) * self.scale + self.shift


class Convolutions(eqx.Module):
    """Convolutional layers without padding, on images given as bytes.

    Attributes:
        filters: filters of each layer, [width, width, I, O].
        biases: bias of each layer, [O]; of the first also [rows, columns, O].
        norms: batch normalisation of each layer, or empty.
        strides: stride of each layer.
        layout: layout of the images.
        activation: activation after each layer.
    """

    filters: list[Float[Array, "... inputs outputs"]]
    biases: list[Float[Array, "... outputs"]]
    norms: list[BatchNorm]
    strides: tuple[int, ...] = eqx.field(static=True)
    layout: ImageLayout = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        layout: ImageLayout,
        plan: Plan,
        activation: Literal["relu", "leaky_relu"],
        rng: np.random.Generator,
        *,
        batch_norm: bool = False,
    ) -> None:
        """Initialise filters orthogonally with gain sqrt(2), biases with 0."""
        self.layout, self.activation = layout, activation
        self.filters, self.biases, self.norms = [], [], []
        inputs = layout.num_channels
        for outputs, width, _ in plan.convolutions:
            matrix = 2**0.5 * orthogonal((width * width * inputs, outputs), rng)
            self.filters.append(jnp.asarray(matrix.reshape(width, width, inputs, outputs)))
            self.biases.append(jnp.asarray(np.zeros(outputs, np.float32)))
            if batch_norm:
                self.norms.append(BatchNorm(outputs))
            inputs = outputs
        self.strides = tuple(layer.stride for layer in plan.convolutions)

    def __call__(self, images: Shaped[Array, "batch byte"]) -> Float[Array, "batch feature"]:
        """Compute [B, F] the flat output of the last layer."""

        def encode(images: Array) -> Array:
            x = self.layout.channels_last(images)
            return self._from_first_layer(convolve(x, self.filters[0], self.strides[0]))

        return map_blocks(encode, images)

    def encode_tiles(self, tiles: Shaped[Array, "batch byte"]) -> Float[Array, "batch feature"]:
        """Compute the same for images in the order of tiles, which the first layer needs.

        Args:
            tiles: [B, P'] from `ImageLayout.to_tiles`, with tiles as wide as the stride of the
                first layer, which must divide the width of its filters.
        """
        stride, window = self.strides[0], len(self.filters[0])
        is_channels_first = self.layout.channel_axis == 0

        def encode(tiles: Array) -> Array:
            size = (num_tiles(pixels, stride, window) for pixels in self.layout.size)
            parts = split_filters(self.filters[0], stride, channels_first=is_channels_first)
            x = tiles.reshape(len(tiles), *size, parts.shape[2])
            return self._from_first_layer(convolve_tiles(x, parts))

        return map_blocks(encode, tiles)

    def _from_first_layer(self, x: Array) -> Array:
        """Compute [B, F] from the output of the first layer's filters."""
        activate = ACTIVATIONS[self.activation]
        for layer, bias in enumerate(self.biases):
            if layer > 0:
                x = convolve(x, self.filters[layer], self.strides[layer])
            x = x + bias
            if self.norms:
                x = self.norms[layer](x)
            x = activate(x)
        return x.reshape(len(x), -1)

    def train(
        self,
        images: Shaped[Array, "batch byte"],
        is_real: Bool[Array, " batch"],
        dropout: Callable[[Array, int], Array],
    ) -> tuple[Float[Array, "batch feature"], "Convolutions"]:
        """Compute the output in training mode, with dropout and minibatch statistics.

        Args:
            images: [B, P].
            is_real: [B] False for padding, which does not count for the statistics.
            dropout: (activations, number of the layer) -> activations.

        Returns:
            [B, F], and the layers with updated running statistics.
        """
        activate = ACTIVATIONS[self.activation]
        x, norms = self.layout.channels_last(images), []
        for layer, (weights, bias) in enumerate(zip(self.filters, self.biases, strict=True)):
            x = convolve(x, weights, self.strides[layer]) + bias
            if self.norms:
                x, norm = self.norms[layer].train(x, is_real)
                norms.append(norm)
            x = dropout(activate(x), layer)
        return x.reshape(len(x), -1), eqx.tree_at(lambda own: own.norms, self, norms)


class Identity(eqx.Module):
    """The encoder of vector observations."""

    def __call__(self, observations: Float[Array, "*batch features"]) -> Array:
        """Return the observations."""
        return observations


class ImageEncoder(eqx.Module):
    """Convolutions and one dense layer, shared by policy and value function.

    Pixels are standardised, except with "paper": most of a game's image is a background that never
    changes, and what matters is faint. With the true reward, Pong returned -17.8 after 106,000
    steps, and -20.9, as random play does, with raw pixels (one run each).

    The vector observed with an image is a further input of the dense layer, after the S outputs of
    the convolutions: in a layer without a nonlinearity after it, it could not change what the image
    means.

    Attributes:
        convolutions: convolutional layers.
        weights: [S + V, F] weight matrix of the dense layer.
        bias: [F] bias of the dense layer.
        mean: [P] mean of each pixel, from 0 to 1, which is subtracted; None: raw pixels.
        scale: factor of the differences.
    """

    convolutions: Convolutions
    weights: Float[Array, "inputs features"]
    bias: Float[Array, " features"]
    mean: Float[Array, " byte"] | None
    scale: Float[Array, ""]

    def __init__(self, layout: ImageLayout, size: NetworkSize, rng: np.random.Generator) -> None:
        """Initialise weights orthogonally with gain sqrt(2), biases with 0."""
        plan = plan_for(layout, AGENT_CNNS[size])
        self.convolutions = Convolutions(layout, plan, "relu", rng)
        num_inputs = num_conv_features(plan, layout) + layout.vector_size
        dense = 2**0.5 * orthogonal((num_inputs, plan.dense), rng)
        self.weights = jnp.asarray(dense)
        self.bias = jnp.asarray(np.zeros(plan.dense, np.float32))
        is_raw = size == "paper"
        self.mean = None if is_raw else jnp.asarray(np.zeros(layout.num_bytes, np.float32))
        self.scale = jnp.asarray(np.float32(1))

    @property
    def needs_images(self) -> bool:
        """True if pixels will be standardised, but are not yet."""
        return self.mean is not None and not np.any(self.mean)

    def standardised_by(self, images: UInt8[np.ndarray, "batch byte"]) -> "ImageEncoder":
        """Return an encoder that standardises pixels by the statistics of some images.

        The standard deviation is one number, over all pixels: for each pixel, those that hardly
        ever change would become the largest.
        """
        pixels = images / np.float32(255)
        mean = pixels.mean(axis=0)
        std = max(np.sqrt(np.square(pixels - mean).mean()), MIN_PIXEL_STD)
        statistics = jnp.asarray(mean), jnp.asarray(np.float32(1 / std))
        return eqx.tree_at(lambda own: (own.mean, own.scale), self, statistics)

    def standardised_layers(self) -> Convolutions:
        """Return the convolutions of raw pixels, with standardisation in the first layer."""
        layers = self.convolutions
        if self.mean is None:
            return layers
        mean, scale = jax.lax.stop_gradient((self.mean, self.scale))
        # f * (s (x - m)) = (s f) * x - (s f) * m, a bias [rows, columns, O] of the first layer
        filters = layers.filters[0] * scale
        shift = convolve(layers.layout.channels_last(mean[None]), filters, layers.strides[0])[0]
        return eqx.tree_at(
            lambda own: (own.filters[0], own.biases[0]), layers, (filters, layers.biases[0] - shift)
        )

    def to_tiles(self, images: UInt8[np.ndarray, "batch byte"]) -> UInt8[np.ndarray, "batch _"]:
        """Reorder images for `__call__`."""
        layers = self.convolutions
        return layers.layout.to_tiles(images, layers.strides[0], len(layers.filters[0]))

    def __call__(self, tiles: Shaped[Array, "*batch byte"]) -> Float[Array, "*batch features"]:
        """Compute the features of images in the order of tiles, with normalised vectors."""
        rows = tiles.reshape(-1, tiles.shape[-1])
        end = rows.shape[1] - FLOAT_BYTES * self.convolutions.layout.vector_size
        encoded = self.standardised_layers().encode_tiles(rows[:, :end])
        encoded = jnp.concatenate([encoded, bytes_to_floats(rows[:, end:])], axis=1)
        features = jax.nn.relu(encoded @ self.weights + self.bias)
        return features.reshape(*tiles.shape[:-1], -1)

    def features(self, images: UInt8[np.ndarray, "batch ..."]) -> Float[np.ndarray, "batch _"]:
        """Compute the features of images in one compiled call, for acting."""
        return np.asarray(apply_jitted(self, self.to_tiles(images.reshape(len(images), -1))))


Encoder = Identity | ImageEncoder


def bytes_to_floats(x: UInt8[Array, "*batch byte"]) -> Float[Array, "*batch number"]:
    """Read bytes as float32 numbers; their order is equal, since both run on one machine."""
    shape = *x.shape[:-1], x.shape[-1] // FLOAT_BYTES, FLOAT_BYTES
    return jax.lax.bitcast_convert_type(x.reshape(shape), jnp.float32)


def map_blocks(
    f: Callable[[Array], Array], rows: Shaped[Array, "batch byte"]
) -> Float[Array, "batch feature"]:
    """Compute [B, F] a function of each row, on a CPU in blocks of a few rows."""
    num = len(rows)
    if num <= BLOCK_IMAGES or not _is_cpu():
        return f(rows)
    # A loop over equal blocks is one program for any number of rows; the last block is padded.
    padded = jnp.pad(rows, ((0, -num % BLOCK_IMAGES), (0, 0)))
    outputs = jax.lax.map(f, padded.reshape(-1, BLOCK_IMAGES, rows.shape[-1]))
    return outputs.reshape(len(padded), -1)[:num]


def convolve(
    x: Shaped[Array, "batch height width inputs"],
    weights: Float[Array, "window window inputs outputs"],
    stride: int,
) -> Float[Array, "batch out_height out_width outputs"]:
    """Compute a convolution without padding; bytes are divided by 255.

    On a CPU, XLA's own convolution is 10 times slower inside a loop, such as one over minibatches
    or blocks of images. Matrix products are equally fast everywhere: two epochs of PPO on 512
    images of Pong take 0.30 s of processor time instead of 3.42 s, and 8 gradient steps of the
    small CNN of a predictor on 64 images each 0.10 s instead of 0.86 s.
    """
    # If the stride divides the width of the filters, every pixel belongs to exactly one tile, and
    # nothing is copied.
    if stride > 1 and len(weights) % stride == 0:
        return convolve_tiles(to_tiles(x, stride, len(weights)), split_filters(weights, stride))
    if x.dtype == jnp.uint8:
        # Scaling the few weights is the same as scaling all pixels, at less cost.
        weights = weights / 255
    return (_convolve_patches if _is_cpu() else _xla_convolution)(x, weights, stride)


def _is_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _xla_convolution(x: Array, weights: Array, stride: int) -> Array:
    layout = ("NHWC", "HWIO", "NHWC")
    x, strides = x.astype(jnp.float32), (stride, stride)
    return jax.lax.conv_general_dilated(x, weights, strides, "VALID", dimension_numbers=layout)


def _convolve_patches(x: Array, weights: Array, stride: int) -> Array:
    """Compute a convolution as one product of all patches with the filters (im2col)."""
    batch, height, width, _ = x.shape
    window, outputs = len(weights), weights.shape[-1]
    rows, columns = (1 + (size - window) // stride for size in (height, width))
    # [B, rows, columns, I] each: pixel (i, j) of every window.
    parts = [
        x[:, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
        for i in range(window)
        for j in range(window)
    ]
    patches = jnp.concatenate(parts, axis=-1).astype(jnp.float32)
    product = patches.reshape(batch * rows * columns, -1) @ weights.reshape(-1, outputs)
    return product.reshape(batch, rows, columns, outputs)


# --- convolution of tiles: images cut into squares as wide as the stride ---


def to_tiles(x: Array, stride: int, window: int) -> Shaped[Array, "batch rows columns tile"]:
    """Cut [B, H, W, I] into the tiles that some filter covers, with the channels last in each."""
    batch, *size, inputs = x.shape
    rows, columns = (num_tiles(pixels, stride, window) for pixels in size)
    # [B, H, W, I] -> [B, rows, columns, stride * stride * I]
    x = x[:, : rows * stride, : columns * stride]
    x = x.reshape(batch, rows, stride, columns, stride, inputs).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(batch, rows, columns, stride * stride * inputs)


def split_filters(
    weights: Float[Array, "window window inputs outputs"],
    stride: int,
    *,
    channels_first: bool = False,
) -> Float[Array, "across across tile outputs"]:
    """Split filters into parts, one for each tile that they cover.

    Args:
        weights: the filters, whose width is a multiple of the stride.
        stride: width of a tile.
        channels_first: whether the channels come first within a tile.
    """
    window, _, inputs, outputs = weights.shape
    across = window // stride
    # [k s, k s, I, O] -> [k, k, s s I, O], for k x k tiles of s x s pixels
    parts = weights.reshape(across, stride, across, stride, inputs, outputs)
    order = (0, 2, 4, 1, 3, 5) if channels_first else (0, 2, 1, 3, 4, 5)
    return parts.transpose(order).reshape(across, across, stride * stride * inputs, outputs)


def convolve_tiles(
    tiles: Shaped[Array, "batch rows columns tile"],
    parts: Float[Array, "across across tile outputs"],
) -> Float[Array, "batch out_rows out_columns outputs"]:
    """Compute a convolution whose stride is one tile; bytes are divided by 255."""
    if tiles.dtype == jnp.uint8:
        parts = parts / 255
    return _convolve_tiles(tiles, parts) if _is_cpu() else _xla_convolution(tiles, parts, 1)


@jax.custom_vjp
def _convolve_tiles(tiles, parts):  # noqa: ANN001, ANN202
    """Multiply each tile with all parts of the filters, and sum the parts of each filter.

    Equals `_xla_convolution` with stride 1. Unlike im2col, this copies no pixels. The gradient is
    defined explicitly, as two more products: XLA's derivative takes 0.41 s instead of 0.30 s in the
    update of `convolve`, and 0.14 s instead of 0.10 s in the fit.
    """
    # The barriers keep XLA from recomputing a sum wherever it is used.
    across, _, size, outputs = parts.shape
    batch, rows, columns, _ = tiles.shape
    flat = jax.lax.optimization_barrier(tiles.astype(jnp.float32)).reshape(-1, size)
    products = jax.lax.optimization_barrier(flat @ _merge_filter_parts(parts))
    products = products.reshape(batch, rows, columns, across, across, outputs)
    # y[r, c] = sum_ij tile[r + i, c + j] @ part[i, j]
    high, wide = rows - across + 1, columns - across + 1
    offsets = [(i, j) for i in range(across) for j in range(across)]
    return jax.lax.optimization_barrier(
        sum(products[:, i : i + high, j : j + wide, i, j] for i, j in offsets)
    )


def _merge_filter_parts(parts: Array) -> Array:
    """Reshape [k, k, I, O] to [I, k * k * O]."""
    return parts.transpose(2, 0, 1, 3).reshape(parts.shape[2], -1)


def _convolve_tiles_backward(
    residuals: tuple[Array, Array], gradient: Array
) -> tuple[Array | None, Array]:
    """Compute the gradients; those of bytes are None."""
    tiles, parts = residuals
    across, _, size, outputs = parts.shape
    flat = jax.lax.optimization_barrier(tiles.astype(jnp.float32)).reshape(-1, size)
    # With the outputs first, the products below access memory in the fastest order.
    batch, rows, columns, _ = tiles.shape
    rest = across - 1
    output_gradient = jax.lax.optimization_barrier(gradient.transpose(3, 0, 1, 2))
    output_gradient = jnp.pad(output_gradient, ((0, 0), (0, 0), (0, rest), (0, rest)))
    output_gradient = jax.lax.optimization_barrier(
        output_gradient.reshape(outputs, batch * rows * columns)
    )
    # Part (i, j) of a filter covers the tile that is i rows and j columns further on. The values
    # that `roll` wraps around are 0, since no filter starts in the last rows and columns.
    offsets = [i * columns + j for i in range(across) for j in range(across)]
    products_gradient = jnp.concatenate(
        [jnp.roll(output_gradient, offset, axis=1) for offset in offsets]
    )
    products_gradient = jax.lax.optimization_barrier(products_gradient)
    parts_gradient = jax.lax.optimization_barrier(products_gradient @ flat)
    parts_gradient = parts_gradient.reshape(across, across, outputs, size).transpose(0, 1, 3, 2)
    if tiles.dtype == jnp.uint8:
        return None, parts_gradient
    return (products_gradient.T @ _merge_filter_parts(parts).T).reshape(tiles.shape), parts_gradient


_convolve_tiles.defvjp(
    lambda tiles, parts: (_convolve_tiles(tiles, parts), (tiles, parts)), _convolve_tiles_backward
)
