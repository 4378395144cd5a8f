"""Rules of single Atari games: start points, lives, step limits and score areas."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from rl_teacher.common.errors import BadConfig

CLIP_FPS = 15.0
"""Steps per second: the console draws 60 frames, and an action lasts 4."""

DEFAULT_MAX_STEPS = 27_000
"""ALE's limit: 108,000 frames at 4 frames a step, half an hour."""


@dataclass(frozen=True)
class GameRules:
    """The start and end of a game's episodes.

    Attributes:
        start_points: sequences of action numbers. Each episode plays one of them, chosen at random,
            before the agent acts; an empty one starts where the game does.
        min_lives: an episode ends when fewer lives are left; None leaves the end to the game.
        max_episode_steps: agent steps until the episode is truncated.
        can_terminate: whether the game or its lives may end an episode earlier.
    """

    start_points: tuple[tuple[int, ...], ...] = ((),)
    min_lives: int | None = None
    max_episode_steps: int = DEFAULT_MAX_STEPS
    can_terminate: bool = True

    @property
    def has_start_points(self) -> bool:
        """True if any episode starts after scripted actions."""
        return any(self.start_points)


_JUMP_RIGHT, _RIGHT, _DOWN = 11, 3, 5

MONTEZUMAS_LADDER = (
    *(0,) * 12,
    *(_JUMP_RIGHT,) * 2,
    *(0,) * 10,
    *(_JUMP_RIGHT,) * 2,
    *(0,) * 12,
    *(_RIGHT,) * 1,
    *(_DOWN,) * 21,
)
"""Actions to a start point in MontezumaRevenge, the foot of the right ladder in the first room:
onto the rope, onto the ledge, and down."""

GAME_RULES: dict[str, GameRules] = {
    # The weather changes after about 3,050 frames; episodes of 3,000 frames avoid it, as in
    # learning-from-human-preferences.
    "Enduro": GameRules(max_episode_steps=750, can_terminate=False),
    # As rl-teacher-atari: an episode ends when the second life is lost.
    "MontezumaRevenge": GameRules(min_lives=5),
}
"""The rules by game name (`MontezumaRevenge`). Add your own before creating an environment, see
docs/atari.md."""

RETAINS_MEMORY: frozenset[str] = frozenset(
    (
        "crossbow",
        "hangman",
        "haunted_house",
        "ice_hockey",
        "kung_fu_master",
        "pooyan",
        "sir_lancelot",
        "space_war",
        "surround",
        "time_pilot",
        "yars_revenge",
    )
)
"""ROMs that keep part of the console's memory across games, so that a start depends on the previous
game. Found by comparing memories after resets, see tests/envs/atari/test_resets.py."""


def rules_of(name: str) -> GameRules:
    """Return the rules of a game by its name."""
    return GAME_RULES.get(name, GameRules())


# --- score areas: a network could read the true reward off them, so it sees them black ---

SCREEN_HEIGHT, SCREEN_WIDTH = 210, 160
"""Size of most screens in pixels, and of those of `SCORE_AREAS`."""


@dataclass(frozen=True)
class Area:
    """A rectangle of a screen of 210x160 pixels; bottom and right are exclusive.

    Screens of another size are scaled to this one.

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
            # Rounded outwards: a pixel on the edge of the area contains part of the score.
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
"""The score areas by game name (`SpaceInvaders`), for the seven games of the paper. Add your own
before creating an environment, see docs/atari.md."""


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
