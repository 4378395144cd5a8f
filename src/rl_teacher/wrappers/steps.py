"""Buffer that collects single steps of N environments into rollouts."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Shaped

from rl_teacher.envs.rollout import Rollout


@dataclass(frozen=True)
class StepRecord:
    """One step of N environments; a row of a `Rollout`, whose columns it has.

    Attributes:
        observations: [N, ...] as the predictor sees them.
        actions: [N, ...].
        rewards: [N] the true ones.
        next_observations: [N, ...] before any reset.
        terminated: [N].
        truncated: [N].
        is_valid: [N] False where the environment only reset itself, or was over.
        scene_states: [N, K].
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
        """Whether a rollout is due."""
        return len(self._steps) >= self._num_steps

    def append(self, step: StepRecord) -> None:
        """Add a step."""
        self._steps.append(step)

    def break_off(self, envs: Bool[np.ndarray, " env"]) -> None:
        """The latest step was the last of its episode in some environments: these begin anew.

        Note: so a rollout is handed over only when the step after it comes.
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
