"""Which steps of a segment become frames of its clip."""

import math

import numpy as np
from jaxtyping import Int64

MAX_FPS = 30.0


def frame_steps(num_steps: int, fps: float) -> tuple[Int64[np.ndarray, " frame"], float]:
    """The steps that are shown: every k-th, so that at most 30 frames pass in a second.

    Args:
        num_steps: of the segment.
        fps: steps that a clip shows per second.

    Returns:
        [T] indices of steps, and frames per second.
    """
    every = max(1, math.ceil(fps / MAX_FPS))
    return np.arange(0, num_steps, every), fps / every
