"""Tests of offscreen rendering: bodies are drawn where the page shows them, and whole."""

# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from rl_teacher.clips import offscreen
from rl_teacher.clips.offscreen import (
    OffscreenRenderer,
    View,
    working_pool,
)
from rl_teacher.clips.poses import body_poses
from rl_teacher.clips.scene import aim_camera, build_scene, enclosing_spheres, scene_bytes
from rl_teacher.common.errors import BadInput
from rl_teacher.envs.mujoco.dm_control_suite import DM_CONTROL
from rl_teacher.envs.mujoco.suite import SUITE
from rl_teacher.envs.registry import camera_settings, make_vector, mujoco_model
from rl_teacher.envs.snapshots import static_bodies
from tests.clips.test_scene import ONE_OF_EACH

BODIES = [env_id for env_id in SUITE if not env_id.startswith("Short")]
BODIES += [task.id for task in DM_CONTROL.values() if task.id != "DMWalkerRun-v1"]


@pytest.fixture(scope="module")
def renderer():
    try:
        created = OffscreenRenderer()
    except BadInput as error:
        pytest.skip(str(error))
    with closing(created):
        yield created


def scene_and_poses(env_id, num_frames=40):
    """Return a scene, and poses of a body that falls and tumbles under random actions."""
    model = mujoco_model(env_id)
    states = []
    with closing(make_vector(env_id, 1, 1)) as venv:
        venv.reset(seed=1)
        venv.action_space.seed(1)
        for _ in range(num_frames):
            for _ in range(5):
                venv.step(venv.action_space.sample())
            states.append(venv.scene_states[0].copy())
    return build_scene(model, camera_settings(env_id)), body_poses(model, np.array(states))


def draw(renderer, scene, poses, width=160, height=120):
    targets, distance = aim_camera(scene, poses, width / height)
    view = View(scene_bytes(scene), distance, width, height)
    return np.array(list(renderer.draw(view, poses, targets))).astype(int)


def painted(scene, rgba):
    """Return the scene with all moving shapes in one colour."""
    geoms = [{**geom, "rgba": rgba} if geom["body"] >= 0 else geom for geom in scene["geoms"]]
    return {**scene, "geoms": geoms}


@pytest.mark.parametrize("env_id", [*BODIES, "Pusher-v5", "HumanoidStandup-v5"])
def test_whole_body_is_in_the_image_even_when_it_falls(renderer, env_id):
    scene, poses = scene_and_poses(env_id)
    images = draw(renderer, painted(scene, [1.0, 0.0, 1.0, 1.0]), poses[::4])
    is_body = images[..., 0] - images[..., 1] > 60
    assert is_body.any((1, 2)).all()
    is_edge = np.ones(is_body.shape[1:], np.bool_)
    is_edge[1:-1, 1:-1] = False
    assert not (is_body & is_edge).any()


@pytest.mark.parametrize("aspect", [0.5, 1.0, 4 / 3, 2.0])
@pytest.mark.parametrize("env_id", ["Hopper-v1", "Humanoid-v1", "InvertedPendulum-v1"])
def test_camera_sees_all_shapes_at_any_aspect(env_id, aspect):
    scene, poses = scene_and_poses(env_id)
    targets, distance = aim_camera(scene, poses, aspect)
    centres, _ = enclosing_spheres(scene, poses)
    turn, tilt = np.radians([scene["camera"]["azimuth_deg"], scene["camera"]["elevation_deg"]])
    forward = np.array([np.cos(tilt) * np.cos(turn), np.cos(tilt) * np.sin(turn), np.sin(tilt)])
    right = np.array([np.sin(turn), -np.cos(turn), 0])
    offsets = centres - targets[:, None]
    depth = distance + offsets @ forward
    limit = np.tan(np.radians(22.5))
    assert (np.abs(offsets @ np.cross(right, forward)) < limit * depth).all()
    assert (np.abs(offsets @ right) < aspect * limit * depth).all()


def test_camera_of_a_standing_body_has_the_distance_of_the_scene():
    model: Any = mujoco_model("Hopper-v1")
    scene = build_scene(model, camera_settings("Hopper-v1"))
    targets, distance = aim_camera(scene, body_poses(model, model.qpos0[None]), 4 / 3)
    assert distance == 3.0
    assert targets[0, 2] == pytest.approx(0.77, abs=0.01)


def test_clips_side_by_side_share_height_and_distance():
    model: Any = mujoco_model("Hopper-v1")
    scene = build_scene(model, camera_settings("Hopper-v1"))
    raised = model.qpos0.copy()
    raised[1] += 2.0
    # Clips may have different lengths.
    standing = body_poses(model, model.qpos0[None])
    jumping = body_poses(model, np.tile(raised, (3, 1)))
    targets, distance = aim_camera(scene, standing, 4 / 3, [jumping])
    other_targets, other_distance = aim_camera(scene, jumping, 4 / 3, [standing])
    heights = [*targets[:, 2], *other_targets[:, 2]]
    assert heights == pytest.approx([1.77] * 4, abs=0.01)
    assert distance == other_distance > 3.0


def test_bodies_are_rendered_where_page_shows_them(renderer):
    """A camera from above shows the fingertip on the right if its x coordinate is positive."""
    model = mujoco_model("Reacher-v1")
    scene = build_scene(model, {})
    scene["camera"] |= {"distance": 0.8, "elevation_deg": -90.0, "azimuth_deg": 90.0}
    states = np.zeros((2, 4))
    states[1, 0] = np.pi  # the shoulder, half a turn
    right, left = draw(renderer, scene, body_poses(model, states), 160, 160)
    changed = np.abs(right - left).max(-1) > 40
    columns = np.flatnonzero(changed.any(0))
    assert columns.min() < 60
    assert columns.max() > 100


def test_shapes_of_every_type_are_rendered(renderer):
    model = mujoco.MjModel.from_xml_string(ONE_OF_EACH)
    static = model.body_pos[static_bodies(model)].ravel()
    scene = build_scene(model, {})
    poses = body_poses(model, np.concatenate([model.qpos0, static])[None])
    beside = {**scene["camera"], "lookat": [10.0, 0.0, 0.0], "distance": 20.0}
    from_beside = {**scene, "camera": beside}
    images = [(each, draw(renderer, each, poses)) for each in (scene, from_beside)]
    for index, geom in enumerate(scene["geoms"]):
        shown, image = images[geom["type"] == "hfield"]
        without = {**shown, "geoms": scene["geoms"][:index] + scene["geoms"][index + 1 :]}
        assert (image != draw(renderer, without, poses)).any(), geom["type"]


def test_missing_opengl_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr(offscreen, "backends", lambda: ("no-such-opengl",))
    with pytest.raises(BadInput, match="libegl1"):
        working_pool()


STARTS_RENDERER = """
import time
from rl_teacher.clips.offscreen import OffscreenRenderer

if __name__ == "__main__":
    renderer = OffscreenRenderer()
    print(*renderer._pool._processes, flush=True)
    time.sleep(60)
"""


def test_rendering_process_ends_with_a_killed_run(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(STARTS_RENDERER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        renderer_id = int(process.stdout.readline())
        process.kill()
    deadline_s = time.monotonic() + 30
    while is_running(renderer_id):
        assert time.monotonic() < deadline_s, "the rendering process still runs"
        time.sleep(0.05)


def is_running(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    # A zombie has ended, and waits for its parent to notice.
    return " Z " not in Path(f"/proc/{process_id}/stat").read_text()
