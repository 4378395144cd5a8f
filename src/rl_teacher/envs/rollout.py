"""What an agent experienced: T steps of N environments."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Shaped


@dataclass(frozen=True)
class Rollout:
    """T consecutive steps of N environments, in the order they were lived.

    Attributes:
        observations: [T, N, ...] what the agent saw before it acted.
        actions: [T, N, ...] what it did, as the environment was given it.
        rewards: [T, N] the environment's own reward.
        next_observations: [T, N, ...] what the action led to, *before* any reset.
        terminated: [T, N] the episode ended by the environment's rules.
        truncated: [T, N] the episode was cut by its time limit.
        is_valid: [T, N] False where the environment only reset itself, or went to where an episode
            starts, and ignored the action (Gymnasium's NEXT_STEP autoreset; Atari's start points);
            such a step belongs to no episode.
        scene_states: [T, N, K] what a clip is drawn from (MuJoCo: qpos; else which
            episode, and which of its steps).
        action_masks: [T, N, A] which of the discrete actions the environment allowed; None where
            it does not say, which means all of them.
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

    @property
    def ended(self) -> Bool[np.ndarray, "time env"]:
        """[T, N] the last step of an episode, for whatever reason."""
        return self.terminated | self.truncated

    @property
    def num_steps(self) -> int:
        """Environment steps in it: T * N, less the steps that were only resets."""
        return int(self.is_valid.sum())
