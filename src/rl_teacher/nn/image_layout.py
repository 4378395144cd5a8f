"""The layout of image observations. It needs NumPy only: exported agents load without Gymnasium.

B: batch, H, W: height and width in pixels, C: channels, P = H * W * C bytes.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Shaped, UInt8

FLOAT_BYTES = 4
MAX_CHANNELS = 16
"""A last axis longer than this counts pixels, not channels."""
MIN_PIXELS_WIDE_FILTERS = 44
"""Shorter side of the smallest image for filters of 7 pixels and more."""
MIN_PIXELS_STRIDES = 20
"""Shorter side of the smallest image for filters of 4 pixels with stride 2."""


class Convolution(NamedTuple):
    """One convolutional layer: number, width and stride of its square filters."""

    filters: int
    width: int
    stride: int


@dataclass(frozen=True)
class ImageLayout:
    """The axes of an image observation, which may be a stack of several images.

    With a vector, an observation is a row of bytes: those of the image, then those of V float32
    numbers. So whatever stores or copies images does the same with such rows.

    Attributes:
        shape: shape of the image.
        channel_axis: index of the channel axis; None where the image has one channel and no axis.
        vector_size: V, the size of the vector observed with the image; 0 without one.
    """

    shape: tuple[int, ...]
    channel_axis: int | None
    vector_size: int = 0

    @staticmethod
    def guess(shape: tuple[int, ...]) -> "ImageLayout":
        """Guess the channel axis of an image whose environment does not declare it.

        This is the only place that guesses. Everything this project preprocesses carries its layout
        with the observation space, see `nn.encoders.ImageBox`: a stack of 16 channels of 10x10
        pixels cannot be distinguished from a 16x10 image with 10 channels by its shape.

        Args:
            shape: [H, W], [H, W, C] or [C, H, W].
        """
        if len(shape) == 2:
            return ImageLayout(shape, None)
        first, middle, last = shape
        is_channel_last = last <= MAX_CHANNELS and last <= min(first, middle)
        return ImageLayout(shape, 2 if is_channel_last else 0)

    @property
    def num_channels(self) -> int:
        """Number of channels C."""
        return 1 if self.channel_axis is None else self.shape[self.channel_axis]

    @property
    def size(self) -> tuple[int, int]:
        """Height H and width W."""
        height, width = (n for axis, n in enumerate(self.shape) if axis != self.channel_axis)
        return height, width

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation: that of the image, or of a row."""
        if not self.vector_size:
            return self.shape
        return (self.num_bytes + FLOAT_BYTES * self.vector_size,)

    def join(
        self, images: UInt8[np.ndarray, "..."], vector: Shaped[np.ndarray, "*batch v"]
    ) -> UInt8[np.ndarray, "..."]:
        """Return observations [..., *observation_shape] of images and vectors [..., V]."""
        if not self.vector_size:
            return images
        flat = images.reshape(*vector.shape[:-1], self.num_bytes)
        vector = np.ascontiguousarray(vector, np.float32)
        return np.concatenate([flat, vector.view(np.uint8)], axis=-1)

    def channels_first(self, image: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "c h w"]:
        """Return a [C, H, W] view of the image of one observation."""
        image = image.reshape(-1)[: self.num_bytes].reshape(self.shape)
        if self.channel_axis is None:
            return image[None]
        return image if self.channel_axis == 0 else image.transpose(2, 0, 1)

    @property
    def num_bytes(self) -> int:
        """Number of bytes P."""
        return math.prod(self.shape)

    def channels_last(self, images: Any) -> Any:
        """Reshape [B, P] bytes to [B, H, W, C], in NumPy or JAX."""
        shaped = images.reshape(-1, *self.shape)
        if self.channel_axis is None:
            return shaped[..., None]
        return shaped if self.channel_axis != 0 else shaped.transpose(0, 2, 3, 1)

    def to_tiles(
        self, images: UInt8[np.ndarray, "batch bytes"], side: int, window: int
    ) -> UInt8[np.ndarray, "batch bytes_of_tiles"]:
        """Reorder bytes tile by tile, for a convolution whose stride is one tile.

        Within a tile, channels come first or last as in the image. Pixels that no filter covers are
        left out. The vector still follows.

        Args:
            images: [B, P], or rows with vectors.
            side: width of a tile, the stride of the filters.
            window: width of the filters, a multiple of `side`.

        Returns:
            [B, P'].
        """
        rows, columns = (num_tiles(pixels, side, window) for pixels in self.size)
        x = images[:, : self.num_bytes].reshape(-1, *self.shape)
        if self.channel_axis == 0:
            x = x[:, :, : rows * side, : columns * side]
            x = x.reshape(len(x), -1, rows, side, columns, side)
            order = (0, 2, 4, 1, 3)
        else:
            x = x[:, : rows * side, : columns * side]
            x = x.reshape(len(x), rows, side, columns, side * self.num_channels)
            order = (0, 1, 3, 2)
        # Whole rows of a tile are moved as one element; moving bytes takes twice as long.
        whole_rows = x.view(f"V{x.shape[-1]}")[..., 0].transpose(order)
        tiles = np.ascontiguousarray(whole_rows).view(np.uint8).reshape(len(x), -1)
        if not self.vector_size:
            return tiles
        return np.concatenate([tiles, images[:, self.num_bytes :]], axis=1)


def trailing_floats(
    rows: Shaped[np.ndarray, "*batch byte"], num: int
) -> Float32[np.ndarray, "*batch num"]:
    """Return the float32 numbers whose bytes are at the end of rows."""
    encoded = rows[..., rows.shape[-1] - FLOAT_BYTES * num :]
    return np.ascontiguousarray(encoded, np.uint8).view(np.float32)


def with_trailing_floats(
    rows: UInt8[np.ndarray, "*batch byte"], numbers: Float32[np.ndarray, "*batch num"]
) -> UInt8[np.ndarray, "*batch byte"]:
    """Return rows with other float32 numbers at their end; see `trailing_floats`."""
    end = rows.shape[-1] - FLOAT_BYTES * numbers.shape[-1]
    return np.concatenate([rows[..., :end], numbers.view(np.uint8)], axis=-1)


def num_tiles(pixels: int, side: int, window: int) -> int:
    """Return the number of tiles along one axis that some filter covers."""
    return (pixels - window) // side + window // side
