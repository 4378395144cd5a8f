"""ALE's batched C++ emulators with the paper's preprocessing, and the replay of their episodes.

N: emulators, C: channels (stacked images times colours, newest last), H, W: height and width.
"""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from threading import Lock
from typing import Any

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from ale_py.vector_env import AtariVectorEnv as EmulatedVectorEnv
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode
from jaxtyping import Bool, Int, Int32, Integer, UInt8

from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.names import STICKINESS, AtariGame
from rl_teacher.envs.atari.rules import blank
from rl_teacher.envs.episode_replay import ReplayRecord
from rl_teacher.nn.encoders import ImageBox
from rl_teacher.nn.image_layout import ImageLayout

FRAME_SKIP = 4
MAX_NOOPS = 30
NO_LIMIT_FRAMES = 2**30
"""ALE's own limit is off: the environments count steps."""
CONTINUE = -1
"""In place of a seed: start the next episode of the current seed."""

IN_COLOUR = FrameSettings(stacked=1, size=0, grey=False)
"""The whole screen in colour, for people."""
_ALL_ENVS = np.ones(1, np.bool_)

Images = UInt8[np.ndarray, "env channel height width"]
Image = UInt8[np.ndarray, "channel height width"]
Outcome = tuple[
    Images, Int32[np.ndarray, " env"], Bool[np.ndarray, " env"], Int32[np.ndarray, " env"]
]


@cache
def screen_size(rom: str) -> tuple[int, int]:
    """Return the height and width of a game's screen: 210 x 160 pixels in most games."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.loadROM(str(roms.get_rom_path(rom)))
    height, width = ale.getScreenDims()
    return height, width


class _Emulated(EmulatedVectorEnv):
    # ALE writes its autoreset mode into this dict; without an own one it would change the
    # metadata of every vector environment.
    metadata = {}  # noqa: RUF012


class Emulators:
    """N emulators of one game. A seed, a place after it and the actions determine an episode.

    Each action lasts 4 frames. The image is the maximum of the last two, because the console draws
    some sprites in every other frame only. An episode starts with up to 30 no-op frames, then FIRE
    in games that wait for it (Mnih et al. 2015).
    """

    def __init__(
        self,
        game: AtariGame,
        num: int,
        num_threads: int | None,
        frames: FrameSettings,
        *,
        is_blanked: bool = True,
    ) -> None:
        """Create the emulators.

        Args:
            game: the game.
            num: N.
            num_threads: threads of all emulators together; all CPUs by default.
            frames: preprocessing of images.
            is_blanked: whether score areas are black.
        """
        self._blanked = game.name if is_blanked else None
        # Smaller sides are kept, as by `AreaResize`; ALE would enlarge them.
        screen = screen_size(game.rom)
        height, width = (min(pixels, frames.size or pixels) for pixels in screen)
        stacked = max(frames.stacked, 1)
        self._shape = (stacked * (1 if frames.grey else 3), height, width)
        self._emulated = _Emulated(
            game.rom,
            num,
            num_threads=num_threads or 0,
            # Not made use of: callers reset a finished game before its next step, with their own
            # seed.
            autoreset_mode=AutoresetMode.NEXT_STEP,
            max_num_frames_per_episode=NO_LIMIT_FRAMES,
            repeat_action_probability=STICKINESS if game.is_sticky else 0.0,
            img_height=height,
            img_width=width,
            grayscale=frames.grey,
            stack_num=stacked,
            frameskip=FRAME_SKIP,
            noop_max=MAX_NOOPS,
            reward_clipping=False,
        )

    @property
    def observation_space(self) -> ImageBox:
        """[C, H, W] images of one emulator."""
        return ImageBox(ImageLayout(self._shape, channel_axis=0))

    @property
    def action_space(self) -> Discrete:
        """The minimal action set of the game; 0 is the no-op."""
        space = self._emulated.single_action_space
        assert isinstance(space, Discrete)  # noqa: S101 - ALE has discrete actions here
        return space

    def reset(self, seeds: Int[np.ndarray, " some"], which: Bool[np.ndarray, " env"]) -> Images:
        """Start episodes in some emulators, whether or not the old ones are over.

        A seed makes ALE load the game again, which takes as long as 170 steps; `CONTINUE` takes as
        long as 9.

        Args:
            seeds: one per emulator that is reset; `CONTINUE` starts the next episode of its seed.
            which: [N] the emulators to reset; the first time all of them, with seeds.

        Returns:
            The images of all emulators.
        """
        images, _ = self._emulated.reset(seed=seeds, options={"reset_mask": which})
        return self._observe(images)

    def skip_episodes(self, times: Int[np.ndarray, " env"]) -> Images:
        """Start the next episode of the current seed several times.

        Args:
            times: [N] number of episodes to skip in each emulator.

        Returns:
            The images of all emulators.
        """
        # An empty mask: nothing is reset, only the images are read.
        images = self.reset(np.zeros(0, np.int64), times < 0)
        while (times > 0).any():
            images = self.reset(np.full(np.count_nonzero(times > 0), CONTINUE), times > 0)
            times = times - 1
        return images

    def send(self, actions: Int[np.ndarray, " env"]) -> None:
        """Start a step in the emulators' threads.

        An emulator whose game is over must be reset before.
        """
        self._emulated.send(actions)

    def receive(self) -> Outcome:
        """Wait for the step that `send` started; return images, rewards, game overs, lives left."""
        images, rewards, terminated, _, infos = self._emulated.recv()
        return self._observe(images), rewards, terminated, infos["lives"]

    def _observe(self, images: UInt8[np.ndarray, "env image height width *colour"]) -> Images:
        """Reorder to [N, C, H, W] and blank scores in place: ALE returns new arrays each time."""
        if images.ndim == 5:
            # [N, stack, H, W, colour] -> [N, stack * colour, H, W]
            images = np.moveaxis(images, 4, 2).reshape(len(images), *self._shape)
        if self._blanked is not None:
            blank(images, self._blanked)
        return images


# --- replay, for clips that show the whole screen in colour ---


class EpisodeReplayer:
    """A replayer of one game that continues from its current step where it can."""

    def __init__(self, game: AtariGame, frames: FrameSettings = IN_COLOUR) -> None:
        """Create an emulator.

        Args:
            game: the game.
            frames: preprocessing of the images; by default, the screen that people see.
        """
        self._emulator = Emulators(game, 1, 1, frames, is_blanked=False)
        self._reset_state: dict[str, Any] | None = None
        self._actions = np.zeros(0, np.int64)
        self._image = np.zeros(0, np.uint8)

    def iterate_images(
        self, record: ReplayRecord, steps: Integer[np.ndarray, " time"]
    ) -> Iterator[Image]:
        """Yield the image at each of the ascending steps."""
        for step in steps.tolist():
            target, num_played = record.actions[:step], len(self._actions)
            is_ahead = record.reset_state == self._reset_state and num_played <= step
            if not is_ahead or not np.array_equal(self._actions, target[:num_played]):
                self._reset(record.reset_state)
                num_played = 0
            for action in target[num_played:].tolist():
                self._act(action)
            self._actions = target
            yield self._image

    def _reset(self, reset_state: dict[str, Any]) -> None:
        self._emulator.reset(np.array([reset_state["seed"]]), _ALL_ENVS)
        place = np.array([reset_state.get("place", 0)])
        self._image = self._emulator.skip_episodes(place)[0]
        self._reset_state = reset_state
        for action in reset_state["start"]:
            self._act(action)

    def _act(self, action: int) -> None:
        self._emulator.send(np.array([action]))
        self._image = self._emulator.receive()[0][0]


@contextmanager
def shared_replayer(game: AtariGame) -> Iterator[EpisodeReplayer]:
    """Lend a replayer that keeps its position, since the next clip may be of the same episode.

    While it is in use, lend another one.
    """
    if not _REPLAYER_LOCK.acquire(blocking=False):
        yield EpisodeReplayer(game)
        return
    try:
        yield _cached_replayer(game)
    finally:
        _REPLAYER_LOCK.release()


_REPLAYER_LOCK = Lock()


@lru_cache(1)
def _cached_replayer(game: AtariGame) -> EpisodeReplayer:
    return EpisodeReplayer(game)


# ALE logs errors for emulators that are still alive when the process ends.
atexit.register(_cached_replayer.cache_clear)
