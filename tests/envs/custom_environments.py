"""Environments as somebody might write them, each with one thing wrong."""
# They are wrong on purpose.
# pyright: reportIncompatibleMethodOverride=false

import gymnasium as gym
import numpy as np


class Point(gym.Env):
    """A point on a line; nothing is wrong with it."""

    observation_space = gym.spaces.Box(-100, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - Gymnasium's way

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.place = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1)
        return self.seen(), {}

    def step(self, action):
        self.place += 0.2 * action - 0.1
        return self.seen(), -abs(self.place - 3), False, False, {}

    def seen(self):
        return np.array([self.place], np.float32)

    def render(self):
        picture = np.zeros((32, 64, 3), np.uint8)
        picture[:, int(np.clip(32 + 8 * self.place, 0, 63))] = 255
        return picture


def point(render_mode=None):
    return gym.wrappers.TimeLimit(Point(render_mode), 40)


class Endless(Point):
    pass


class OldReset(Point):
    def reset(self):
        return self.seen(), {}


class OldResetValue(Point):
    def reset(self, *, seed=None, options=None):
        return self.seen()


class OldStep(Point):
    def step(self, action):
        return self.seen(), 0.0, False, {}


class Raises(Point):
    def step(self, action):
        raise KeyError("wheel")


class WrongShape(Point):
    def seen(self):
        return np.zeros(2, np.float32)


class IsAList(Point):
    def seen(self):
        return [self.place]


class IsNaN(Point):
    def seen(self):
        return np.array([np.nan], np.float32)


class OutOfBounds(Point):
    def seen(self):
        return np.array([1000.0], np.float32)


class OtherType(Point):
    def seen(self):
        return np.array([self.place], np.float64)


class RewardIsAnArray(Point):
    def step(self, action):
        return self.seen(), np.zeros(3), False, False, {}


class RewardIsNaN(Point):
    def step(self, action):
        return self.seen(), np.nan, False, False, {}


class TruncatedIsANumber(Point):
    def step(self, action):
        return self.seen(), 0.0, False, 0, {}


class Random(Point):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.random.default_rng().uniform(-1, 1)
        return self.seen(), {}


class NoPictures(Point):
    metadata = {"render_modes": []}  # noqa: RUF012


class WrongPicture(Point):
    def render(self):
        return np.zeros((4, 4))


class Words(Point):
    observation_space = gym.spaces.Text(5)  # pyright: ignore[reportAssignmentType]


class HasANetwork(Point):
    """Calls something else its model."""

    class Data:
        qpos = np.zeros(3)

    model, data = object(), Data()


class Lamp(gym.Env):
    """A picture that a lamp walks through; it has no other way to be drawn."""

    observation_space = gym.spaces.Box(0, 255, (24, 20, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": [], "render_fps": 10}  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(10))
        return self.seen(), {}

    def step(self, action):
        self.place += int(action)
        return self.seen(), float(action), self.place > 30, False, {}

    def seen(self):
        picture = np.zeros((24, 20, 3), np.uint8)
        picture[self.place % 24, :, 1] = 200
        return picture


class GrowingLamp(Lamp):
    def seen(self):
        return np.zeros((24, 20 + self.place // 12, 3), np.uint8)


class LampOfInts(Lamp):
    def seen(self):
        return super().seen().astype(np.int64)


class FaintLamp(Lamp):
    observation_space = gym.spaces.Box(0, 1, (24, 20), np.float32)

    def seen(self):
        return super().seen()[..., 1] / np.float32(200)


class GlaringLamp(FaintLamp):
    def seen(self):
        return 3 * super().seen()


class Heights(Lamp):
    """A table of numbers, which is no picture."""

    observation_space = gym.spaces.Box(-1000, 1000, (4, 4), np.float32)


class ManyColours(Lamp):
    observation_space = gym.spaces.Box(0, 255, (24, 20, 7), np.uint8)

    def seen(self):
        return np.zeros((24, 20, 7), np.uint8)


def hopper():
    return gym.make("Hopper-v5")


def cartpole(render_mode=None):
    return gym.make("CartPole-v1", render_mode=render_mode)


def nothing():
    return None


def fails():
    raise FileNotFoundError("robot.urdf")


MODULE = __name__
