"""Score areas of Atari games, which agents and predictors see black.

A network could read the true reward off the score. People see the whole screen.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from rl_teacher.common.errors import BadConfig

SCREEN_HEIGHT, SCREEN_WIDTH = 210, 160
"""Size of an Atari screen in pixels."""


@dataclass(frozen=True)
class Area:
    """A rectangle of the 210x160 screen in pixels; bottom and right are exclusive.

    Raises:
        BadConfig: the rectangle is empty or not on the screen.
    """

    top: int
    bottom: int
    left: int = 0
    right: int = SCREEN_WIDTH

    def __post_init__(self) -> None:
        is_high = 0 <= self.top < self.bottom <= SCREEN_HEIGHT
        if not is_high or not 0 <= self.left < self.right <= SCREEN_WIDTH:
            raise BadConfig(
                f"{self} is not on the screen: top < bottom within 0 to {SCREEN_HEIGHT}, and "
                f"left < right within 0 to {SCREEN_WIDTH}, are needed."
            )

    def within(self, height: int, width: int) -> tuple[slice, slice]:
        """Return the rows and columns of a resized image that overlap the area."""
        return (
            slice(self.top * height // SCREEN_HEIGHT, -(-self.bottom * height // SCREEN_HEIGHT)),
            slice(self.left * width // SCREEN_WIDTH, -(-self.right * width // SCREEN_WIDTH)),
        )


SCORE_AREAS: dict[str, tuple[Area, ...]] = {
    # Score and sector; the number of remaining enemies, but not the torpedoes to its right.
    "BeamRider": (Area(0, 31), Area(31, 42, 0, 80)),
    "Breakout": (Area(0, 16),),
    # Odometer, day, and cars to pass.
    "Enduro": (Area(160, 210),),
    "Pong": (Area(0, 22),),
    # Not the full width: Qbert himself jumps to the right of the score.
    "Qbert": (Area(4, 15, 28, 74),),
    "Seaquest": (Area(7, 19),),
    "SpaceInvaders": (Area(8, 22),),
}
"""The score areas by game name (`SpaceInvaders`), for the seven games of the paper."""


def register_score_area(name: str, *areas: Area) -> None:
    """Set the score areas of a game.

    Args:
        name: name of the game, as in its id: `MsPacman`.
        areas: the areas; without any, nothing is blanked.
    """
    SCORE_AREAS[name] = areas


def blank(images: UInt8[np.ndarray, "*some height width"], name: str) -> None:
    """Blank a game's score areas in place.

    Args:
        images: images of the whole screen, at any size.
        name: name of the game.
    """
    height, width = images.shape[-2:]
    for area in SCORE_AREAS.get(name, ()):
        rows, columns = area.within(height, width)
        images[..., rows, columns] = 0
