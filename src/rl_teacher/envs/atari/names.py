"""Names of Atari games: every game of ALE, in two kinds.

`PongNoFrameskip-v4` plays as in the paper, without sticky actions; `ALE/Pong-v5` repeats the last
action in a quarter of the frames, as ALE registers it. Other spellings mean one of the two.
"""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

STICKINESS = 0.25
"""Probability that a frame of the v5 kind repeats the previous action."""

# Games without a mode for one player.
_FOR_TWO = frozenset(("combat", "joust", "maze_craze", "warlords"))

_SPELLING = re.compile(
    r"(?P<is_sticky>ALE/)?(?P<name>\w+?)"
    r"(?P<version>(?:NoFrameskip|Deterministic)?-v[04]|-v5)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class AtariGame:
    """One game in one kind.

    Attributes:
        name: the name in ids, such as `SpaceInvaders`.
        rom: the name of the ROM in ALE, such as `space_invaders`.
        is_sticky: whether actions are sticky.
    """

    name: str
    rom: str
    is_sticky: bool

    @property
    def id(self) -> str:
        """The full id."""
        return f"ALE/{self.name}-v5" if self.is_sticky else f"{self.name}NoFrameskip-v4"


def resolve_game(spelling: str) -> AtariGame | None:
    """Resolve a spelling; return None if it is no game.

    Case and version are ignored: `Pong`, `pong-v0` and
    `PongDeterministic-v4` are `PongNoFrameskip-v4`, `ale/pong` is `ALE/Pong-v5`.
    """
    match = _SPELLING.fullmatch(spelling)
    if match is None:
        return None
    is_sticky = match["is_sticky"] is not None
    if match["version"] and is_sticky != (match["version"].lower() == "-v5"):
        return None
    rom = _roms_by_name().get(match["name"].replace("_", "").lower())
    return None if rom is None else AtariGame(_ale_name(rom), rom, is_sticky)


def game_of(full_id: str) -> AtariGame | None:
    """Return the game of a full id, with or without a module prefix; None if it is no game."""
    own_id = full_id.rpartition(":")[2]
    # Called for every environment: load ALE only if the id looks like a game.
    if not own_id.startswith("ALE/") and not own_id.endswith("NoFrameskip-v4"):
        return None
    game = resolve_game(own_id)
    return game if game is not None and game.id == own_id else None


def games() -> Iterator[AtariGame]:
    """Yield every game, without sticky actions."""
    return (AtariGame(_ale_name(rom), rom, is_sticky=False) for rom in _roms_by_name().values())


def nearest_names(spelling: str) -> list[str]:
    """Return the names of games that are close to a misspelt one."""
    by_lower = {
        name.lower(): name
        for game in games()
        for name in (
            *(game.name, f"{game.name}-v0", f"{game.name}-v4"),
            *(game.id, f"ALE/{game.name}-v5"),
        )
    }
    near = difflib.get_close_matches(spelling.lower(), by_lower, n=4, cutoff=0.6)
    return [by_lower[name] for name in near]


@cache
def _roms_by_name() -> dict[str, str]:
    from ale_py import roms  # noqa: PLC0415 - registers 350 ids with Gymnasium

    playable = sorted(set(roms.get_all_rom_ids()) - _FOR_TWO)
    return {_ale_name(rom).lower(): rom for rom in playable}


def _ale_name(rom: str) -> str:
    """Return the name that ALE uses in its own ids."""
    return rom.title().replace("_", "")
