"""Custom teacher: a function of two segments that prefers a pendulum hanging still.

python examples/custom_teacher.py [STEPS]
"""

import sys

import gymnasium as gym
import numpy as np

from rl_teacher import PreferenceWrapper, Segment


def restlessness(segment: Segment) -> float:
    """Return mean speed plus mean height; observations are cos, sin, speed."""
    return float(np.abs(segment.observations[:, 2]).mean() + segment.observations[:, 0].mean())


def hang_still(left: Segment, right: Segment) -> float:
    """Return a positive number if left is better; "left", "right" or "equal" work as well."""
    return restlessness(right) - restlessness(left)


def main(num_steps: int = 3_000) -> None:
    """Collect labels, fit, and print the predicted reward of two states."""
    env = PreferenceWrapper(gym.make("Pendulum-v1"), teacher=hang_still, segment_length=15)
    env.pretrain()
    env.reset(seed=0)
    for _ in range(num_steps):
        *_, is_over, _ = env.step(env.action_space.sample())
        if is_over:
            env.reset()
    still, whirling = np.array([[-1, 0, 0], [0, 1, 6]], np.float32)
    no_torque = np.zeros(1, np.float32)
    print(f"hanging still: {env.predictor(still, no_torque):.2f}")
    print(f"whirling: {env.predictor(whirling, no_torque):.2f}")
    env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
