"""Clips of Atari games: episodes lived again in front of the whole screen, in colour."""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8

from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.emulators import IN_COLOUR, Emulators
from rl_teacher.envs.atari.names import AtariGame
from rl_teacher.envs.episode_replay import ReplayRecord

Frame = UInt8[np.ndarray, "height width 3"]
Observation = UInt8[np.ndarray, "channel height width"]

_ONLY = np.ones(1, np.bool_)


class EpisodeReplayer:
    """Shows episodes of one game; it goes on from where it is, if that is on the way."""

    def __init__(self, game: AtariGame, frames: FrameSettings | None) -> None:
        """Switch on an emulator for the person, and one that sees what the agent saw.

        Args:
            game: which one.
            frames: the agent's; with None nobody sees what it saw.
        """
        self._emulators = [Emulators(game, 1, 1, IN_COLOUR, is_blanked=False)]
        if frames is not None:
            self._emulators.append(Emulators(game, 1, 1, frames))
        self._beginning: dict[str, Any] | None = None
        self._lived = np.zeros(0, np.int64)
        self._shown: list[np.ndarray] = []

    def film(
        self, record: ReplayRecord, steps: Integer[np.ndarray, " time"]
    ) -> Iterator[tuple[Observation | None, Frame]]:
        """What the agent saw in each of some steps, rising, and the screen."""
        for step in steps.tolist():
            self._go_to(record, step)
            screen, *seen = self._shown
            yield seen[0] if seen else None, screen.transpose(1, 2, 0)

    def _go_to(self, record: ReplayRecord, step: int) -> None:
        wanted = record.actions[:step]
        here = len(self._lived)
        is_on_the_way = record.beginning == self._beginning and here <= step
        if not is_on_the_way or not np.array_equal(self._lived, wanted[:here]):
            self._begin(record.beginning)
            here = 0
        for action in wanted[here:].tolist():
            self._act(action)
        self._lived = wanted

    def _begin(self, beginning: dict[str, Any]) -> None:
        seed = np.array([beginning["seed"]])
        place = np.array([beginning.get("place", 0)])
        for each in self._emulators:
            each.begin(seed, _ONLY)
        self._shown = [each.go_on(place)[0] for each in self._emulators]
        self._beginning = beginning
        for action in beginning["start"]:
            self._act(action)

    def _act(self, action: int) -> None:
        for each in self._emulators:  # each on a thread of its own
            each.send(np.array([action]))
        self._shown = [each.receive()[0][0] for each in self._emulators]


@contextmanager
def shared_replayer(game: AtariGame, frames: FrameSettings | None) -> Iterator[EpisodeReplayer]:
    """A projector that stays where it is until the next clip, which may be of the same episode."""
    with _IN_USE:
        yield _kept(game, frames)


_IN_USE = Lock()


@lru_cache(1)
def _kept(game: AtariGame, frames: FrameSettings | None) -> EpisodeReplayer:
    return EpisodeReplayer(game, frames)


# Note: ALE complains at the end of a process of whatever is still there.
atexit.register(_kept.cache_clear)


def frames_of(record: ReplayRecord) -> FrameSettings:
    """What the agent was shown when it lived an episode."""
    return FrameSettings(**record.beginning["frames"])
