"""Preprocessing of image observations, for agents and predictors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_STACKED = 64
MAX_SIZE = 4096


@dataclass(frozen=True)
class FrameSettings:
    """Resizing, greyscale conversion and stacking of frames.

    The result is [C, H, W] uint8: the latest frames, the newest last, with one channel per frame
    when grey and all channels otherwise.

    Attributes:
        stacked: frames per observation; 0 is the same as 1.
        size: height and width in pixels that larger frames are resized to; 0: no resizing.
        grey: convert frames to one channel.
    """

    stacked: int = 4
    size: int = 42
    grey: bool = True

    @staticmethod
    def saved_in(config: Mapping[str, Any]) -> "FrameSettings":
        """Read the settings from a saved experiment; missing ones have their defaults."""
        default = FrameSettings()
        return FrameSettings(
            stacked=config.get("stacked_frames", default.stacked),
            size=config.get("frame_size", default.size),
            grey=not config.get("colour", not default.grey),
        )
