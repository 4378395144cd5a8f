"""Segments: consecutive steps of one episode, which comparisons show as clips."""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int64, Shaped

SEGMENT_ARRAYS = ("observations", "actions", "rewards", "scene_states")
"""Arrays of a segment, with one row per step."""
MAX_FPS = 30.0
SHORT_S = 1.0
"""Duration that shorter clips are slowed down to; every step of theirs is a frame."""
SLOWEST = 1 / 16
"""Lowest speed of a clip."""


@dataclass(frozen=True)
class Segment:
    """T consecutive steps of one episode.

    Attributes:
        env_id: id of the environment.
        observations: [T, ...] float32 for vectors, uint8 for images.
        actions: [T, ...] float32, or int64 for discrete actions.
        rewards: [T] the environment's own rewards, for synthetic teachers and reports.
        scene_states: [T, K] the states that clips are rendered from: MuJoCo's qpos, or the numbers
            of the episode and of the step in it.
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

    @property
    def layout(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape of a step and type of each array, which all segments of an experiment share."""
        return tuple((array.shape[1:], array.dtype.str) for array in self._arrays)

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(getattr(self, name) for name in SEGMENT_ARRAYS)

    @cached_property
    def content_hash(self) -> str:
        """The SHA-256 of the environment's id and all arrays, which names the segment's clip."""
        digest = hashlib.sha256(self.env_id.encode())
        for array in self._arrays:
            # Type and shape are hashed too: equal bytes may belong to different arrays.
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def frame_stride(fps: float) -> int:
    """Return the k of which every k-th step is a frame, for at most 30 frames per second.

    Args:
        fps: environment steps that a clip shows per second.
    """
    return max(1, math.ceil(fps / MAX_FPS))


def playback_speed(duration_s: float) -> float:
    """Return the speed at which a clip is played: in slow motion if it is shorter than SHORT_S.

    Clips side by side are played at the speed of the longest, so that the order of their ends
    stays visible.
    """
    return min(max(duration_s / SHORT_S, SLOWEST), 1.0)


def frame_steps(num_steps: int, fps: float) -> tuple[Int64[np.ndarray, " frame"], float]:
    """Choose the steps of a segment that become frames of its clip.

    Args:
        num_steps: number of steps in the segment.
        fps: environment steps that a clip shows per second.

    Returns:
        [F] indices of steps, and frames per second.
    """
    stride = 1 if num_steps < SHORT_S * fps else frame_stride(fps)
    return np.arange(0, num_steps, stride), fps / stride
