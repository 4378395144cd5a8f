"""Small environments with image observations."""

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.registry import make_vector


class Corridor(gym.Env):
    """Bright column in a dark image; moving right pays 1, moving left costs 1.

    With `is_continuous` the action is one number, whose sign is the direction.
    """

    SIZE, STEPS = 12, 20
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, *, is_continuous=False, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0, 255, (2, self.SIZE, self.SIZE), np.uint8)
        if is_continuous:
            self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        else:
            self.action_space = gym.spaces.Discrete(2)
        self._is_continuous = is_continuous

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place, self._step = int(self.np_random.integers(self.SIZE)), 0
        return self._image(), {}

    def step(self, action):
        goes_right = action[0] > 0 if self._is_continuous else action == 1
        self._place = (self._place + (1 if goes_right else -1)) % self.SIZE
        self._step += 1
        return self._image(), 1.0 if goes_right else -1.0, False, self._step >= self.STEPS, {}

    def render(self):
        return np.repeat(self._image()[0][..., None], 3, axis=-1)

    def _image(self):
        image = np.zeros((2, self.SIZE, self.SIZE), np.uint8)
        image[0, :, self._place] = 255
        image[1, self._place] = 128
        return image


class Seeker(Corridor):
    """Corridor that pays for moves towards the middle, so that the reward depends on the image."""

    def step(self, action):
        is_left = self._place < self.SIZE // 2
        image, reward, terminated, truncated, info = super().step(action)
        return image, reward if is_left else -reward, terminated, truncated, info


class Crossing(gym.Env):
    """Bright dot in one half of an image, and a number, beside a constant, that wants it in one.

    A state pays 1 if the dot is where it is wanted, and costs 1 otherwise. Action 1 moves it to the
    other half. Neither the image nor the number alone says which action is better.
    """

    SIZE, STEPS = 12, 20
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Dict(
        camera=gym.spaces.Box(0, 255, (SIZE, SIZE), np.uint8),
        wanted=gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
    )

    def __init__(self, *, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step, self._is_right = 0, bool(self.np_random.integers(2))
        return self._draw(), {}

    def step(self, action):
        reward = 1.0 if self._is_right == self._is_right_wanted else -1.0
        self._is_right ^= bool(action)
        self._step += 1
        return self._draw(), reward, False, self._step >= self.STEPS, {}

    def render(self):
        return np.repeat(self._image[..., None], 3, axis=-1)

    def _draw(self):
        if self._step % 5 == 0:
            self._is_right_wanted = bool(self.np_random.integers(2))
        half = self.SIZE // 2
        row, column = self.np_random.integers((self.SIZE - 1, half - 1))
        self._image = np.zeros((self.SIZE, self.SIZE), np.uint8)
        self._image[row : row + 2, column + half * self._is_right :][:, :2] = 255
        # Far from 0 compared with its spread, so that it must be normalised.
        wanted = np.array([503 if self._is_right_wanted else 497, 7], np.float32)
        return {"camera": self._image.copy(), "wanted": wanted}


CROSSING = f"{__name__}:Crossing"


def make_crossings(num_envs):
    """Create a vector of crossings, preprocessed but not stacked."""
    return make_vector(CROSSING, num_envs, frames=FrameSettings(stacked=1))


def make_corridors(num_envs, kind=Corridor, **settings):
    """Create a vector of corridor environments."""
    return SyncVectorEnv(
        [lambda: kind(**settings)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )
