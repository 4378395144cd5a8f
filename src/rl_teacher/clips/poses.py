"""Body poses of a clip, and their file format.

T frames, B bodies in the scene's order. A pose is x y z, then the quaternion
w x y z. The file, little-endian:

    magic "RLTP" | u16 version | 2 bytes of zero | u32 T | u32 B | f32 fps | 12 bytes of zero
    [T, B, 7] f32
"""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import math
import struct

import mujoco
import numpy as np
from jaxtyping import Inexact

from rl_teacher.clips.scene import Poses
from rl_teacher.common.errors import CorruptClip
from rl_teacher.envs.snapshots import static_bodies

POSE = 7
"""Numbers in a pose."""

MAGIC = b"RLTP"
VERSION = 1
HEADER = struct.Struct("<4sH2xIIf12x")
MAX_NUMBER = 1e10
"""Largest number of a pose; MuJoCo takes larger ones for a simulation that has diverged."""


def body_poses(model: mujoco.MjModel, scene_states: Inexact[np.ndarray, "time scene"]) -> Poses:
    """Compute the poses of all bodies but the world with MuJoCo's forward kinematics.

    Args:
        model: the MuJoCo model.
        scene_states: [T, K] see `ReplayableEnv.scene_state`.

    Returns:
        [T, B, 7] poses. Quaternions have the sign nearer to the previous frame's, so that the page
        can interpolate between frames.
    """
    pose_now = mujoco.MjData(model)
    fixed, ends = static_bodies(model), [model.nq, model.nq + 3 * model.nmocap]
    poses = np.empty((len(scene_states), model.nbody - 1, POSE))
    for frame, state in zip(poses, scene_states, strict=True):
        pose_now.qpos[:], mocap, static = np.split(state, ends)
        pose_now.mocap_pos[:], model.body_pos[fixed] = mocap.reshape(-1, 3), static.reshape(-1, 3)
        mujoco.mj_kinematics(model, pose_now)
        frame[:, :3] = pose_now.xpos[1:]
        frame[:, 3:] = pose_now.xquat[1:]
    # q and -q are one rotation: negate those that are nearer to the previous one then.
    quats = poses[..., 3:]
    towards = np.sum(quats[1:] * quats[:-1], axis=-1, keepdims=True)
    quats[1:] *= np.cumprod(np.where(towards < 0, -1.0, 1.0), axis=0)
    return poses.astype(np.float32)


# --- the file ---


def pack(poses: Poses, fps: float) -> bytes:
    """Encode the file of a clip.

    Args:
        poses: [T, B, 7], at least one frame.
        fps: frames per second.
    """
    num_frames, num_bodies, _ = poses.shape
    header = HEADER.pack(MAGIC, VERSION, num_frames, num_bodies, fps)
    return header + poses.astype("<f4").tobytes()


def unpack(content: bytes) -> tuple[Poses, float]:
    """Decode a file into poses [T, B, 7] and frames per second.

    Raises:
        CorruptClip: the file is no pose file, has another version, is truncated or altered, or has
            numbers that no pose has. The header is checked before any memory is allocated.
    """
    if len(content) < HEADER.size:
        raise _corrupt_clip(f"it has {len(content)} bytes; the header alone has {HEADER.size}")
    magic, version, num_frames, num_bodies, fps = HEADER.unpack_from(content)
    size_bytes = HEADER.size + 4 * POSE * num_frames * num_bodies
    if magic != MAGIC:
        raise _corrupt_clip(f"it starts with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise _corrupt_clip(f"its version is {version}, not {VERSION}")
    if not (math.isfinite(fps) and fps > 0):
        raise _corrupt_clip(f"its frame rate is {fps}")
    if num_frames == 0 or size_bytes != len(content):
        raise _corrupt_clip(
            f"{num_frames} frames of {num_bodies} bodies are {size_bytes} bytes, not {len(content)}"
        )
    poses = np.frombuffer(content, "<f4", offset=HEADER.size).reshape(num_frames, num_bodies, POSE)
    with np.errstate(invalid="ignore"):
        # False for NaN, too.
        if not (np.abs(poses) <= MAX_NUMBER).all():
            raise _corrupt_clip(f"it has numbers that are not finite, or above {MAX_NUMBER:g}")
    return poses, fps


def _corrupt_clip(why: str) -> CorruptClip:
    return CorruptClip(
        f"The clip file is corrupt: {why}. Delete it; it is rendered again from its segment when "
        "the experiment continues."
    )
