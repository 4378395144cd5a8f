"""Body poses of a clip, and their file format.

T frames, B moving bodies in the scene's order. A pose is x y z, then the quaternion
w x y z. The file, little-endian:

    magic "RLTP" | u16 version | u16 dtype | u32 T | u32 B | f32 fps | 12 bytes of zero
    int16 only: f32[7] offset | f32[7] scale      value = offset + scale * int16
    [T, B, 7] float32 (dtype 0) or int16 (dtype 1)
"""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import math
import struct
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float32, Inexact

from rl_teacher.clips.scene import Poses, moving_bodies
from rl_teacher.common.errors import CorruptClip

POSE = 7
"""Numbers in a pose."""
COARSEST_STEP = 1e-4
"""Coarsest int16 resolution, in metres or in components of a unit quaternion. Longer ranges are
stored as float32."""

MAGIC = b"RLTP"
VERSION = 1
FLOAT32, INT16 = 0, 1
HEADER = struct.Struct("<4sHHIIf12x")
RANGE_SIZE = 2 * POSE * 4
INT16_MAX = 32_767
MAX_NUMBER = 1e10
"""Largest number of a pose; MuJoCo takes larger ones for a simulation that has diverged."""


def body_poses(model: mujoco.MjModel, scene_states: Inexact[np.ndarray, "time nq"]) -> Poses:
    """Compute the poses of moving bodies with MuJoCo's forward kinematics.

    Args:
        model: the MuJoCo model.
        scene_states: [T, nq] MuJoCo's qpos in each frame.

    Returns:
        [T, B, 7] poses. Quaternions have the sign nearer to the previous frame's, so that the page
        can interpolate between frames.
    """
    pose_now = mujoco.MjData(model)
    bodies = moving_bodies(model)
    poses = np.empty((len(scene_states), len(bodies), POSE))
    for frame, qpos in zip(poses, scene_states, strict=True):
        pose_now.qpos[:] = qpos
        mujoco.mj_kinematics(model, pose_now)
        frame[:, :3] = pose_now.xpos[bodies]
        frame[:, 3:] = pose_now.xquat[bodies]
    # q and -q are one rotation: negate those that are nearer to the previous one then.
    quats = poses[..., 3:]
    towards = np.sum(quats[1:] * quats[:-1], axis=-1, keepdims=True)
    quats[1:] *= np.cumprod(np.where(towards < 0, -1.0, 1.0), axis=0)
    return poses.astype(np.float32)


# --- the file ---


def pack(poses: Poses, fps: float) -> bytes:
    """Encode the file of a clip, as int16 if that is fine enough, else as float32.

    Args:
        poses: [T, B, 7], at least one frame.
        fps: frames per second.
    """
    num_frames, num_bodies, _ = poses.shape
    # The offset and scale of each of the seven numbers that fit all poses into int16.
    numbers = poses.reshape(-1, POSE).astype(np.float64)
    low, high = numbers.min(0), numbers.max(0)
    offset = ((low + high) / 2).astype("<f4")
    scale = ((high - low) / (2 * INT16_MAX)).astype("<f4")
    is_fine = bool((scale <= COARSEST_STEP).all())
    dtype = INT16 if is_fine else FLOAT32
    header = HEADER.pack(MAGIC, VERSION, dtype, num_frames, num_bodies, fps)
    if not is_fine:
        return header + poses.astype("<f4").tobytes()
    # With offset and scale as stored: decoding uses the same rounded numbers.
    steps = np.rint((poses.astype(np.float64) - offset) / np.where(scale > 0, scale, 1.0))
    # Where the offset is large and the range small, the rounded offset may shift steps past it.
    steps = np.clip(steps, -INT16_MAX, INT16_MAX).astype("<i2")
    return header + offset.tobytes() + scale.tobytes() + steps.tobytes()


def unpack(content: bytes) -> tuple[Poses, float]:
    """Decode a file into poses [T, B, 7] and frames per second.

    Raises:
        CorruptClip: the file is no pose file, has another version, is truncated or altered, or has
            numbers that no pose has. The header is checked before any memory is allocated.
    """
    header = _checked_header(content)
    shape = (header.num_frames, header.num_bodies, POSE)
    with np.errstate(all="ignore"):
        poses = _decoded(content, header.dtype).reshape(shape)
        # False for NaN, too.
        if not (np.abs(poses) <= MAX_NUMBER).all():
            raise _corrupt_clip(f"it has numbers that are not finite, or above {MAX_NUMBER:g}")
    return poses, header.fps


def _decoded(content: bytes, dtype: int) -> Float32[np.ndarray, " number"]:
    """Decode all numbers of a file whose header is valid."""
    if dtype == FLOAT32:
        return np.frombuffer(content, "<f4", offset=HEADER.size)
    offset, scale = np.frombuffer(content, "<f4", 2 * POSE, HEADER.size).reshape(2, POSE)
    steps = np.frombuffer(content, "<i2", offset=HEADER.size + RANGE_SIZE).reshape(-1, POSE)
    return (offset + scale * steps.astype(np.float32)).ravel()


@dataclass(frozen=True)
class _Header:
    dtype: int
    num_frames: int
    num_bodies: int
    fps: float

    @property
    def file_size(self) -> int:
        """The size of the whole file in bytes."""
        num_numbers = self.num_frames * self.num_bodies * POSE
        if self.dtype == INT16:
            return HEADER.size + RANGE_SIZE + 2 * num_numbers
        return HEADER.size + 4 * num_numbers


def _checked_header(content: bytes) -> _Header:
    if len(content) < HEADER.size:
        raise _corrupt_clip(f"it has {len(content)} bytes; the header alone has {HEADER.size}")
    magic, version, dtype, num_frames, num_bodies, fps = HEADER.unpack_from(content)
    header = _Header(dtype, num_frames, num_bodies, fps)
    if magic != MAGIC:
        raise _corrupt_clip(f"it starts with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise _corrupt_clip(f"its version is {version}, not {VERSION}")
    if dtype not in (FLOAT32, INT16):
        raise _corrupt_clip(f"its number type {dtype} is unknown")
    if not (math.isfinite(fps) and fps > 0):
        raise _corrupt_clip(f"its frame rate is {fps}")
    if num_frames == 0 or header.file_size != len(content):
        raise _corrupt_clip(
            f"{num_frames} frames of {num_bodies} bodies are {header.file_size} bytes, "
            f"not {len(content)}"
        )
    return header


def _corrupt_clip(why: str) -> CorruptClip:
    return CorruptClip(
        f"The clip file is corrupt: {why}. Delete it; it is rendered again from its segment when "
        "the experiment continues."
    )
