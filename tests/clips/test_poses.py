"""Tests of pose clips: equality with MuJoCo, continuity, file size and validation."""

# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import struct

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_teacher.clips.poses import HEADER, body_poses, pack, unpack
from rl_teacher.common.errors import CorruptClip
from rl_teacher.envs.mujoco.dm_control_suite import DM_CONTROL
from rl_teacher.envs.mujoco.suite import SUITE
from rl_teacher.envs.registry import mujoco_model

BODIES = [env_id for env_id in SUITE if not env_id.startswith("Short")]
BODIES += [task.id for task in DM_CONTROL.values() if task.id != "DMWalkerRun-v1"]
MODELS = {env_id: mujoco_model(env_id) for env_id in BODIES}


def random_qpos(model, rng):
    """Sample joint positions within their ranges, or from -3 to 3 without a range."""
    qpos = rng.uniform(-3, 3, model.nq)
    for joint in np.flatnonzero(model.jnt_limited):
        qpos[model.jnt_qposadr[joint]] = rng.uniform(*model.jnt_range[joint])
    return qpos


def assert_equals_engine(poses, model, scene_states):
    engine = mujoco.MjData(model)
    for frame, qpos in zip(poses, scene_states, strict=True):
        engine.qpos[:] = qpos
        mujoco.mj_forward(model, engine)
        np.testing.assert_allclose(frame[:, :3], engine.xpos[1:], atol=1e-4)
        quats = engine.xquat[1:]
        signs = np.sign((frame[:, 3:] * quats).sum(1, keepdims=True))
        np.testing.assert_allclose(frame[:, 3:], signs * quats, atol=1e-4)


@pytest.mark.parametrize("env_id", BODIES)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_stored_poses_equal_engine_for_any_joints(env_id, seed):
    model, rng = MODELS[env_id], np.random.default_rng(seed)
    scene_states = np.stack([random_qpos(model, rng) for _ in range(3)])
    poses, _ = unpack(pack(body_poses(model, scene_states), 30.0))
    assert_equals_engine(poses, model, scene_states)


def test_somersault_has_no_quaternion_jump():
    turns = np.linspace(0, 4 * np.pi, 60)
    model = MODELS["Hopper-v1"]
    scene_states = np.zeros((60, model.nq))
    scene_states[:, 2] = turns
    quats = body_poses(model, scene_states)[:, :, 3:]
    assert (np.sum(quats[1:] * quats[:-1], axis=-1) > 0.9).all()


def test_bodies_that_the_environment_itself_moves_are_posed_where_they_are():
    model = mujoco.MjModel.from_xml_string(
        """<mujoco><worldbody>
        <body pos="1 0 0"><geom size="1"/>
          <body pos="0 1 0"><joint type="slide"/><geom size="1"/></body></body>
        <body mocap="true"><geom size="1"/></body>
        </worldbody></mujoco>"""
    )
    # The joint, the mocap body, then the static body.
    states = np.array([[0.5, 7, 8, 9, 2, 0, 0], [0.5, 0, 0, 9, 3, 0, 0]])
    places = body_poses(model, states)[..., :3]
    np.testing.assert_allclose(places[0], [[2, 0, 0], [2, 1, 0.5], [7, 8, 9]])
    np.testing.assert_allclose(places[1], [[3, 0, 0], [3, 1, 0.5], [0, 0, 9]])


def test_sign_alignment_keeps_rotation():
    floating = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    scene_states = np.zeros((4, 7))
    scene_states[:, 3] = [1, -1, -1, 1]
    quats = body_poses(floating, scene_states)[:, 0, 3:]
    np.testing.assert_array_equal(quats, [[1, 0, 0, 0]] * 4)


# --- file format ---


@pytest.mark.parametrize(("fps", "num_frames"), [(20.0, 30), (66.7, 1)])
def test_file_stores_frames_and_frame_rate(fps, num_frames):
    poses, read_fps = unpack(pack(np.zeros((num_frames, 3, 7), np.float32), fps))
    assert poses.shape == (num_frames, 3, 7)
    assert read_fps == pytest.approx(fps)


def test_header_has_documented_layout():
    content = pack(np.ones((2, 3, 7), np.float32), 25.0)
    assert content[:4] == b"RLTP"
    assert struct.unpack_from("<HHIIf", content, 4) == (1, 0, 2, 3, 25.0)
    assert content[20:32] == bytes(12)
    assert len(content) == 32 + 2 * 3 * 7 * 4


def test_poses_are_restored_exactly():
    poses = np.random.default_rng(0).uniform(-50, 50, (20, 4, 7)).astype(np.float32)
    np.testing.assert_array_equal(unpack(pack(poses, 20.0))[0], poses)


CONTENT = pack(np.random.default_rng(0).normal(size=(10, 4, 7)).astype(np.float32), 20.0)


@pytest.mark.parametrize("size", [0, 3, 31, 32, 88, len(CONTENT) - 1])
def test_truncated_file_is_refused(size):
    with pytest.raises(CorruptClip, match="clip file is corrupt"):
        unpack(CONTENT[:size])


@pytest.mark.parametrize(
    ("place", "altered", "why"),
    [
        (0, b"RLTQ", "starts with"),
        (4, struct.pack("<H", 2), "version is 2"),
        (8, struct.pack("<I", 0), "0 frames"),
        (8, struct.pack("<I", 2**31), "2147483648 frames"),
        (8, struct.pack("<II", 2**32 - 1, 2**32 - 1), "4294967295 bodies"),
        (16, struct.pack("<f", float("nan")), "frame rate is nan"),
        (16, struct.pack("<f", -1.0), "frame rate is -1.0"),
    ],
)
def test_wrong_header_is_refused_before_allocation(place, altered, why):
    content = CONTENT[:place] + altered + CONTENT[place + len(altered) :]
    with pytest.raises(CorruptClip, match=why):
        unpack(content)


@given(st.binary(min_size=HEADER.size - 4, max_size=300))
def test_random_bytes_after_magic_are_decoded_or_refused(content):
    try:
        poses, fps = unpack(b"RLTP" + content)
    except CorruptClip:
        return
    assert poses.size > 0
    assert fps > 0


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e11])
def test_numbers_that_no_pose_has_are_refused(number):
    poses = np.random.default_rng(0).normal(size=(10, 4, 7)).astype(np.float32)
    content = bytearray(pack(poses, 20.0))
    struct.pack_into("<f", content, HEADER.size, number)
    with pytest.raises(CorruptClip, match="not finite, or above"):
        unpack(bytes(content))
