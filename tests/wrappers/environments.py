"""Small environments for tests of the wrappers."""

from typing import Any

import gymnasium as gym
import numpy as np

from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.wrappers import PreferenceWrapper

QUICK: dict[str, Any] = {
    "fit": "sync",
    "segment_length": 4,
    "pretrain_labels": 10,
    "n_labels": 20,
    "steps_between_labels": 50,
    "reward": PredictorConfig(hidden=(16,), ensemble_size=2, batch_size=8),
}
"""Keywords with which the first fit is done after a few hundred steps."""

BOX = gym.spaces.Box(-10, 10, (2,), np.float32)


class Counter(gym.Env):
    """Environment with episodes of fixed length; observations are episode and step numbers.

    The last step terminates or truncates. The reward is the first action.
    """

    metadata = {"render_modes": [], "render_fps": 20}  # noqa: RUF012
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: gym.Space = gym.spaces.Discrete(3)

    def __init__(self, length=7, terminates=True):
        self.length, self.terminates = length, terminates
        self.episode, self.age = -1, 0

    def seen(self) -> Any:
        return np.array([self.episode, self.age], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.episode = -1
        self.episode, self.age = self.episode + 1, 0
        return self.seen(), {}

    def step(self, action):
        self.age += 1
        is_over = self.age >= self.length
        reward = float(np.ravel(action)[0])
        return self.seen(), reward, is_over and self.terminates, is_over and not self.terminates, {}


class Continuous(Counter):
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)


class InPlace(Continuous):
    """Environment that overwrites the actions that it is given."""

    def step(self, action):
        outcome = super().step(action)
        action[:] = 9
        return outcome


class OneMove(Counter):
    """Environment that allows one action at a time, and refuses the others."""

    def info(self):
        return {"action_mask": np.eye(3, dtype=np.int8)[self.age % 3]}

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        return observation, self.info()

    def step(self, action):
        if action != self.age % 3:
            raise ValueError(f"action {action} is not allowed")
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, self.info()


class ManyActions(Counter):
    action_space = gym.spaces.MultiDiscrete([3, 2])


class Switches(Counter):
    action_space = gym.spaces.MultiBinary(3)


class Pictures(Counter):
    observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def seen(self):
        picture = np.zeros((36, 36, 1), np.uint8)
        picture[: self.age] = 255
        return picture


class Parts(Counter):
    observation_space = gym.spaces.Dict(
        place=gym.spaces.Box(-np.inf, np.inf, (1,), np.float32), phase=gym.spaces.Discrete(3)
    )

    def seen(self):
        return {"place": np.array([self.age], np.float32), "phase": self.age % 3}


class PictureAndParts(Counter):
    observation_space = gym.spaces.Dict(
        picture=gym.spaces.Box(0, 255, (12, 12), np.uint8), parts=Parts.observation_space
    )

    def seen(self):
        picture = np.zeros((12, 12), np.uint8)
        picture[: self.age] = 255
        return {"picture": picture, "parts": Parts.seen(self)}  # pyright: ignore[reportArgumentType]


KINDS = {kind.__name__: kind for kind in (Counter, Continuous, ManyActions, Parts, Pictures)}

for name, kind in {**KINDS, "Switches": Switches}.items():
    gym.register(f"wrapped/{name}-v0", entry_point=kind, order_enforce=False)


def wrapped(kind: type[Counter] = Counter, length: int = 7, **keywords: Any) -> PreferenceWrapper:
    """Return a wrapped small environment that learns quickly."""
    return PreferenceWrapper(kind(length=length), **quick_with(keywords))


def quick_with(keywords: dict[str, Any]) -> dict[str, Any]:
    """Add the keywords of `QUICK` that have an effect beside the given ones."""
    quick = set(QUICK)
    if "predictor_path" in keywords:
        quick = quick - {"reward"} if keywords.get("teacher") else set()
    if "labels" in keywords and "n_labels" not in keywords:
        quick &= {"fit", "segment_length", "reward"}
    elif keywords.get("collect_only"):
        quick -= {"reward", "pretrain_labels"}
    return {name: QUICK[name] for name in quick} | keywords


def take_steps(env: Any, num_steps: int, seed: int = 0) -> list[tuple[float, float]]:
    """Take random steps and return the returned and the true rewards."""
    actions = env.action_space
    actions.seed(seed)
    env.reset(seed=seed)
    rewards = []
    for _ in range(num_steps):
        _, reward, terminated, truncated, info = env.step(actions.sample())
        rewards.append((float(reward), info["true_reward"]))
        if terminated or truncated:
            env.reset()
    return rewards
