"""Pictures as observations: which there are, and which convolutions see them."""

from typing import Literal, NamedTuple

import gymnasium as gym
import numpy as np

from rl_teacher.nn.image_layout import MAX_CHANNELS, ImageLayout

LEAST_FOR_WIDE_FILTERS = 44
"""Pixels, at least, of the shorter side of a picture that filters of 8 pixels and more look at."""
LEAST_FOR_STRIDES = 20
"""The same of filters of 4 pixels that move by 2."""
LEAST_PIXELS = 8
"""Of the shorter side; smaller ones are seen as so many numbers."""


class ImageBox(gym.spaces.Box):
    """A space of uint8 images that declares which axis holds the channels."""

    def __init__(self, layout: ImageLayout) -> None:
        super().__init__(0, 255, layout.shape, np.uint8)
        self.layout = layout


def image_layout_of(space: gym.Space) -> ImageLayout | None:
    """Return the layout of a space of images; None for any other space.

    An `ImageBox` declares its layout; that of a plain uint8 Box is guessed. Images smaller than
    8 pixels, for which no convolution is planned, are treated as vectors.
    """
    shape = space.shape or ()
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.uint8:
        return None
    if isinstance(space, ImageBox):
        layout = space.layout
    elif len(shape) in (2, 3):
        layout = ImageLayout.guess(shape)
        if layout.num_channels > MAX_CHANNELS:
            return None
    else:
        return None
    return layout if min(layout.size) >= LEAST_PIXELS else None


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
PredictorNetwork = Literal["auto", "keypoints", "profiles", "small", "paper"]
"""A reward predictor that is told what fixed filters find: where it is, how much of it each line
holds, or what predicts labels better; or one that learns to see."""
PREDICTORS: dict[PredictorNetwork, Plan] = {
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
"""What those that learn to see see with; "paper" is that of Christiano et al. 2017, A.2."""


def plan_for(picture: ImageLayout, plan: Plan) -> Plan:
    """The layers for a picture; small ones get small filters."""
    if min(picture.size) >= LEAST_FOR_WIDE_FILTERS:
        return plan
    is_tiny = min(picture.size) < LEAST_FOR_STRIDES
    return plan._replace(convolutions=_TINY_PICTURES if is_tiny else _SMALL_PICTURES)


def filters_for(picture: ImageLayout) -> Convolution:
    """The fixed filters that tell where something is; their width is so many strides."""
    if min(picture.size) >= LEAST_FOR_WIDE_FILTERS:
        return Convolution(8, 8, 4)
    is_tiny = min(picture.size) < LEAST_FOR_STRIDES
    return Convolution(8, 3, 1) if is_tiny else Convolution(8, 4, 2)


def seen_by(plan: Plan, picture: ImageLayout) -> int:
    """Numbers that are told of what the last convolution says of a picture."""
    height, width = picture.size
    for _, filter_width, stride in plan.convolutions:
        height = (height - filter_width) // stride + 1
        width = (width - filter_width) // stride + 1
    return height * width * plan.convolutions[-1].filters
