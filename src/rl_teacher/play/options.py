"""Options of `rl-teacher play`, apart from the command so that its help loads fast."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from rl_teacher.common.errors import BadInput
from rl_teacher.common.paths import user_path
from rl_teacher.config.experiment import PageOptions
from rl_teacher.config.fields import MAX_SEED, STRICT, Count, short

MAX_EPISODES = 100
"""All episodes stay in memory so that each can be watched again."""
EPISODES = 10
"""Episodes over which the circus averages its measures; the first one is shown."""
VIDEO_ENDINGS = (".mp4", ".gif")


@dataclass(frozen=True, config=STRICT)
class PlayOptions(PageOptions):
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


@dataclass(frozen=True, config=STRICT)
class CircusOptions:
    """Options of `rl-teacher circus`."""

    out: Path = Path("circus")
    """folder for circus.html, circus.json and the videos"""
    steps: Count = 250_000
    """environment steps of training of each agent"""
    labels: Count = 400
    """labels of each taught agent"""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED - EPISODES)] = 1
    """seed of all agents, and of the first of the episodes that are measured"""
    video: bool = False
    """also write videos of each trick, as .gif and .mp4"""


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
