"""ALE's C++ emulators, with the paper's preprocessing: what the agent plays, and what is filmed.

N: emulators, C: channels (pictures times colours, the newest last), H, W: of a picture.
"""

import numpy as np
from ale_py.vector_env import AtariVectorEnv as EmulatedVectorEnv
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode
from jaxtyping import Bool, Int, Int32, UInt8

from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.names import STICKINESS, AtariGame
from rl_teacher.envs.atari.score_areas import SCREEN_HEIGHT, SCREEN_WIDTH, blank
from rl_teacher.nn.encoders import ImageBox
from rl_teacher.nn.image_layout import ImageLayout

FRAME_SKIP = 4
MAX_NOOPS = 30
NO_LIMIT_FRAMES = 2**30
"""Episodes are cut by whoever counts their steps."""
MAX_SEED = 2**31 - 1
GO_ON = -1
"""In place of a seed."""

IN_COLOUR = FrameSettings(stacked=1, size=0, grey=False)
"""The screen as a person sees it."""

Pictures = UInt8[np.ndarray, "env channel height width"]
Outcome = tuple[
    Pictures, Int32[np.ndarray, " env"], Bool[np.ndarray, " env"], Int32[np.ndarray, " env"]
]


class _Emulated(EmulatedVectorEnv):
    # Note: ALE writes its autoreset mode here; without this, into every vector environment's.
    metadata = {}  # noqa: RUF012


class Emulators:
    """N emulators of one game; a seed, a place after it and the actions say all of an episode.

    Each action lasts 4 frames, of which the last two are laid over one another, because the
    console drew some things in every other frame only. An episode begins with up to 30 frames of
    doing nothing, then with FIRE where the game waits for it.
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
        """Switch them on.

        Args:
            game: which one.
            num: N.
            num_threads: of all emulators together; all CPUs by default.
            frames: what is shown.
            is_blanked: whether the score areas are black.
        """
        self._blanked = game.name if is_blanked else None
        height, width = frames.size or SCREEN_HEIGHT, frames.size or SCREEN_WIDTH
        pictures = max(frames.stacked, 1)
        self._shape = (pictures * (1 if frames.grey else 3), height, width)
        self._emulated = _Emulated(
            game.rom,
            num,
            num_threads=num_threads or 0,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            max_num_frames_per_episode=NO_LIMIT_FRAMES,
            repeat_action_probability=STICKINESS if game.is_sticky else 0.0,
            img_height=height,
            img_width=width,
            grayscale=frames.grey,
            stack_num=pictures,
            frameskip=FRAME_SKIP,
            noop_max=MAX_NOOPS,
            reward_clipping=False,
        )

    @property
    def observation_space(self) -> ImageBox:
        """[C, H, W] of each."""
        return ImageBox(ImageLayout(self._shape, channel_axis=0))

    @property
    def action_space(self) -> Discrete:
        """The actions that do something in this game; 0 does nothing."""
        space = self._emulated.single_action_space
        assert isinstance(space, Discrete)  # noqa: S101 - as asked for
        return space

    def begin(self, seeds: Int[np.ndarray, " some"], which: Bool[np.ndarray, " env"]) -> Pictures:
        """Begin episodes, at once, whether or not others have ended; the other emulators wait.

        Note: a seed has ALE load the game anew, which takes as long as 170 steps; going on from the
        seed of before takes as long as 9.

        Args:
            seeds: one for each of those that begin; `GO_ON` for the next episode after the seed
                that an emulator was given last.
            which: [N]; all of them the first time, with seeds.

        Returns:
            What all of them show now.
        """
        shown, _ = self._emulated.reset(seed=seeds, options={"reset_mask": which})
        return self._seen(shown)

    def go_on(self, times: Int[np.ndarray, " env"]) -> Pictures:
        """Begin the next episode after the last seed, so many times.

        Args:
            times: [N]; of those that were given a seed just now, how many episodes come before
                the one that is wanted.

        Returns:
            What all of them show now.
        """
        shown = self.begin(np.zeros(0, np.int64), times < 0)
        while (times > 0).any():
            shown = self.begin(np.full(np.count_nonzero(times > 0), GO_ON), times > 0)
            times = times - 1
        return shown

    def act(self, actions: Int[np.ndarray, " env"]) -> Outcome:
        """One action in each: pictures, rewards, whether the game ended, and lives left.

        An emulator whose game ended must begin an episode before it acts again.
        """
        self.send(actions)
        return self.receive()

    def send(self, actions: Int[np.ndarray, " env"]) -> None:
        """Let them act, and do not wait for it."""
        self._emulated.send(actions)

    def receive(self) -> Outcome:
        """What the actions that were sent led to."""
        shown, rewards, terminated, _, infos = self._emulated.recv()
        return self._seen(shown), rewards, terminated, infos["lives"]

    def _seen(self, shown: UInt8[np.ndarray, "env picture height width *colour"]) -> Pictures:
        """As observations; ALE fills new arrays each time, so these may be kept, and written to."""
        if shown.ndim == 5:
            shown = np.moveaxis(shown, 4, 2).reshape(len(shown), *self._shape)
        if self._blanked is not None:
            blank(shown, self._blanked)
        return shown
