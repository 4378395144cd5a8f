"""Rollouts: T steps of N environments."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Shaped

from rl_teacher.common.errors import BadObservation

LARGEST = 1e15
"""Largest magnitude of an observation or a reward. Training computes in single precision, where
sums of the squares of larger numbers overflow."""


@dataclass(frozen=True)
class Rollout:
    """T consecutive steps of N environments, in order of time.

    Attributes:
        observations: [T, N, ...] the observations before each action.
        actions: [T, N, ...] the actions given to the environments.
        rewards: [T, N] the environments' own rewards.
        next_observations: [T, N, ...] the next observations, before any reset.
        terminated: [T, N] whether the environment's rules ended the episode.
        truncated: [T, N] whether the time limit ended the episode.
        is_valid: [T, N] False for steps that ignored the action and belong to no episode: resets
            (Gymnasium's NEXT_STEP autoreset) and the way to a start point (Atari).
        scene_states: [T, N, K] the states that clips are rendered from: MuJoCo's qpos, or the
            numbers of the episode and of the step in it.
        action_masks: [T, N, A] the discrete actions that the environment allowed; None if it
            allows all of them.
        lost_life: [T, N] whether the agent lost a life, though the episode may go on; None if there
            are no lives, or ends are hidden from the agent.
    """

    observations: Shaped[np.ndarray, "time env ..."]
    actions: Shaped[np.ndarray, "time env ..."]
    rewards: Float32[np.ndarray, "time env"]
    next_observations: Shaped[np.ndarray, "time env ..."]
    terminated: Bool[np.ndarray, "time env"]
    truncated: Bool[np.ndarray, "time env"]
    is_valid: Bool[np.ndarray, "time env"]
    scene_states: Shaped[np.ndarray, "time env scene"]
    action_masks: Bool[np.ndarray, "time env action"] | None = None
    lost_life: Bool[np.ndarray, "time env"] | None = None

    @property
    def ended(self) -> Bool[np.ndarray, "time env"]:
        """[T, N] whether the step was the last of its episode."""
        return self.terminated | self.truncated

    @property
    def num_steps(self) -> int:
        """The number of valid environment steps, at most T * N."""
        return int(self.is_valid.sum())


def find_excess(values: Shaped[np.ndarray, "..."]) -> tuple[int, ...] | None:
    """Return the index of the first number that is not finite or beyond `LARGEST`; None if none."""
    # Images are skipped. Comparisons with NaN are false.
    if values.dtype.itemsize == 1 or not values.size:
        return None
    if values.min() >= -LARGEST and values.max() <= LARGEST:
        return None
    return tuple(np.argwhere(~((values >= -LARGEST) & (values <= LARGEST)))[0].tolist())


def check_numbers(what: str, values: Shaped[np.ndarray, "..."], env_axis: int = 0) -> None:
    """Check the numbers that environments returned.

    Args:
        what: their name.
        values: the numbers.
        env_axis: axis of the environments.

    Raises:
        BadObservation: a number is not finite, or too large.
    """
    if (index := find_excess(values)) is not None:
        raise BadObservation(
            f"Environment number {index[env_axis]} returned {what} that are not finite, or beyond "
            f"{LARGEST:g}: {values[index]}. Nothing was learned from it. Correct the environment, "
            "or wrap it so that its numbers are finite and not so large."
        )
