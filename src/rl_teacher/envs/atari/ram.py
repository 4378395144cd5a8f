"""Atari games whose observations are the 128 bytes of the console's memory.

They are ALE's own environments, which step one after the other; the rules of single games in
`rules.py` do not apply.
"""

from typing import Any, Literal

import gymnasium
import numpy as np
from ale_py.env import AtariEnv
from jaxtyping import UInt8

from rl_teacher.config.fields import MAX_SEED
from rl_teacher.envs.atari.emulators import FRAME_SKIP
from rl_teacher.envs.atari.names import STICKINESS, AtariGame
from rl_teacher.envs.atari.rules import CLIP_FPS


class SeededResets(gymnasium.Wrapper):
    """A wrapper that seeds the emulator at each reset, so that episodes can be replayed.

    Seeding reloads the ROM, because some games retain memory across resets (`RETAINS_MEMORY`).
    """

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8[np.ndarray, "128"], dict[str, Any]]:
        """Start an episode."""
        drawn = int(self.np_random.integers(MAX_SEED)) if seed is None else seed
        return self.env.reset(seed=drawn, options=options)


def make_ram_env(game: AtariGame, render_mode: Literal["rgb_array"] | None = None) -> gymnasium.Env:
    """Create an environment of a game with observations [128] uint8, without a time limit."""
    env = AtariEnv(
        game.rom,
        obs_type="ram",
        frameskip=FRAME_SKIP,
        repeat_action_probability=STICKINESS if game.is_sticky else 0.0,
        render_mode=render_mode,
    )
    env.metadata = {"render_modes": ["rgb_array"], "render_fps": CLIP_FPS}
    return SeededResets(env)
