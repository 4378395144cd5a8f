"""How the bytes of pictures lie in an observation. It needs NumPy alone.

H, W: pixels of height and width, C: channels, P = H * W * C bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8


@dataclass(frozen=True)
class ImageLayout:
    """How the bytes of one picture, or of several stacked ones, lie in an observation.

    Attributes:
        shape: of an observation.
        channel_axis: where in it the channels are, or None where there is one, without an axis.
    """

    shape: tuple[int, ...]
    channel_axis: int | None

    @property
    def num_channels(self) -> int:
        """C."""
        return 1 if self.channel_axis is None else self.shape[self.channel_axis]

    @property
    def size(self) -> tuple[int, int]:
        """H and W."""
        height, width = (n for axis, n in enumerate(self.shape) if axis != self.channel_axis)
        return height, width

    @property
    def num_bytes(self) -> int:
        """P."""
        return int(np.prod(self.shape))

    def channels_last(self, pictures: Any) -> Any:
        """[B, H, W, C] of [B, P] bytes, NumPy's or JAX's."""
        shaped = pictures.reshape(-1, *self.shape)
        if self.channel_axis is None:
            return shaped[..., None]
        return shaped if self.channel_axis != 0 else shaped.transpose(0, 2, 3, 1)

    def in_tiles(
        self, pictures: UInt8[np.ndarray, "batch bytes"], side: int, window: int
    ) -> UInt8[np.ndarray, "batch bytes_of_tiles"]:
        """[B, P'] the same bytes tile by tile, as filters look at them that move by whole tiles.

        Each tile's bytes lie as a picture's do: its channels first, or last. What no filter reaches
        is left out.

        Args:
            pictures: [B, P].
            side: pixels of a tile, the filters' stride.
            window: the filters' width, a multiple of it.
        """
        rows, columns = (num_tiles(pixels, side, window) for pixels in self.size)
        x = pictures.reshape(-1, *self.shape)
        if self.channel_axis == 0:
            x = x[:, :, : rows * side, : columns * side]
            x = x.reshape(len(x), -1, rows, side, columns, side)
            order = (0, 2, 4, 1, 3)
        else:
            x = x[:, : rows * side, : columns * side]
            x = x.reshape(len(x), rows, side, columns, side * self.num_channels)
            order = (0, 1, 3, 2)
        # Note: a row of a tile is moved as one; byte by byte takes twice as long.
        whole_rows = x.view(f"V{x.shape[-1]}")[..., 0].transpose(order)
        return np.ascontiguousarray(whole_rows).view(np.uint8).reshape(len(x), -1)


def num_tiles(pixels: int, side: int, window: int) -> int:
    """Tiles along one axis of which some filter sees something."""
    return (pixels - window) // side + window // side
