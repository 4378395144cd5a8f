"""Gymnasium's Hopper-v4 with `terminate_when_unhealthy=False`, simulated in batches.

Body, observations and reward are the same; every episode has 1,000 steps.
"""

from dataclasses import replace

import numpy as np

from rl_teacher.envs.mujoco import rules
from rl_teacher.envs.mujoco.suite import PLAIN, TASKS
from rl_teacher.envs.mujoco.task import Physics, Score

ENV_ID = "FixedHopper-v4"


def score(physics: Physics, velocity_x: np.ndarray, actions: np.ndarray) -> Score:
    """Compute forward velocity + 1 while upright - 1e-3 * squared torques; never terminate."""
    rewards, _ = rules.score_hopper_v5(physics, velocity_x, actions)
    return rewards, None


def register() -> None:
    """Register the environment in this process."""
    task = replace(PLAIN["Hopper-v5"], id=ENV_ID, score=score, can_terminate=False)
    TASKS.setdefault(ENV_ID, task)
