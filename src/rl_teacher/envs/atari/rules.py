"""Where the episodes of an Atari game begin and end, beyond what the game says itself."""

from dataclasses import dataclass

CLIP_FPS = 15.0
"""Steps a second: the console draws 60 frames, and an action lasts 4."""

USUAL_MAX_STEPS = 27_000
"""ALE's limit: 108,000 frames at 4 frames a step, half an hour."""


@dataclass(frozen=True)
class GameRules:
    """WarmStart and ends of a game's episodes.

    Attributes:
        start_points: sequences of action numbers. Each episode lives one of them, chosen at random,
            before the agent acts; an empty one begins where the game does.
        min_lives: an episode ends when fewer lives than this are left; None leaves it to the game.
        max_episode_steps: the agent's steps until an episode is cut.
        can_terminate: whether the game, or its lives, may end an episode before that.
    """

    start_points: tuple[tuple[int, ...], ...] = ((),)
    min_lives: int | None = None
    max_episode_steps: int = USUAL_MAX_STEPS
    can_terminate: bool = True

    @property
    def has_start_points(self) -> bool:
        """Whether some episode begins elsewhere than the game."""
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
"""A start point in MontezumaRevenge, at the foot of the first room's right ladder: onto the rope,
onto the ledge, and down."""

GAME_RULES: dict[str, GameRules] = {
    # The weather changes after some 3,050 frames. As learning-from-human-preferences, which played
    # 3,000.
    "Enduro": GameRules(max_episode_steps=750, can_terminate=False),
    # As rl-teacher-atari: an episode ends when the second life is lost.
    "MontezumaRevenge": GameRules(min_lives=5),
}
"""The rules of games by name (`MontezumaRevenge`). Add your own before an environment is made: see
docs/atari.md."""


REMEMBERING: frozenset[str] = frozenset(
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
"""Games, as ALE calls them, whose beginning depends on how the game before it was played, for they
leave some of the console's memory as it is. Found by playing each game on, and comparing memories:
see tests/envs/atari/test_resets.py."""


def rules_of(name: str) -> GameRules:
    """The rules of a game, by its name."""
    return GAME_RULES.get(name, GameRules())
