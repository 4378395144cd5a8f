"""Tests of scenes: geoms of every type, their colours and positions, and the camera."""

# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import base64

import mujoco
import numpy as np
import pytest

from rl_teacher.clips.scene import build_scene
from rl_teacher.envs.registry import camera_settings, mujoco_model

ONE_OF_EACH = """
<mujoco>
  <asset>
    <material name="teal" rgba="0 0.5 0.5 1"/>
    <material name="glass" rgba="1 1 1 0"/>
    <mesh name="unused" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
    <mesh name="wedge" vertex="1 0 0  3 0 0  1 2 0  1 0 1"/>
    <hfield name="hills" nrow="2" ncol="3" size="4 5 0.6 0.1" elevation="0 1 2 3 4 5"/>
  </asset>
  <worldbody>
    <geom type="plane" size="0 0 1" pos="0 0 -0.5" rgba="0.1 0.2 0.3 1"/>
    <geom type="hfield" hfield="hills" pos="10 0 0"/>
    <body name="post" pos="0 0 2" euler="0 0 90">
      <geom type="cylinder" size="0.1 0.4" pos="1 0 0" material="teal"/>
      <body name="swing">
        <joint type="hinge" axis="0 1 0"/>
        <geom type="sphere" size="0.2" pos="0 0 -1" material="teal" rgba="1 0 0 0.5"/>
        <geom type="capsule" size="0.05 0.3"/>
        <geom type="ellipsoid" size="0.1 0.2 0.3"/>
        <geom type="mesh" mesh="wedge"/>
        <body>
          <geom type="box" size="0.1 0.2 0.3" pos="0 3 0"/>
        </body>
        <geom name="gone" type="box" size="1 1 1" rgba="1 1 1 0"/>
        <geom name="seen-through" type="box" size="1 1 1" material="glass"/>
        <geom name="collision-only" type="box" size="1 1 1" group="3"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(ONE_OF_EACH)


@pytest.fixture(scope="module")
def scene(model):
    return build_scene(model, {})


def geom_of(scene, kind):
    (found,) = [geom for geom in scene["geoms"] if geom["type"] == kind]
    return found


def decoded(text, dtype, width):
    return np.frombuffer(base64.b64decode(text), dtype).reshape(-1, width)


def test_scene_has_all_visible_geoms(scene):
    kinds = ["plane", "hfield", "cylinder", "sphere", "capsule", "ellipsoid", "mesh", "box"]
    assert sorted(geom["type"] for geom in scene["geoms"]) == sorted(kinds)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("plane", [0, 0, 1]),
        ("sphere", [0.2, 0, 0]),
        ("capsule", [0.05, 0.3, 0]),
        ("ellipsoid", [0.1, 0.2, 0.3]),
        ("cylinder", [0.1, 0.4, 0]),
        ("box", [0.1, 0.2, 0.3]),
    ],
)
def test_sizes_are_half_sizes(scene, kind, size):
    assert geom_of(scene, kind)["size"] == size


@pytest.mark.parametrize(
    ("kind", "rgba"),
    [
        ("plane", [0.1, 0.2, 0.3, 1.0]),
        ("cylinder", [0.0, 0.5, 0.5, 1.0]),
        ("sphere", [1.0, 0.0, 0.0, 0.5]),
        ("capsule", [0.5, 0.5, 0.5, 1.0]),
    ],
)
def test_geom_colour_overrides_material_and_default(scene, kind, rgba):
    assert geom_of(scene, kind)["rgba"] == pytest.approx(rgba, abs=1e-6)


def test_scene_lists_bodies_and_names_unnamed_ones(scene):
    assert scene["bodies"] == ["post", "swing", "body 3"]
    bodies = {geom["type"]: geom["body"] for geom in scene["geoms"]}
    assert bodies["plane"] == bodies["hfield"] == -1
    assert bodies["cylinder"] == 0
    assert bodies["sphere"] == bodies["mesh"] == 1
    assert bodies["box"] == 2


def test_geom_is_in_the_frame_of_its_body(scene):
    cylinder = geom_of(scene, "cylinder")
    assert cylinder["pos"] == [1, 0, 0]
    assert cylinder["quat"] == [1, 0, 0, 0]


def turned(points, quat):
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quat))
    return points @ matrix.reshape(3, 3).T


def test_mesh_vertices_undo_recentring(scene):
    geom = geom_of(scene, "mesh")
    (mesh,) = scene["meshes"]
    assert geom["mesh"] == 0
    vertices = decoded(mesh["vertices"], "<f4", 3).astype(float)
    in_the_body = turned(vertices, geom["quat"]) + geom["pos"]
    written = np.array([[1, 0, 0], [3, 0, 0], [1, 2, 0], [1, 0, 1]], float)
    gaps = np.linalg.norm(written[:, None] - in_the_body[None], axis=-1)
    assert gaps.min(1).max() < 1e-5
    assert np.abs(vertices.mean(0)).max() < np.abs(written.mean(0)).max()


def test_mesh_faces_are_closed_surface(scene):
    (mesh,) = scene["meshes"]
    vertices = decoded(mesh["vertices"], "<f4", 3)
    faces = decoded(mesh["faces"], "<u4", 3)
    assert len(faces) == 4
    corners = vertices[faces.astype(int)]
    volume = np.einsum("fi,fi->f", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])).sum() / 6
    assert volume == pytest.approx(2 * 2 * 1 / 6, rel=1e-5)


def test_height_field_keeps_grid(scene):
    geom = geom_of(scene, "hfield")
    (hfield,) = scene["hfields"]
    assert geom["hfield"] == 0
    assert geom["pos"] == [10, 0, 0]
    assert (hfield["rows"], hfield["columns"]) == (2, 3)
    assert hfield["size"] == [4, 5, 0.6, 0.1]
    heights = decoded(hfield["data"], "<f4", 3)
    # MJCF lists rows from the far side (top) to the near one; MuJoCo stores the near one first.
    np.testing.assert_allclose(heights, [[0.6, 0.8, 1.0], [0.0, 0.2, 0.4]], atol=1e-6)


def test_height_field_is_oriented_as_in_engine(model, scene):
    (hfield,) = scene["hfields"]
    half_x, half_y, top, _ = hfield["size"]
    heights = decoded(hfield["data"], "<f4", hfield["columns"])
    engine, hit = mujoco.MjData(model), np.zeros(1, np.int32)
    mujoco.mj_forward(model, engine)
    for row, y in enumerate([-half_y, half_y]):
        for column, x in enumerate([-half_x, 0, half_x]):
            eye = np.array([10 + 0.9999 * x, 0.9999 * y, 9.0])
            fall = mujoco.mj_ray(model, engine, eye, np.array([0, 0, -1.0]), None, 1, -1, hit)
            assert 9.0 - fall == pytest.approx(top * heights[row, column], abs=1e-3)


def test_ground_is_horizontal_static_plane(scene):
    assert scene["ground_z"] == -0.5


def test_scene_without_plane_has_no_ground():
    floating = "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    scene = build_scene(mujoco.MjModel.from_xml_string(floating), {})
    assert scene["ground_z"] is None
    assert scene["camera"]["tracks"] == 0


def test_capsule_fitted_to_mesh_stays_capsule():
    fitted = """
    <mujoco>
      <asset><mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 3"/></asset>
      <worldbody><geom type="capsule" mesh="wedge"/></worldbody>
    </mujoco>
    """
    scene = build_scene(mujoco.MjModel.from_xml_string(fitted), {})
    assert [(geom["type"], geom["mesh"]) for geom in scene["geoms"]] == [("capsule", None)]
    assert scene["meshes"] == []


def test_camera_uses_settings_and_frames_bodies_by_default(model):
    set_up = build_scene(
        model, {"distance": 3.0, "azimuth": 10, "elevation": -5, "lookat": [1, 2, 3]}
    )
    assert set_up["camera"] == {
        "distance": 3.0,
        "azimuth_deg": 10.0,
        "elevation_deg": -5.0,
        "lookat": [1.0, 2.0, 3.0],
        "tracks": None,
    }
    unset = build_scene(model, {})["camera"]
    assert unset["azimuth_deg"] == 90.0
    assert unset["distance"] > 3


GOLDEN = {
    # environment: bodies, geoms, bodies that the camera follows, ground
    "Reacher-v1": (["body0", "body1", "fingertip", "target"], 10, None, 0.0),
    "Hopper-v1": (["torso", "thigh", "leg", "foot"], 5, "torso", 0.0),
    "Walker-v1": (
        ["torso", "thigh", "leg", "foot", "thigh_left", "leg_left", "foot_left"],
        8,
        "torso",
        0.0,
    ),
    "Cheetah-v1": (
        ["torso", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"],
        9,
        "torso",
        0.0,
    ),
    "Swimmer-v1": (["torso", "mid", "back"], 4, "torso", -0.1),
    "Ant-v1": (13, 14, "torso", 0.0),
    "Humanoid-v1": (13, 18, "torso", 0.0),
    "InvertedPendulum-v1": (["cart", "pole"], 3, None, None),
    "InvertedDoublePendulum-v1": (["cart", "pole", "pole2"], 5, None, -3.0),
    "Pusher-v5": (12, 20, None, -0.325),
    "HumanoidStandup-v5": (13, 18, "torso", 0.0),
}


@pytest.mark.parametrize("env_id", GOLDEN)
def test_scene_matches_model_file(env_id):
    bodies, num_geoms, tracked, ground_z = GOLDEN[env_id]
    scene = build_scene(mujoco_model(env_id), camera_settings(env_id))
    names = scene["bodies"]
    assert (names if isinstance(bodies, list) else len(names)) == bodies
    assert len(scene["geoms"]) == num_geoms
    place = scene["camera"]["tracks"]
    assert (place if place is None else names[place]) == tracked
    assert scene["ground_z"] == ground_z
    assert {geom["body"] for geom in scene["geoms"]} <= set(range(-1, len(names)))
    assert 1 <= scene["camera"]["distance"] <= 5
    assert np.abs(scene["camera"]["lookat"]).max() < 1.3
