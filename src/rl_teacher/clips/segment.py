"""A segment: consecutive steps of one episode, the thing that is compared."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Shaped


@dataclass(frozen=True)
class Segment:
    """T consecutive steps of one episode.

    Attributes:
        env_id: the environment it was lived in.
        observations: [T, ...] float32 for vectors.
        actions: [T, ...] float32, or int64 when discrete.
        rewards: [T] the environment's own reward, for synthetic teachers and for reports.
        scene_states: [T, K] what a clip is drawn from (MuJoCo: qpos; else which episode, and which
            of its steps).
    """

    env_id: str
    observations: Shaped[np.ndarray, "time ..."]
    actions: Shaped[np.ndarray, "time ..."]
    rewards: Float32[np.ndarray, " time"]
    scene_states: Shaped[np.ndarray, "time scene"]

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def true_return(self) -> float:
        """The undiscounted sum of the environment's own rewards."""
        return float(self.rewards.sum(dtype=np.float64))

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over the environment's name and every array: equal content, equal name."""
        digest = hashlib.sha256(self.env_id.encode())
        for array in (self.observations, self.actions, self.rewards, self.scene_states):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()
