"""How the bytes of pictures lie in an observation. It needs NumPy alone.

H, W: pixels of height and width, C: channels, P = H * W * C bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class PictureShape:
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
