"""Options of `rl-teacher play`, apart from the command so that its help loads fast."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from rl_teacher.common.errors import BadInput
from rl_teacher.common.paths import user_path
from rl_teacher.config.fields import MAX_SEED, STRICT, Port, short

MAX_EPISODES = 100
"""All episodes stay in memory so that each can be watched again."""
VIDEO_ENDINGS = (".mp4", ".gif")


@dataclass(frozen=True, config=STRICT)
class PlayOptions:
    """Options of `rl-teacher play`."""

    name: str
    """name of the experiment"""
    step: str = "latest"
    """agent to play: latest, or the one nearest to a step"""
    compare: str | None = None
    """second experiment of the same environment, shown side by side"""
    compare_step: str = "latest"
    """agent of the second experiment, as for --step"""
    episodes: Annotated[int, Field(ge=1, le=MAX_EPISODES)] = 3
    """number of episodes"""
    seed: Annotated[int, short("-s"), Field(ge=0, le=MAX_SEED - MAX_EPISODES)] = 1
    """seed of the first episode; each later one adds 1, and --compare uses the same seeds"""
    explore: bool = False
    """sample actions as in training instead of taking the most likely ones"""
    predictor_path: str | None = None
    """reward predictor to show instead of the agent's own: name of an experiment, or a folder"""
    video: Path | None = None
    """write a video to this .mp4 or .gif file instead of opening the page; needs no display"""
    host: str = "127.0.0.1"
    """address of the page; 0.0.0.0 listens on every network of this machine"""
    port: Port = 8765
    """port of the page; the next free one if it is taken; 0: any"""
    no_browser: bool = False
    """print the link to the page without opening a browser"""


def validate(options: PlayOptions) -> None:
    """Validate options before anything is loaded.

    Raises:
        BadInput: the video has an unknown extension, or its folder does not exist.
    """
    if options.video is None:
        return
    path = user_path(options.video)
    if path.suffix.lower() not in VIDEO_ENDINGS:
        raise BadInput(
            f"--video {path} was given; a file that ends with {' or '.join(VIDEO_ENDINGS)} is "
            "needed."
        )
    if not path.parent.is_dir():
        raise BadInput(f"--video {path} was given, but there is no folder {path.parent}. Make it.")
