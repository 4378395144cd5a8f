"""What an agent and a predictor are not shown of a game: where its score stands.

Whoever reads the score can learn the true reward from it. The person sees the whole screen.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from rl_teacher.common.errors import BadConfig

SCREEN_HEIGHT, SCREEN_WIDTH = 210, 160
"""Pixels of an Atari screen."""


@dataclass(frozen=True)
class Area:
    """A rectangle of the 210x160 screen, in pixels; the last row and column are not in it.

    Raises:
        BadConfig: it is empty, or not on the screen.
    """

    top: int
    bottom: int
    left: int = 0
    right: int = SCREEN_WIDTH

    def __post_init__(self) -> None:
        is_high = 0 <= self.top < self.bottom <= SCREEN_HEIGHT
        if not is_high or not 0 <= self.left < self.right <= SCREEN_WIDTH:
            raise BadConfig(
                f"{self} is no part of the screen: top < bottom within 0 to {SCREEN_HEIGHT}, and "
                f"left < right within 0 to {SCREEN_WIDTH}, are needed."
            )

    def within(self, height: int, width: int) -> tuple[slice, slice]:
        """The rows and columns of a smaller picture that show anything of it."""
        return (
            slice(self.top * height // SCREEN_HEIGHT, -(-self.bottom * height // SCREEN_HEIGHT)),
            slice(self.left * width // SCREEN_WIDTH, -(-self.right * width // SCREEN_WIDTH)),
        )


SCORE_AREAS: dict[str, tuple[Area, ...]] = {
    # Score and sector; the number of enemies that are left, but not the torpedoes beside it.
    "BeamRider": (Area(0, 31), Area(31, 42, 0, 80)),
    "Breakout": (Area(0, 16),),
    # Odometer, day, and cars to pass.
    "Enduro": (Area(160, 210),),
    "Pong": (Area(0, 22),),
    # Not the width of the screen: Qbert himself jumps beside it.
    "Qbert": (Area(4, 15, 28, 74),),
    "Seaquest": (Area(7, 19),),
    "SpaceInvaders": (Area(8, 22),),
}
"""The areas of games by name (`SpaceInvaders`): those of the paper's seven."""


def register_score_area(name: str, *areas: Area) -> None:
    """Blank areas of a game, in place of what is blanked of it now.

    Args:
        name: of the game, as in its id: `MsPacman`.
        areas: none blanks nothing.
    """
    SCORE_AREAS[name] = areas


def blank(pictures: UInt8[np.ndarray, "*some height width"], name: str) -> None:
    """Make a game's score areas black, in place.

    Args:
        pictures: of the whole screen, at any size.
        name: of the game.
    """
    height, width = pictures.shape[-2:]
    for area in SCORE_AREAS.get(name, ()):
        rows, columns = area.within(height, width)
        pictures[..., rows, columns] = 0
