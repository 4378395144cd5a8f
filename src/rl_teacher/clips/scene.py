"""Scenes: the shapes, colours and camera of one environment's clips.

A scene is sent once per environment; clips contain body poses only. MuJoCo's conventions apply:
half sizes, capsules and cylinders along z, quaternions as w x y z, and z is up.
"""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import base64
import json
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

VERSION = 1
WORLD = -1
"""The `body` of static geoms."""
SHOWN_GROUPS = 3
"""MuJoCo shows geoms of groups 0, 1 and 2 by default."""
DECIMALS = 6

GEOM_TYPES = {
    mujoco.mjtGeom.mjGEOM_PLANE: "plane",
    mujoco.mjtGeom.mjGEOM_HFIELD: "hfield",
    mujoco.mjtGeom.mjGEOM_SPHERE: "sphere",
    mujoco.mjtGeom.mjGEOM_CAPSULE: "capsule",
    mujoco.mjtGeom.mjGEOM_ELLIPSOID: "ellipsoid",
    mujoco.mjtGeom.mjGEOM_CYLINDER: "cylinder",
    mujoco.mjtGeom.mjGEOM_BOX: "box",
    mujoco.mjtGeom.mjGEOM_MESH: "mesh",
    mujoco.mjtGeom.mjGEOM_SDF: "mesh",
}
UNSET_RGBA = np.array([0.5, 0.5, 0.5, 1.0], np.float32)

Scene = dict[str, Any]


def build_scene(model: mujoco.MjModel, camera: Mapping[str, Any]) -> Scene:
    """Build the scene of a model.

    Args:
        model: a compiled MuJoCo model.
        camera: settings of MuJoCo's free camera, as Gymnasium's environments have them:
            `distance`, `elevation` and `azimuth` (degrees), `lookat`, `trackbodyid`. Missing
            values are chosen so that all moving bodies are visible.

    Returns:
        The scene as JSON values, see `scene_bytes`.
    """
    start = _initial_data(model)
    places = _pose_indices(model)
    geoms = _shown_geoms(model)
    meshes = _used_assets(model, geoms, "mesh")
    hfields = _used_assets(model, geoms, "hfield")
    return {
        "version": VERSION,
        "bodies": [model.body(body).name or f"body {body}" for body in places],
        "geoms": [
            {
                "type": _type_of(model, geom),
                "body": places.get(int(model.geom_bodyid[geom]), WORLD),
                "size": _rounded(model.geom_size[geom]),
                **_frame_of(model, start, geom),
                "rgba": _rounded(_rgba_of(model, geom)),
                "mesh": _asset_of(model, geom, "mesh", meshes),
                "hfield": _asset_of(model, geom, "hfield", hfields),
            }
            for geom in geoms
        ],
        "meshes": [_mesh(model, mesh) for mesh in meshes],
        "hfields": [_hfield(model, hfield) for hfield in hfields],
        "camera": _camera(model, start, camera),
        "extent": _rounded(model.stat.extent),
        "ground_z": _ground_z(model, start, geoms),
    }


def scene_bytes(scene: Scene) -> bytes:
    """Encode a scene as canonical JSON, so that equal scenes have equal hashes."""
    return json.dumps(scene, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def moving_bodies(model: mujoco.MjModel) -> Int[np.ndarray, " body"]:
    """Return the [B] bodies that are not welded to the world, in MuJoCo's order."""
    return np.flatnonzero(model.body_weldid != 0)


def _pose_indices(model: mujoco.MjModel) -> dict[int, int]:
    """Map each moving body to its index in the poses."""
    return {body: place for place, body in enumerate(moving_bodies(model).tolist())}


def _initial_data(model: mujoco.MjModel) -> mujoco.MjData:
    """Return the model's data in its initial pose."""
    start = mujoco.MjData(model)
    mujoco.mj_kinematics(model, start)
    return start


# --- geoms ---


def _shown_geoms(model: mujoco.MjModel) -> list[int]:
    return [
        geom
        for geom in range(model.ngeom)
        if model.geom_group[geom] < SHOWN_GROUPS and _rgba_of(model, geom)[3] > 0
    ]


def _type_of(model: mujoco.MjModel, geom: int) -> str:
    return GEOM_TYPES[mujoco.mjtGeom(int(model.geom_type[geom]))]


def _rgba_of(model: mujoco.MjModel, geom: int) -> Float[np.ndarray, "4"]:
    """Return the colour of a geom: its own, or else its material's.

    Source: MuJoCo's XML reference, geom/rgba: "If the value of this attribute is different from
    the internal default, it takes precedence over the material."
    """
    own, material = model.geom_rgba[geom], model.geom_matid[geom]
    has_own = material < 0 or not np.array_equal(own, UNSET_RGBA)
    return own if has_own else model.mat_rgba[material]


def _frame_of(model: mujoco.MjModel, start: mujoco.MjData, geom: int) -> dict[str, list[float]]:
    """Return the frame of a geom in its body, or in the world if the body is static."""
    # The frame of a mesh includes MuJoCo's recentring, as do its vertices in the scene.
    body = model.geom_bodyid[geom]
    pos, quat = model.geom_pos[geom], model.geom_quat[geom]
    if model.body_weldid[body] == 0:
        offset, turned = np.empty(3), np.empty(4)
        mujoco.mju_rotVecQuat(offset, pos, start.xquat[body])
        mujoco.mju_mulQuat(turned, start.xquat[body], quat)
        pos, quat = start.xpos[body] + offset, turned
    return {"pos": _rounded(pos), "quat": _rounded(quat)}


def _ground_z(model: mujoco.MjModel, start: mujoco.MjData, geoms: list[int]) -> float | None:
    """Return the height of the highest static horizontal plane; None if there is none."""
    heights = [
        start.geom_xpos[geom][2]
        for geom in geoms
        if _type_of(model, geom) == "plane"
        and model.body_weldid[model.geom_bodyid[geom]] == 0
        and start.geom_xmat[geom][8] > 0.999  # its normal points up
    ]
    return _rounded(max(heights)) if heights else None


# --- meshes and height fields ---


def _used_assets(model: mujoco.MjModel, geoms: list[int], kind: str) -> list[int]:
    """Return the meshes or height fields in use, each once."""
    return sorted({int(model.geom_dataid[g]) for g in geoms if _type_of(model, g) == kind})


def _asset_of(model: mujoco.MjModel, geom: int, kind: str, assets: list[int]) -> int | None:
    # A capsule that was fitted to a mesh refers to the mesh, but is drawn as a capsule.
    return assets.index(int(model.geom_dataid[geom])) if _type_of(model, geom) == kind else None


def _mesh(model: mujoco.MjModel, mesh: int) -> dict[str, str]:
    first_vertex, first_face = model.mesh_vertadr[mesh], model.mesh_faceadr[mesh]
    vertices = model.mesh_vert[first_vertex : first_vertex + model.mesh_vertnum[mesh]]
    faces = model.mesh_face[first_face : first_face + model.mesh_facenum[mesh]]
    return {"vertices": _base64(vertices, "<f4"), "faces": _base64(faces, "<u4")}


def _hfield(model: mujoco.MjModel, hfield: int) -> dict[str, Any]:
    """Return heights from 0 to 1, a share of z_top; rows ascend in y, columns in x."""
    rows, columns = int(model.hfield_nrow[hfield]), int(model.hfield_ncol[hfield])
    first = model.hfield_adr[hfield]
    return {
        "rows": rows,
        "columns": columns,
        "size": _rounded(model.hfield_size[hfield]),
        "data": _base64(model.hfield_data[first : first + rows * columns], "<f4"),
    }


def _base64(array: Shaped[np.ndarray, "..."], dtype: str) -> str:
    return base64.b64encode(array.astype(dtype).tobytes()).decode()


# --- camera ---

FIELD_OF_VIEW_DEG = 45.0
LEVEL_ELEVATION_DEG = -20.0
FLAT_ELEVATION_DEG = -60.0
FLAT_RATIO = 0.2
"""Scenes whose height is below this share of their width are viewed from above."""


def _camera(
    model: mujoco.MjModel, start: mujoco.MjData, camera: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the camera. If it tracks a body, `lookat` holds for the start and moves along."""
    tracked = _tracked_body(model, camera)
    low, high = _bounds(model, start, only_moving=tracked is not None)
    width, height = max(high[:2] - low[:2]), high[2] - low[2]
    radius = np.linalg.norm(high - low) / 2
    lookat = (low + high) / 2 if tracked is not None else camera.get("lookat", (low + high) / 2)
    is_flat = height < FLAT_RATIO * width
    return {
        "distance": _rounded(
            camera.get("distance", radius / np.sin(np.radians(FIELD_OF_VIEW_DEG / 2)))
        ),
        "elevation_deg": _rounded(
            camera.get("elevation", FLAT_ELEVATION_DEG if is_flat else LEVEL_ELEVATION_DEG)
        ),
        "azimuth_deg": _rounded(camera.get("azimuth", model.vis.global_.azimuth)),
        "lookat": _rounded(lookat),
        "tracks": None if tracked is None else _pose_indices(model)[tracked],
    }


def _tracked_body(model: mujoco.MjModel, camera: Mapping[str, Any]) -> int | None:
    """Return the root body to track: the configured one, the model camera's, or a free body."""
    tracking = (mujoco.mjtCamLight.mjCAMLIGHT_TRACK, mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM)
    named = [max(camera["trackbodyid"], 0)] if "trackbodyid" in camera else []
    by_model = model.cam_bodyid[np.isin(model.cam_mode, [mode.value for mode in tracking])]
    free = model.jnt_bodyid[model.jnt_type == mujoco.mjtJoint.mjJNT_FREE.value]
    candidates = named or [*by_model, *free]
    roots = [int(model.body_rootid[body]) for body in candidates]
    return next((root for root in roots if model.body_weldid[root] != 0), None)


def _bounds(
    model: mujoco.MjModel, start: mujoco.MjData, *, only_moving: bool
) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Return the corners of the bounding box of visible geoms, without planes and terrain."""
    is_counted = _is_counted(model, only_moving=only_moving)
    if not is_counted.any():
        return model.stat.center - model.stat.extent / 2, model.stat.center + model.stat.extent / 2
    turns = start.geom_xmat[is_counted].reshape(-1, 3, 3)
    boxes = model.geom_aabb[is_counted].reshape(-1, 2, 3)
    centers = start.geom_xpos[is_counted] + np.einsum("gij,gj->gi", turns, boxes[:, 0])
    halves = np.einsum("gij,gj->gi", np.abs(turns), boxes[:, 1])
    return (centers - halves).min(0), (centers + halves).max(0)


def _is_counted(model: mujoco.MjModel, *, only_moving: bool) -> Bool[np.ndarray, " geom"]:
    is_shown = np.zeros(model.ngeom, np.bool_)
    is_shown[_shown_geoms(model)] = True
    ground = (mujoco.mjtGeom.mjGEOM_PLANE.value, mujoco.mjtGeom.mjGEOM_HFIELD.value)
    can_move = model.body_weldid[model.geom_bodyid] != 0
    return is_shown & ~np.isin(model.geom_type, ground) & (can_move | (not only_moving))


# --- numbers ---


def _rounded(numbers: Any) -> Any:
    """Round numbers for JSON, so that hashes do not depend on the machine's last bits."""
    # Adding zero turns -0.0 into 0.0.
    return (np.round(np.asarray(numbers, np.float64), DECIMALS) + 0.0).tolist()
