"""Detection of image observations, and the architectures of their encoders."""

from typing import Literal, NamedTuple

import gymnasium as gym
import numpy as np

from rl_teacher.nn.image_layout import (
    MAX_CHANNELS,
    MIN_PIXELS_STRIDES,
    MIN_PIXELS_WIDE_FILTERS,
    Convolution,
    ImageLayout,
)

MIN_PIXELS = 8
"""Shorter side of the smallest image; smaller observations are treated as vectors."""


class ImageBox(gym.spaces.Box):
    """A space of uint8 images, or of rows with vectors, that declares their layout."""

    def __init__(self, layout: ImageLayout) -> None:
        super().__init__(0, 255, layout.observation_shape, np.uint8)
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
    return layout if min(layout.size) >= MIN_PIXELS else None


class Plan(NamedTuple):
    """Layers of an image encoder.

    Attributes:
        convolutions: convolutional layers.
        dense: units of the dense layer after them.
    """

    convolutions: tuple[Convolution, ...]
    dense: int


NetworkSize = Literal["small", "paper"]
AgentEncoder = Literal["bands", NetworkSize]
"""Image encoder of an agent: bands of fixed random filters, or a learned CNN."""

_SMALL_IMAGE_LAYERS = (Convolution(8, 4, 2), Convolution(16, 3, 2))
_TINY_IMAGE_LAYERS = (Convolution(16, 3, 1), Convolution(16, 3, 2))
AGENT_CNNS: dict[NetworkSize, Plan] = {
    "small": Plan((Convolution(16, 8, 4), Convolution(32, 4, 2)), 256),
    "paper": Plan((Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)), 512),
}
"""Image encoders of agents: "small" is that of Mnih et al. 2013, on standardised pixels; "paper" is
that of Mnih et al. 2015."""
PredictorEncoder = Literal["auto", "keypoints", "profiles", "small", "paper"]
"""Image encoder of a reward predictor: keypoints or profiles of fixed random filters, whichever
fits the labels better ("auto"), or a learned CNN ("small", "paper")."""
PREDICTOR_CNNS: dict[PredictorEncoder, Plan] = {
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
"""CNNs of reward predictors; "paper" is that of Christiano et al. 2017, A.2. The other encoders are
random features, see `nn.random_features`."""


def plan_for(layout: ImageLayout, plan: Plan) -> Plan:
    """Adapt a plan to the size of images: small ones get small filters."""
    if min(layout.size) >= MIN_PIXELS_WIDE_FILTERS:
        return plan
    is_tiny = min(layout.size) < MIN_PIXELS_STRIDES
    return plan._replace(convolutions=_TINY_IMAGE_LAYERS if is_tiny else _SMALL_IMAGE_LAYERS)


def num_conv_features(plan: Plan, layout: ImageLayout) -> int:
    """Return the size of the flat output of the last convolution."""
    height, width = layout.size
    for _, filter_width, stride in plan.convolutions:
        height = (height - filter_width) // stride + 1
        width = (width - filter_width) // stride + 1
    return height * width * plan.convolutions[-1].filters
