"""A teacher of your own: a function of two segments. This one wants the pendulum to hang still.

python examples/own_teacher.py [STEPS]
"""

import sys

import gymnasium as gym
import numpy as np

from rl_teacher import PreferenceWrapper, Segment


def restlessness(segment: Segment) -> float:
    """How fast it turns, and how far it is from hanging; observations are cos, sin, speed."""
    return float(np.abs(segment.observations[:, 2]).mean() + segment.observations[:, 0].mean())


def hang_still(left: Segment, right: Segment) -> float:
    """Positive where the left segment is better; `left`, `equal` and so on would do as well."""
    return restlessness(right) - restlessness(left)


def main(num_steps: int = 3_000) -> None:
    """Collect, fit, and look at what it has learned."""
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
