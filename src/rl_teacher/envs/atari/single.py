"""One Atari game in the hand."""

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import UInt8

from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.emulators import MAX_SEED
from rl_teacher.envs.atari.film import EpisodeReplayer
from rl_teacher.envs.atari.names import AtariGame
from rl_teacher.envs.atari.rules import CLIP_FPS
from rl_teacher.envs.atari.vector import AtariVectorEnv

Observation = UInt8[np.ndarray, "channel height width"]


class AtariSingleEnv(gymnasium.Env):
    """One environment of a game, as those of `AtariVectorEnv`; its time limit is in it."""

    def __init__(
        self,
        game: AtariGame,
        frames: FrameSettings = FrameSettings(),  # noqa: B008 - it cannot change
        render_mode: str | None = None,
    ) -> None:
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": CLIP_FPS}
        self.render_mode = render_mode
        # Note: the record of an episode that ended is needed until the next one begins.
        self._venv = AtariVectorEnv(game, 1, 1, keep_steps=1, frames=frames)
        self._projector = None if render_mode is None else EpisodeReplayer(game, None)
        self._scene_state = np.zeros(2, np.int64)
        self.observation_space = self._venv.single_observation_space
        self.action_space = self._venv.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, where its start point is."""
        super().reset(seed=seed, options=options)
        observations, infos = self._venv.reset(seed=int(self.np_random.integers(MAX_SEED)))
        while infos.get("ignores_action", [False])[0]:
            observations, *_, infos = self._venv.step(np.zeros(1, np.int64))
        self._scene_state = self._venv.scene_states[0].astype(np.int64)
        return observations[0], {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One step; after the last of an episode, `reset` begins the next."""
        observations, rewards, terminated, truncated, infos = self._venv.step(np.array([action]))
        observation = infos.get("final_obs", observations)[0]
        self._scene_state[1] += 1
        told = {"lives": int(infos["lives"][0])}
        return observation, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), told

    def render(self) -> Any:
        """[210, 160, 3] the screen now, if made with `render_mode="rgb_array"`."""
        if self._projector is None:
            return None
        episode, step = self._scene_state
        record = self._venv.replay_record(int(episode))
        return next(self._projector.film(record, np.array([step])))[1]

    def close(self) -> None:
        """Switch it off."""
        self._venv.close()
