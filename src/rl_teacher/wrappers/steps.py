"""Buffer that collects single steps of N environments into rollouts."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Shaped

from rl_teacher.envs.rollout import Rollout


@dataclass(frozen=True)
class StepRecord:
    """One step of N environments, with the fields of a `Rollout`.

    Attributes:
        observations: [N, ...] inputs of the predictor.
        actions: [N, ...] actions.
        rewards: [N] true rewards.
        next_observations: [N, ...] observations before any reset.
        terminated: [N] True where the episode terminated.
        truncated: [N] True where the episode was truncated.
        is_valid: [N] False where the environment only reset itself or waited for a reset.
        scene_states: [N, K] scene states before the step.
    """

    observations: Shaped[np.ndarray, "env ..."]
    actions: Shaped[np.ndarray, "env ..."]
    rewards: Float32[np.ndarray, " env"]
    next_observations: Shaped[np.ndarray, "env ..."]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]
    is_valid: Bool[np.ndarray, " env"]
    scene_states: Float[np.ndarray, "env scene"]


class StepBuffer:
    """Buffer of the latest steps."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps
        self._steps: list[StepRecord] = []

    @property
    def is_full(self) -> bool:
        """True if a rollout is due."""
        return len(self._steps) >= self._num_steps

    def append(self, step: StepRecord) -> None:
        """Add a step."""
        self._steps.append(step)

    def break_off(self, envs: Bool[np.ndarray, " env"]) -> None:
        """Mark the latest step truncated in environments that were reset.

        A rollout is therefore passed on only when the next step arrives.
        """
        if self._steps:
            last = self._steps[-1]
            last.truncated[envs & last.is_valid & ~last.terminated] = True

    def take(self) -> Rollout | None:
        """Return and remove all steps as one rollout; None if there are none."""
        if not self._steps:
            return None
        names = StepRecord.__dataclass_fields__
        columns = {name: np.stack([getattr(s, name) for s in self._steps]) for name in names}
        self._steps = []
        return Rollout(**columns)
