"""What an agent and a predictor are shown of an environment that shows pictures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FrameSettings:
    """How pictures become observations: shrunk, grey, and stacked.

    An observation is then [C, H, W] uint8: the latest pictures, the newest last; of each picture
    one channel when grey, else all of them.

    Attributes:
        stacked: pictures seen together; 0 is as good as 1.
        size: pixels of height and width that larger pictures are shrunk to; 0: none is shrunk.
        grey: whether the colours become one channel.
    """

    stacked: int = 4
    size: int = 84
    grey: bool = True

    @staticmethod
    def saved_in(config: Mapping[str, Any]) -> "FrameSettings":
        """Those of an experiment, from its saved settings; what is not there has its default."""
        usual = FrameSettings()
        return FrameSettings(
            stacked=config.get("stacked_frames", usual.stacked),
            size=config.get("frame_size", usual.size),
            grey=not config.get("colour", not usual.grey),
        )
