"""Episode rules of Atari games: start points, lives and step limits beyond the game's own."""

from dataclasses import dataclass

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
