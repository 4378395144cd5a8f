"""From an agent's actions to the environment's."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from jaxtyping import Bool, Shaped

Masks = Bool[np.ndarray, "env action"] | None
"""Which of the discrete actions each environment allows; None: all of them."""


@dataclass(frozen=True)
class ActionScale:
    """From the agent's actions, which live around [-1, 1], to the environment's.

    Attributes:
        middle: [A] or None when actions are discrete.
        half_range: [A] or None.
        start: the environment's number of the first discrete action.
    """

    middle: np.ndarray | None
    half_range: np.ndarray | None
    start: int = 0

    @staticmethod
    def of(space: gym.Space) -> "ActionScale":
        """The scale of one environment's action space; unbounded boxes are left as they are."""
        if isinstance(space, gym.spaces.Discrete):
            return ActionScale(None, None, int(space.start))
        if not isinstance(space, gym.spaces.Box):
            return ActionScale(None, None)
        if not np.all(np.isfinite(space.low)) or not np.all(np.isfinite(space.high)):
            return ActionScale(np.zeros(space.shape), np.full(space.shape, np.inf))
        return ActionScale((space.low + space.high) / 2, (space.high - space.low) / 2)

    def to_environment(self, actions: Shaped[np.ndarray, "env ..."]) -> np.ndarray:
        """What the environment is given: clipped to its bounds."""
        if self.middle is None or self.half_range is None:
            return actions + self.start
        if np.isinf(self.half_range).any():
            return actions
        clipped = np.clip(actions, -1.0, 1.0)
        return (self.middle + self.half_range * clipped).astype(np.float32)

    def from_environment(self, actions: Shaped[np.ndarray, "..."]) -> np.ndarray:
        """Bounded actions of the environment as the agent's, in -1..1 and float32."""
        if self.middle is None or self.half_range is None:
            return actions - self.start
        width = np.where(self.half_range > 0, self.half_range, 1.0)
        scaled = (actions - self.middle) / width
        return np.asarray(scaled, np.float32)
