"""Acting at random until there is a predicted reward, so that no agent ever sees the true one."""

import copy
from collections.abc import Callable

import gymnasium as gym

from rl_teacher.common.errors import NoPredictor
from rl_teacher.wrappers.driver import WrapperDriver

LOOK_EVERY = 256
"""Steps after which a person who has everything to answer is waited for."""


def act_at_random(session: WrapperDriver, take_steps: Callable[[int], int], max_steps: int) -> None:
    """Take random steps until the session returns the predicted reward.

    Args:
        session: of a wrapper.
        take_steps: takes so many random steps, and returns how many environment steps these were.
        max_steps: environment steps after which to give up.

    Raises:
        NoPredictor: the labels did not come by then.
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
    """A copy of an action space, so that drawing from it changes nobody else's draws."""
    copied = copy.deepcopy(space)
    copied.seed(seed)
    return copied
