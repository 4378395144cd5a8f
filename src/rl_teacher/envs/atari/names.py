"""The names of Atari games: every game of ALE, in two kinds.

`PongNoFrameskip-v4` plays as in the paper, without sticky actions; `ALE/Pong-v5` repeats the last
action in a quarter of the frames, as ALE registers it. Other spellings mean one of the two.
"""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

STICKINESS = 0.25
"""How often a frame of the v5 kind repeats the action before."""

# These have no mode for one player.
_FOR_TWO = frozenset(("combat", "joust", "maze_craze", "warlords"))

_SPELLING = re.compile(
    r"(?P<is_sticky>ALE/)?(?P<name>\w+?)"
    r"(?P<version>(?:NoFrameskip|Deterministic)?-v[04]|-v5)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class AtariGame:
    """One game, in one kind.

    Attributes:
        name: as in ids: `SpaceInvaders`.
        rom: as ALE calls it: `space_invaders`.
        is_sticky: whether actions stick.
    """

    name: str
    rom: str
    is_sticky: bool

    @property
    def id(self) -> str:
        """Its full id."""
        return f"ALE/{self.name}-v5" if self.is_sticky else f"{self.name}NoFrameskip-v4"


def game_called(spelling: str) -> AtariGame | None:
    """What is meant by a spelling; None if it is no game.

    Upper and lower case do not matter, nor does the version: `Pong`, `pong-v0` and
    `PongDeterministic-v4` are `PongNoFrameskip-v4`, `ale/pong` is `ALE/Pong-v5`.
    """
    match = _SPELLING.fullmatch(spelling)
    if match is None:
        return None
    is_sticky = match["is_sticky"] is not None
    if match["version"] and is_sticky != (match["version"].lower() == "-v5"):
        return None
    rom = _roms_by_name().get(match["name"].replace("_", "").lower())
    return None if rom is None else AtariGame(_name(rom), rom, is_sticky)


def game_of(full_id: str) -> AtariGame | None:
    """The game of a full id, perhaps with a module before it; None if it is no game's."""
    own_id = full_id.rpartition(":")[2]
    # Note: asked of every environment, so ALE is loaded only for what looks like a game.
    if not own_id.startswith("ALE/") and not own_id.endswith("NoFrameskip-v4"):
        return None
    game = game_called(own_id)
    return game if game is not None and game.id == own_id else None


def games() -> Iterator[AtariGame]:
    """Every game, in the kind without sticky actions."""
    return (AtariGame(_name(rom), rom, is_sticky=False) for rom in _roms_by_name().values())


def nearest_names(spelling: str) -> list[str]:
    """Names of games that look like a misspelt one."""
    names = [each for game in games() for each in _offered(game)]
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(spelling.lower(), by_lower, n=4, cutoff=0.6)
    return [by_lower[name] for name in near]


def _offered(game: AtariGame) -> tuple[str, ...]:
    return (
        game.name,
        *(f"{game.name}-v{version}" for version in (0, 4)),
        game.id,
        f"ALE/{game.name}-v5",
    )


@cache
def _roms_by_name() -> dict[str, str]:
    from ale_py import roms  # noqa: PLC0415 - registers 350 ids with Gymnasium

    playable = sorted(set(roms.get_all_rom_ids()) - _FOR_TWO)
    return {_name(rom).lower(): rom for rom in playable}


def _name(rom: str) -> str:
    """As ALE's own ids have it."""
    return rom.title().replace("_", "")
