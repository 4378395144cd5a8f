"""What `rl-teacher play` is told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from rl_teacher.common.errors import BadConfig, BadInput

MAX_EPISODES = 100
"""All of them stay in memory, so that each can be watched again."""
VIDEO_ENDINGS = (".mp4", ".gif")
MAX_SEED = 2**31 - 1


@dataclass(frozen=True)
class PlayOptions:
    """Whose agent is watched, and how."""

    name: tyro.conf.Positional[str]
    """of the experiment"""
    checkpoint: str = "latest"
    """which of the kept checkpoints: latest, previous, or the step that it was written at"""
    compare: str | None = None
    """another experiment of the same environment, whose agent is shown beside"""
    compare_checkpoint: str = "latest"
    """which of that one's checkpoints"""
    episodes: int = 3
    """how many are played, one after the other"""
    seed: Annotated[int, tyro.conf.arg(aliases=["-s"])] = 1
    """of the first episode's beginning; each one after has the next number. With --compare both
    agents begin alike"""
    explore: bool = False
    """draw actions as in training, in the place of the most likely ones"""
    predictor_path: str | None = None
    """show the rewards of this predictor, an experiment's name or a folder, in the place of the
    agent's own"""
    video: Path | None = None
    """write a video, .mp4 or .gif, and open no page; no display is needed"""
    host: str = "127.0.0.1"
    """address that the page is served at; 0.0.0.0 for every network this machine is in"""
    port: int = 8765
    """port of the page, or the next free one; 0 for any"""
    no_browser: bool = False
    """print the page's link, and open no browser"""


def validate(options: PlayOptions) -> None:
    """Refuse what cannot be meant, before anything is loaded.

    Raises:
        BadInput: says what was given, what is needed, what to do.
    """
    if not 1 <= options.episodes <= MAX_EPISODES:
        raise BadConfig(
            f"--episodes {options.episodes} was given; from 1 to {MAX_EPISODES} is possible."
        )
    if not 0 <= options.seed <= MAX_SEED - MAX_EPISODES:
        raise BadConfig(
            f"--seed {options.seed} was given; from 0 to {MAX_SEED - MAX_EPISODES} is possible."
        )
    if options.video is not None:
        check_video(options.video.expanduser())


def check_video(path: Path) -> None:
    """Refuse a place where no video can be written.

    Raises:
        BadInput: its ending is unknown, or its folder is not there.
    """
    if path.suffix.lower() not in VIDEO_ENDINGS:
        raise BadInput(
            f"--video {path} was given; a file that ends with {' or '.join(VIDEO_ENDINGS)} is "
            "needed."
        )
    if not _is_folder(path.parent):
        raise BadInput(
            f"--video {path} was given, but there is no folder {path.parent}. Make it, or name "
            "another place."
        )
    if _is_folder(path):
        raise BadInput(f"--video {path} was given, but that is a folder. Name a file.")


def _is_folder(path: Path) -> bool:
    """Whether it is one, as far as anybody here may know."""
    try:
        return path.is_dir()
    except OSError:
        return False
