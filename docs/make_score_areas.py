"""Draw the masked score areas of Atari games: `python docs/make_score_areas.py`.

Writes images/score-areas.png: for every game with score areas, the screen that a person sees with
the areas framed, next to the preprocessed observation of agent and predictor.
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.emulators import IN_COLOUR, Emulators
from rl_teacher.envs.atari.names import AtariGame, resolve_game
from rl_teacher.envs.atari.rules import SCORE_AREAS

IMAGE = Path(__file__).parent / "images" / "score-areas.png"
COLUMNS = 2
MARGIN, TITLE = 12, 22
SCALE = 2
HEIGHT = 210 * SCALE
SCREEN = 160 * SCALE, HEIGHT
OBSERVATION = 84 * 4, HEIGHT
CELL = SCREEN[0] + OBSERVATION[0] + 3 * MARGIN, HEIGHT + TITLE + MARGIN
PAPER, INK, FRAME = "white", "black", "#ff2bd6"
STEPS = 130
ALWAYS = {"Enduro": 1}
"""Actions for games in which random ones change little: FIRE accelerates."""


def play(game: AtariGame) -> tuple[np.ndarray, np.ndarray]:
    """Return the screen [210, 160, 3] and the observation [84, 84] after random actions."""
    shown = Emulators(game, 1, 1, IN_COLOUR, is_blanked=False)
    seen = Emulators(game, 1, 1, FrameSettings())
    seed, only = np.array([3]), np.ones(1, np.bool_)
    images = shown.reset(seed, only), seen.reset(seed, only)
    rng = np.random.default_rng(1)
    for _ in range(STEPS):
        action = np.array([ALWAYS.get(game.name, rng.integers(shown.action_space.n))])
        for emulators in (shown, seen):
            emulators.send(action)
        images = shown.receive()[0], seen.receive()[0]
    screen, stack = images
    return screen[0].transpose(1, 2, 0), stack[0, -1]


def draw_cell(game: AtariGame) -> Image.Image:
    """Draw both side by side, with the game's name as title."""
    screen, seen = play(game)
    cell = Image.new("RGB", CELL, PAPER)
    draw = ImageDraw.Draw(cell)
    draw.text((MARGIN, 5), game.name, fill=INK)
    cell.paste(Image.fromarray(screen).resize(SCREEN, Image.Resampling.NEAREST), (MARGIN, TITLE))
    left = SCREEN[0] + 2 * MARGIN
    cell.paste(Image.fromarray(seen).resize(OBSERVATION, Image.Resampling.NEAREST), (left, TITLE))
    for area in SCORE_AREAS[game.name]:
        corners = np.array([area.left, area.top, area.right, area.bottom]) * SCALE
        corners += np.array([MARGIN, TITLE, MARGIN - 1, TITLE - 1])
        draw.rectangle(tuple(corners.tolist()), outline=FRAME, width=2)
    return cell


def main() -> None:
    """Draw every game that has score areas."""
    games = [game for name in sorted(SCORE_AREAS) if (game := resolve_game(name)) is not None]
    rows = -(-len(games) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * CELL[0], rows * CELL[1]), PAPER)
    for place, game in enumerate(games):
        row, column = divmod(place, COLUMNS)
        sheet.paste(draw_cell(game), (column * CELL[0], row * CELL[1]))
    sheet.quantize(256).save(IMAGE, optimize=True)


if __name__ == "__main__":
    main()
