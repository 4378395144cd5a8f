"""Clips of Atari games: replayed episodes that show the whole screen in colour."""

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

_ALL_ENVS = np.ones(1, np.bool_)


class EpisodeReplayer:
    """A replayer of one game that continues from its current step where it can."""

    def __init__(self, game: AtariGame, frames: FrameSettings | None) -> None:
        """Create an emulator for the screen and one for the agent's observations.

        Args:
            game: the game.
            frames: preprocessing of the agent's images; None if they are not needed.
        """
        self._emulators = [Emulators(game, 1, 1, IN_COLOUR, is_blanked=False)]
        if frames is not None:
            self._emulators.append(Emulators(game, 1, 1, frames))
        self._reset_state: dict[str, Any] | None = None
        self._actions = np.zeros(0, np.int64)
        self._images: list[np.ndarray] = []

    def iterate_frames(
        self, record: ReplayRecord, steps: Integer[np.ndarray, " time"]
    ) -> Iterator[tuple[Observation | None, Frame]]:
        """Yield the agent's observation and the screen at each of the ascending steps."""
        for step in steps.tolist():
            self._seek(record, step)
            screen, *observation = self._images
            yield observation[0] if observation else None, screen.transpose(1, 2, 0)

    def _seek(self, record: ReplayRecord, step: int) -> None:
        target = record.actions[:step]
        num_played = len(self._actions)
        is_ahead = record.reset_state == self._reset_state and num_played <= step
        if not is_ahead or not np.array_equal(self._actions, target[:num_played]):
            self._reset(record.reset_state)
            num_played = 0
        for action in target[num_played:].tolist():
            self._act(action)
        self._actions = target

    def _reset(self, reset_state: dict[str, Any]) -> None:
        seed = np.array([reset_state["seed"]])
        place = np.array([reset_state.get("place", 0)])
        for each in self._emulators:
            each.reset(seed, _ALL_ENVS)
        self._images = [each.skip_episodes(place)[0] for each in self._emulators]
        self._reset_state = reset_state
        for action in reset_state["start"]:
            self._act(action)

    def _act(self, action: int) -> None:
        for each in self._emulators:  # both step at the same time, on their own threads
            each.send(np.array([action]))
        self._images = [each.receive()[0][0] for each in self._emulators]


@contextmanager
def shared_replayer(game: AtariGame, frames: FrameSettings | None) -> Iterator[EpisodeReplayer]:
    """Lend a replayer that keeps its position, since the next clip may be of the same episode."""
    with _REPLAYER_LOCK:
        yield _cached_replayer(game, frames)


_REPLAYER_LOCK = Lock()


@lru_cache(1)
def _cached_replayer(game: AtariGame, frames: FrameSettings | None) -> EpisodeReplayer:
    return EpisodeReplayer(game, frames)


# ALE logs errors for emulators that are still alive when the process ends.
atexit.register(_cached_replayer.cache_clear)


def frames_of(record: ReplayRecord) -> FrameSettings:
    """Return the preprocessing that the agent of an episode used."""
    return FrameSettings(**record.reset_state["frames"])
