"""Random actions until there is a predicted reward, so that no agent sees the true one."""

import copy
from collections.abc import Callable

import gymnasium as gym

from rl_teacher.common.errors import NoPredictor
from rl_teacher.wrappers.driver import WrapperDriver

LOOK_EVERY = 256
"""Interval, in steps, between two waits for the first answers."""


def act_at_random(session: WrapperDriver, take_steps: Callable[[int], int], max_steps: int) -> None:
    """Take random steps until the session returns the predicted reward.

    Args:
        session: driver of a wrapper.
        take_steps: takes a number of random steps and returns the number of environment steps.
        max_steps: maximum number of environment steps.

    Raises:
        NoPredictor: the labels did not suffice for a fit.
    """
    num_steps = 0
    while not session.using_predicted_reward:
        if num_steps >= max_steps:
            raise NoPredictor(
                f"After {num_steps:,} random steps {session.num_labels} labels have come, too few "
                "to fit a predictor. Ask for fewer pretrain_labels, for more steps (max_steps), or "
                "of a teacher who can tell."
            )
        num_steps += take_steps(LOOK_EVERY)
        session.wait_for_first_answers()


def seeded(space: gym.Space, seed: int) -> gym.Space:
    """Return a seeded copy of a space, which leaves the generator of the original unchanged."""
    copied = copy.deepcopy(space)
    copied.seed(seed)
    return copied
