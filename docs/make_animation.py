"""Render docs/images/taught.gif: an untrained agent next to one after 300 labels.

    python docs/make_animation.py

It trains both agents if the experiments do not exist yet (a few minutes on two cores) and films
them with `rl-teacher play --compare --video`. No display is needed.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ANIMATION = Path(__file__).with_name("images") / "taught.gif"
RUNS = {"before": "2048", "after": "600000"}
"""Environment steps of each experiment, by name."""
WIDTH, FRAME_MS, NUM_COLOURS = 560, 100, 32


def rl_teacher(*arguments: str) -> None:
    """Run the command line; raise CalledProcessError if it fails."""
    subprocess.run([sys.executable, "-m", "rl_teacher", *arguments], check=True)  # noqa: S603


def shrink(film: Path) -> list[Image.Image]:
    """Return every other frame of a 20 Hz film, reduced in width and colours."""
    with Image.open(film) as frames:
        kept = []
        for number in range(0, getattr(frames, "n_frames", 1), 2):
            frames.seek(number)
            height = round(frames.height * WIDTH / frames.width)
            small = frames.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
            # One palette for all frames keeps the background equal, so that it compresses.
            palette = kept[0] if kept else small.quantize(NUM_COLOURS)
            kept.append(small.quantize(palette=palette, dither=Image.Dither.NONE))
    return kept


def main() -> None:
    """Train, film and write the animation."""
    for name, steps in RUNS.items():
        rl_teacher(
            *("teach", "-p", "synth", "-e", "ShortHopper-v1", "-l", "300"),
            *("-t", steps, "-n", name, "--no-tensorboard"),
        )
    with TemporaryDirectory() as folder:
        film = Path(folder) / "film.gif"
        before, after = RUNS
        rl_teacher("play", before, "--compare", after, "--episodes", "1", "--video", str(film))
        first, *others = shrink(film)
    first.save(
        ANIMATION, save_all=True, append_images=others, duration=FRAME_MS, loop=0, optimize=True
    )


if __name__ == "__main__":
    main()
