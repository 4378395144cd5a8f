"""Pictures as observations: how their bytes lie, and which convolutions see them.

H, W: pixels of height and width, C: channels, P = H * W * C bytes.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

MOST_CHANNELS = 16
"""An axis with more than so many entries counts pixels."""
LEAST_FOR_WIDE_FILTERS = 44
"""Pixels, at least, of the shorter side of a picture that filters of 8 pixels and more look at."""
LEAST_FOR_STRIDES = 20
"""The same of filters of 4 pixels that move by 2."""
LEAST_PIXELS = 8
"""Of the shorter side; smaller ones are seen as so many numbers."""


@dataclass(frozen=True)
class PictureShape:
    """How the bytes of one picture, or of several stacked ones, lie in an observation.

    Attributes:
        shape: of an observation.
        channel_axis: where in it the channels are, or None where there is one, without an axis.
    """

    shape: tuple[int, ...]
    channel_axis: int | None

    @staticmethod
    def of(space: gym.Space) -> "PictureShape | None":
        """That of an observation space; None where it shows no pictures.

        Pictures are uint8, of two axes, or of three with the channels first or last.
        """
        shape = space.shape or ()
        if not isinstance(space, gym.spaces.Box) or space.dtype != np.uint8:
            return None
        if len(shape) == 2:
            found = PictureShape(shape, None)
        elif len(shape) == 3 and min(shape[0], shape[2]) <= MOST_CHANNELS:
            found = PictureShape(shape, 2 if shape[2] <= shape[0] else 0)
        else:
            return None
        return found if min(found.size) >= LEAST_PIXELS else None

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


class Convolution(NamedTuple):
    """One convolutional layer: so many square filters, their width, and the stride."""

    filters: int
    width: int
    stride: int


class Plan(NamedTuple):
    """The layers that look at a picture.

    Attributes:
        convolutions: the first sees the picture.
        dense: units of the layer after them.
    """

    convolutions: tuple[Convolution, ...]
    dense: int


NetworkSize = Literal["small", "paper"]

_SMALL_PICTURES = (Convolution(8, 4, 2), Convolution(16, 3, 2))
_TINY_PICTURES = (Convolution(16, 3, 1), Convolution(16, 3, 2))
POLICIES: dict[NetworkSize, Plan] = {
    "small": Plan((Convolution(16, 8, 4), Convolution(32, 4, 2)), 256),
    "paper": Plan((Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)), 512),
}
"""What agents see with; "small" is that of Mnih et al. 2013, "paper" that of Mnih et al. 2015."""
PREDICTORS: dict[NetworkSize, Plan] = {
    "small": Plan((Convolution(8, 8, 4), Convolution(16, 4, 2)), 64),
    "paper": Plan(
        (
            Convolution(16, 7, 3),
            Convolution(16, 5, 2),
            Convolution(16, 3, 1),
            Convolution(16, 3, 1),
        ),
        64,
    ),
}
"""What the reward predictor sees with; "paper" is that of Christiano et al. 2017, A.2."""


def plan_for(picture: PictureShape, plans: dict[NetworkSize, Plan], size: NetworkSize) -> Plan:
    """The layers for a picture; small ones get small filters."""
    if min(picture.size) >= LEAST_FOR_WIDE_FILTERS:
        return plans[size]
    is_tiny = min(picture.size) < LEAST_FOR_STRIDES
    return plans[size]._replace(convolutions=_TINY_PICTURES if is_tiny else _SMALL_PICTURES)


def seen_by(plan: Plan, picture: PictureShape) -> int:
    """Numbers that the last convolution leaves of a picture."""
    height, width = picture.size
    for _, filter_width, stride in plan.convolutions:
        height = (height - filter_width) // stride + 1
        width = (width - filter_width) // stride + 1
    return height * width * plan.convolutions[-1].filters
