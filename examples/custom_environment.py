"""Custom environment without a reward: python examples/custom_environment.py [STEPS]."""

import sys
from typing import Any

import gymnasium as gym
import numpy as np

from rl_teacher import PreferenceWrapper, Segment


class Lamp(gym.Env):
    """Lamp with three switches; the teacher prefers it bright, and green to red."""

    observation_space = gym.spaces.Dict(
        brightness=gym.spaces.Box(0, 3, (1,), np.float32), colour=gym.spaces.Discrete(2)
    )
    action_space = gym.spaces.MultiBinary(3)

    def _observed(self, switches: Any) -> dict[str, Any]:
        return {"brightness": np.array([np.sum(switches)], np.float32), "colour": int(switches[0])}

    def reset(self, **begin: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start a new episode in the dark."""
        super().reset(**begin)
        return self._observed(np.zeros(3)), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Set the switches; the reward is always 0."""
        return self._observed(action), 0.0, False, False, {}


def bright_and_green(left: Segment, right: Segment) -> float:
    """Return how much better left is; observations are flattened, with a one-hot colour."""
    return float(left.observations[:, [0, 2]].sum() - right.observations[:, [0, 2]].sum())


def main(num_steps: int = 3_000) -> None:
    """Fit a predictor, and print its reward of two states."""
    env = PreferenceWrapper(
        gym.wrappers.TimeLimit(Lamp(), 50), teacher=bright_and_green, segment_length=5
    )
    env.pretrain()
    env.reset(seed=0)
    for _ in range(num_steps):
        *_, is_over, _ = env.step(env.action_space.sample())
        if is_over:
            env.reset()
    dark_red, bright_green = np.array([[0, 1, 0], [3, 0, 1]], np.float32)
    switches = np.array([1, 1, 1])
    print(f"dark and red: {env.predictor(dark_red, switches):.2f}")
    print(f"bright and green: {env.predictor(bright_green, switches):.2f}")
    env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
