"""Stacked images as they are sent between processes: each frame once.

T: steps, S: environments, C: channels of a stack, newest last, F: channels of a frame.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt8


@dataclass(frozen=True)
class FrameStacks:
    """[T, S, C, H, W] images, of which consecutive ones share all frames but the newest.

    Attributes:
        newest: [T, S, F, H, W] newest frames.
        times: [R] time steps of images that do not continue the stack of the previous step: the
            first ones, and those after the end of an episode.
        envs: [R] their environments.
        stacks: [R, C, H, W] these images.
    """

    newest: UInt8[np.ndarray, "time env frame height width"]
    times: Int[np.ndarray, " restart"]
    envs: Int[np.ndarray, " restart"]
    stacks: UInt8[np.ndarray, "restart channel height width"]

    @staticmethod
    def of(images: UInt8[np.ndarray, "time env channel height width"], frame: int) -> "FrameStacks":
        """Leave out what repeats.

        Args:
            images: [T, S, C, H, W].
            frame: channels of a frame, F.
        """
        restarts = [np.ones(images.shape[1], bool)]
        for previous, image in itertools.pairwise(images):
            differs = previous[:, frame:] != image[:, :-frame]
            restarts.append(differs.any(axis=(1, 2, 3)))
        times, envs = np.nonzero(restarts)
        newest = np.ascontiguousarray(images[:, :, -frame:])
        return FrameStacks(newest, times, envs, images[times, envs])

    def unpack(self, out: UInt8[np.ndarray, "time env channel height width"]) -> None:
        """Write the images into an array."""
        frame = self.newest.shape[2]
        out[:, :, -frame:] = self.newest
        bounds = np.searchsorted(self.times, np.arange(len(out) + 1))
        for t, image in enumerate(out):
            if t > 0:
                image[:, :-frame] = out[t - 1, :, frame:]
            restarts = slice(bounds[t], bounds[t + 1])
            image[self.envs[restarts]] = self.stacks[restarts]
