"""Render docs/images/taught.gif and atari.gif: agents before and after their labels.

    python docs/make_animation.py [taught] [atari]

It trains the agents whose experiments do not exist yet (taught: a few minutes on two cores, atari:
half an hour) and films them with `rl-teacher play --compare --video`. No display is needed.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image, ImageSequence

IMAGES = Path(__file__).with_name("images")
NUM_COLOURS = 32
RUNS = {"before": "2048", "after": "600000"}
"""Environment steps of each Hopper experiment, by name."""
HOPPER_WIDTH, HOPPER_FRAME_MS = 560, 100
GAMES = {
    "Pong": ("-l", "300", "-t", "800000"),
    "Enduro": (
        *("-l", "1000", "-t", "500000", "--teacher", "spectator"),
        *("--ppo.image-encoder", "small"),
    ),
    "Breakout": ("-l", "1000", "-t", "500000"),
}
"""Arguments of `rl-teacher teach`, by game."""
SCREEN = (328, 420)
"""Offset of the second screen in a video of two, and height of a screen above its curves."""
GAME_SIZE, GAME_FRAME_MS = (120, 157), 133
GAME_FRAMES = slice(120, 280, 2)
"""Frames of a video at 15 Hz that are shown: from second 8 on, every other one."""


def rl_teacher(*arguments: str) -> None:
    """Run the command line; raise CalledProcessError if it fails."""
    subprocess.run([sys.executable, "-m", "rl_teacher", *arguments], check=True)  # noqa: S603


def film(*arguments: str) -> list[Image.Image]:
    """Return the frames of `rl-teacher play ARGUMENTS`, at 20 Hz or the game's own speed."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "film.gif"
        rl_teacher("play", *arguments, "--episodes", "1", "--video", str(path))
        with Image.open(path) as frames:
            return [each.convert("RGB") for each in ImageSequence.Iterator(frames)]


def write(name: str, frames: Sequence[Image.Image], frame_ms: int) -> None:
    """Write an endless GIF with few colours."""
    # One palette for all frames keeps the background equal, so that it compresses.
    palette = frames[len(frames) // 2].quantize(NUM_COLOURS)
    first, *others = (each.quantize(palette=palette, dither=Image.Dither.NONE) for each in frames)
    path = IMAGES / name
    first.save(path, save_all=True, append_images=others, duration=frame_ms, loop=0, optimize=True)


def taught() -> None:
    """Film a Hopper before and after 300 labels."""
    for name, steps in RUNS.items():
        rl_teacher(
            *("teach", "-p", "synth", "-e", "ShortHopper-v1", "-l", "300"),
            *("-t", steps, "-n", name, "--no-tensorboard"),
        )
    before, after = RUNS
    frames = film(before, "--compare", after)[::2]
    size = HOPPER_WIDTH, round(frames[0].height * HOPPER_WIDTH / frames[0].width)
    smaller = [each.resize(size, Image.Resampling.LANCZOS) for each in frames]
    write("taught.gif", smaller, HOPPER_FRAME_MS)


def atari() -> None:
    """Film three games, each before and after its labels, next to each other."""
    films = []
    for game, arguments in GAMES.items():
        name = game.lower()
        rl_teacher(
            *("teach", "-p", "synth", "-e", f"{game}-v4", *arguments),
            *("-n", name, "--no-tensorboard"),
        )
        films.append(film(name, "--step", "0", "--compare", name)[GAME_FRAMES])
    write("atari.gif", [join(each) for each in zip(*films, strict=True)], GAME_FRAME_MS)


def join(videos: Sequence[Image.Image]) -> Image.Image:
    """Join the screens of some videos of two agents in one row."""
    width, height = GAME_SIZE
    joined = Image.new("RGB", (2 * width * len(videos), height))
    left, below = SCREEN
    for number, video in enumerate(videos):
        for second in (0, 1):
            screen = video.crop((second * left, 0, second * left + video.width - left, below))
            place = (2 * number + second) * width, 0
            joined.paste(screen.resize(GAME_SIZE, Image.Resampling.LANCZOS), place)
    return joined


ANIMATIONS = {"taught": taught, "atari": atari}


def main() -> None:
    """Render the animations whose names are given."""
    for name in sys.argv[1:] or ANIMATIONS:
        ANIMATIONS[name]()


if __name__ == "__main__":
    main()
