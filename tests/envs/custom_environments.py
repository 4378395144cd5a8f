"""User-defined environments for tests, most of them with one deliberate fault."""
# Faulty signatures are deliberate.
# pyright: reportIncompatibleMethodOverride=false

import random

import gymnasium as gym
import numpy as np


class Point(gym.Env):
    """Point on a line, without faults."""

    observation_space = gym.spaces.Box(-100, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - Gymnasium's way

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.place = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1)
        return self.observation(), {}

    def step(self, action):
        self.place += 0.2 * action - 0.1
        return self.observation(), -abs(self.place - 3), False, False, {}

    def observation(self):
        return np.array([self.place], np.float32)

    def render(self):
        image = np.zeros((32, 64, 3), np.uint8)
        image[:, int(np.clip(32 + 8 * self.place, 0, 63))] = 255
        return image


def point(render_mode=None):
    return gym.wrappers.TimeLimit(Point(render_mode), 40)


def twice_limited(render_mode=None):
    """Environment whose inner time limit ends an episode first."""
    return gym.wrappers.TimeLimit(point(render_mode), 60)


def three_torques(render_mode=None):
    """Pendulum with discrete actions: a wrapper converts them to those of the environment."""
    env = gym.make("Pendulum-v1", render_mode=render_mode)
    torques = np.array([[-2], [0], [2]], np.float32)
    return gym.wrappers.TransformAction(env, torques.__getitem__, gym.spaces.Discrete(3))


class Endless(Point):
    pass


class Spaceless(gym.Env):
    """An environment that does not declare its spaces."""


class Actionless(gym.Env):
    """An environment that does not declare its actions."""

    observation_space = Point.observation_space


class OneWay(Point):
    """A point that refuses the action that its mask does not allow."""

    allowed = (0, 1)

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        return observation, {"action_mask": np.array(self.allowed, np.int8)}

    def step(self, action):
        if not self.allowed[action]:
            raise ValueError(f"action {action} is not allowed")
        return super().step(action)


def one_way(render_mode=None):
    return gym.wrappers.TimeLimit(OneWay(render_mode), 40)


class LongMask(OneWay):
    allowed = (0, 1, 1)


class GrowsAfterThirtySteps(Point):
    """An observation that gets a second number after the check before training."""

    num_steps = 0

    def step(self, action):
        self.num_steps += 1
        return super().step(action)

    def observation(self):
        return np.full(2 if self.num_steps > 30 else 1, self.place, np.float32)


class RendersNothing(Point):
    def render(self):
        return None


ONLY_POINT = gym.wrappers.TimeLimit(Point(), 40)


def the_same_point():
    return ONLY_POINT


class NoMetadata(Point):
    metadata = None


class WordyFrameRate(Point):
    metadata = {"render_modes": ["rgb_array"], "render_fps": "fast"}  # noqa: RUF012


class BackwardFrameRate(Point):
    metadata = {"render_modes": ["rgb_array"], "render_fps": -5}  # noqa: RUF012


class OldReset(Point):
    def reset(self):
        return self.observation(), {}


class OldResetValue(Point):
    def reset(self, *, seed=None, options=None):
        return self.observation()


class OldStep(Point):
    def step(self, action):
        return self.observation(), 0.0, False, {}


class Raises(Point):
    def step(self, action):
        raise KeyError("wheel")


class WrongShape(Point):
    def observation(self):
        return np.zeros(2, np.float32)


class IsAList(Point):
    def observation(self):
        return [self.place]


class IsNaN(Point):
    def observation(self):
        return np.array([np.nan], np.float32)


class IsHuge(Point):
    def observation(self):
        return np.array([2.0**100], np.float32)


class IsAHugeInteger(Point):
    observation_space = gym.spaces.Box(0, 2**62, (1,), np.int64)

    def observation(self):
        return np.array([4 * 10**18])


class OtherType(Point):
    def observation(self):
        return np.array([self.place], np.float64)


class Booleans(Point):
    """Point whose observations are booleans in two dimensions, which are flattened."""

    # Gymnasium's types lack booleans.
    observation_space = gym.spaces.Box(0, 1, (2, 3), bool)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def observation(self):
        return np.full((2, 3), self.place > 0)


def booleans(render_mode=None):
    return gym.wrappers.TimeLimit(Booleans(render_mode), 40)


class FloatForInteger(Point):
    observation_space = gym.spaces.Box(-100, 100, (1,), np.int64)


class RewardIsAnArray(Point):
    def step(self, action):
        return self.observation(), np.zeros(3), False, False, {}


class RewardIsNaN(Point):
    def step(self, action):
        return self.observation(), np.nan, False, False, {}


class RewardIsHuge(Point):
    def step(self, action):
        return self.observation(), 1e200, False, False, {}


class TruncatedIsANumber(Point):
    def step(self, action):
        return self.observation(), 0.0, False, 0, {}


class Random(Point):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.random.default_rng().uniform(-1, 1)
        return self.observation(), {}


class Remembers(Point):
    """Point that begins where the episode before has ended, except after a reset with a seed."""

    def reset(self, *, seed=None, options=None):
        before = self.place
        super().reset(seed=seed)
        if seed is None:
            self.place += before
        return self.observation(), {}


class Silent(Point):
    def step(self, action):
        assert action > 1


class OtherGenerator(Point):
    """Environment with a generator of Python."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.np_random = random.Random(seed)  # pyright: ignore[reportAttributeAccessIssue]
        return super().reset()


class NoPictures(Point):
    metadata = {"render_modes": []}  # noqa: RUF012


class GrowingPicture(Point):
    """Point whose frames grow with its place."""

    def render(self):
        return np.zeros((32, 64 + int(10 * abs(self.place)), 3), np.uint8)


class WrongPicture(Point):
    def render(self):
        return np.zeros((4, 4))


class Words(Point):
    observation_space = gym.spaces.Sequence(gym.spaces.Text(5))  # pyright: ignore[reportAssignmentType]


class Undeclared(gym.Space):
    """A space that does not declare whether it can be flattened."""

    def sample(self, mask=None, probability=None):
        return "go"


class Mission(Point):
    observation_space = gym.spaces.Dict(mission=Undeclared(), place=Point.observation_space)  # pyright: ignore[reportAssignmentType]


class Cameras(Point):
    observation_space = gym.spaces.Dict(  # pyright: ignore[reportAssignmentType]
        front=gym.spaces.Box(0, 255, (24, 20, 3), np.uint8),
        rear=gym.spaces.Box(0.0, 1.0, (24, 20), np.float32),
        place=Point.observation_space,
    )


class Blank(Point):
    observation_space = gym.spaces.Box(-1, 1, (0,), np.float32)


class ManyStates(Point):
    observation_space = gym.spaces.Discrete(2**31)  # pyright: ignore[reportAssignmentType]


class ManyMoves(Point):
    action_space = gym.spaces.Discrete(2**31)


class HasANetwork(Point):
    """Environment whose `model` attribute is not a MuJoCo model."""

    class Data:
        qpos = np.zeros(3)

    model, data = object(), Data()


class Lamp(gym.Env):
    """Image observations of a moving row, without a render mode."""

    observation_space = gym.spaces.Box(0, 255, (24, 20, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": [], "render_fps": 10}  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(10))
        return self.observation(), {}

    def step(self, action):
        self.place += int(action)
        return self.observation(), float(action), self.place > 30, False, {}

    def observation(self):
        image = np.zeros((24, 20, 3), np.uint8)
        image[self.place % 24, :, 1] = 200
        return image


class GrowingLamp(Lamp):
    def observation(self):
        return np.zeros((24, 20 + self.place // 12, 3), np.uint8)


class LampOfInts(Lamp):
    def observation(self):
        return super().observation().astype(np.int64)


class FaintLamp(Lamp):
    observation_space = gym.spaces.Box(0, 1, (24, 20), np.float32)

    def observation(self):
        return super().observation()[..., 1] / np.float32(200)


class GlaringLamp(FaintLamp):
    def observation(self):
        return 3 * super().observation()


class Heights(Lamp):
    """Two-dimensional observations that are no images."""

    observation_space = gym.spaces.Box(-1000, 1000, (4, 4), np.float32)


class ManyColours(Lamp):
    observation_space = gym.spaces.Box(0, 255, (24, 20, 7), np.uint8)

    def observation(self):
        return np.zeros((24, 20, 7), np.uint8)


def hopper():
    return gym.make("Hopper-v5")


def cartpole(render_mode=None):
    return gym.make("CartPole-v1", render_mode=render_mode)


def nothing():
    return None


def asserts():
    assert not Point


def fails():
    raise FileNotFoundError("robot.urdf")


MODULE = __name__
