"""Scenes: the shapes, colours and camera of one environment's clips.

A scene is sent once per environment; clips contain body poses only. MuJoCo's conventions apply:
half sizes, capsules and cylinders along z, quaternions as w x y z, and z is up.

T: frames, B: moving bodies, S: spheres.
"""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float, Float32, Shaped

VERSION = 1
WORLD = -1
"""The `body` of geoms that belong to none."""
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
Poses = Float32[np.ndarray, "time body 7"]


def build_scene(model: mujoco.MjModel, camera: Mapping[str, Any]) -> Scene:
    """Build the scene of a model.

    Args:
        model: a compiled MuJoCo model.
        camera: settings of MuJoCo's free camera, as Gymnasium's environments have them:
            `distance`, `elevation` and `azimuth` (degrees), `lookat`, `trackbodyid`. Missing
            values are chosen so that all bodies are visible.

    Returns:
        The scene as JSON values, see `scene_bytes`.
    """
    start = mujoco.MjData(model)
    mujoco.mj_kinematics(model, start)
    shown = [
        geom
        for geom in range(model.ngeom)
        if model.geom_group[geom] < SHOWN_GROUPS and _rgba_of(model, geom)[3] > 0
    ]
    meshes, hfields = _used_assets(model, shown, "mesh"), _used_assets(model, shown, "hfield")
    scene = {
        "version": VERSION,
        "bodies": [model.body(body).name or f"body {body}" for body in range(1, model.nbody)],
        "geoms": [
            {
                "type": _type_of(model, geom),
                # MuJoCo's body 0 is the world.
                "body": int(model.geom_bodyid[geom]) - 1,
                "size": _rounded(model.geom_size[geom]),
                # The frame of a mesh includes MuJoCo's recentring, as do its vertices.
                "pos": _rounded(model.geom_pos[geom]),
                "quat": _rounded(model.geom_quat[geom]),
                "rgba": _rounded(_rgba_of(model, geom)),
                "mesh": _asset_of(model, geom, "mesh", meshes),
                "hfield": _asset_of(model, geom, "hfield", hfields),
            }
            for geom in shown
        ],
        "meshes": [_mesh(model, mesh) for mesh in meshes],
        "hfields": [_hfield(model, hfield) for hfield in hfields],
        "extent": _rounded(model.stat.extent),
        "ground_z": _ground_z(model, start, shown),
    }
    start_poses = np.concatenate([start.xpos[1:], start.xquat[1:]], axis=1)
    return scene | {"camera": _camera(model, scene, start_poses.astype(np.float32), camera)}


def scene_bytes(scene: Scene) -> bytes:
    """Encode a scene as canonical JSON, so that equal scenes have equal hashes."""
    return json.dumps(scene, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


# --- geoms ---


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
"""Vertical field of view, of MuJoCo and of the page."""
LEVEL_ELEVATION_DEG = -20.0
FLAT_ELEVATION_DEG = -60.0
FLAT_RATIO = 0.2
"""Scenes whose height is below this share of their width are viewed from above."""
USED_VIEW = 0.95
"""Share of the field of view that a scene fills at most."""
NARROWEST = 1.25
"""Images with a smaller aspect ratio are viewed from farther away, as on the page."""


def _camera(
    model: mujoco.MjModel,
    scene: Scene,
    start: Float32[np.ndarray, "body 7"],
    camera: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the camera. If it tracks a body, `lookat` holds for the start and moves along."""
    # The configured body, that of the model's camera, or a free one.
    tracking = (mujoco.mjtCamLight.mjCAMLIGHT_TRACK, mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM)
    by_model = model.cam_bodyid[np.isin(model.cam_mode, [mode.value for mode in tracking])]
    free = model.jnt_bodyid[model.jnt_type == mujoco.mjtJoint.mjJNT_FREE.value]
    # Gymnasium has -1, and 0 (the world), for a camera that tracks nothing.
    named = [max(camera["trackbodyid"], 0)] if "trackbodyid" in camera else []
    roots = [int(model.body_rootid[body]) for body in named or [*by_model, *free]]
    tracked = next((root for root in roots if model.body_weldid[root] != 0), None)
    low, high = model.stat.center - model.stat.extent / 2, model.stat.center + model.stat.extent / 2
    centres, radii = enclosing_spheres(scene, start[None], with_static=tracked is None)
    if len(radii):
        low, high = (centres - radii[:, None]).min((0, 1)), (centres + radii[:, None]).max((0, 1))
    # A sphere of radius r fills a view of angle a at the distance r / sin(a / 2).
    middle, radius = (low + high) / 2, np.linalg.norm(high - low) / 2
    is_flat = high[2] - low[2] < FLAT_RATIO * max(high[:2] - low[:2])
    return {
        "distance": _rounded(
            camera.get("distance", radius / math.sin(math.radians(FIELD_OF_VIEW_DEG / 2)))
        ),
        "elevation_deg": _rounded(
            camera.get("elevation", FLAT_ELEVATION_DEG if is_flat else LEVEL_ELEVATION_DEG)
        ),
        "azimuth_deg": _rounded(camera.get("azimuth", model.vis.global_.azimuth)),
        "lookat": _rounded(camera.get("lookat", middle) if tracked is None else middle),
        "tracks": None if tracked is None else tracked - 1,
    }


def enclosing_spheres(
    scene: Scene, poses: Poses, *, with_static: bool = False
) -> tuple[Float[np.ndarray, "time sphere 3"], Float[np.ndarray, " sphere"]]:
    """Return spheres whose convex hulls enclose the shapes of a scene, except ground and terrain.

    Args:
        scene: the scene.
        poses: [T, B, 7] poses of its bodies.
        with_static: include shapes that do not move.

    Returns:
        [T, S, 3] centres and [S] radii: two spheres for each shape, at the ends of a capsule or
        cylinder and at the centre of others.
    """
    bodies, places, radii = [], [], []
    for geom in scene["geoms"]:
        size, half_length = geom["size"], 0.0
        match geom["type"]:
            case "plane" | "hfield":
                continue
            case "capsule" | "cylinder":
                radius, half_length = size[0], size[1]
            case "mesh":
                vertices = base64.b64decode(scene["meshes"][geom["mesh"]]["vertices"])
                radius = np.linalg.norm(np.frombuffer(vertices, "<f4").reshape(-1, 3), axis=1).max()
            case "box":
                radius = np.linalg.norm(size)
            case _:  # sphere, ellipsoid
                radius = max(size)
        if with_static or geom["body"] != WORLD:
            axis = half_length * _rotated(np.array(geom["quat"]), np.array([0.0, 0.0, 1.0]))
            bodies += [geom["body"]] * 2
            places += [geom["pos"] + axis, geom["pos"] - axis]
            radii += [radius] * 2
    # WORLD is the last index, where static shapes find the pose that changes nothing.
    unmoved = np.broadcast_to(np.array([0, 0, 0, 1, 0, 0, 0], np.float64), (len(poses), 1, 7))
    frames = np.concatenate([poses, unmoved], axis=1)[:, bodies]
    centres = frames[..., :3] + _rotated(frames[..., 3:], np.array(places).reshape(-1, 3))
    return centres, np.array(radii, np.float64)


def aim_camera(
    scene: Scene,
    poses: Poses,
    aspect: float,
    beside: Sequence[Float32[np.ndarray, "_ body 7"]] = (),
) -> tuple[Float[np.ndarray, "time 3"], float]:
    """Aim the scene's camera so that all moving shapes stay within the image in all frames.

    `frameClips` in the page's `camera.ts` does the same.

    Args:
        scene: the scene.
        poses: [T, B, 7] poses of its bodies.
        aspect: width of the image divided by its height.
        beside: poses of the clips of any length shown next to it, which share height and distance.

    Returns:
        [T, 3] targets, which follow the tracked body along the ground at a fixed height, and the
        distance to them: the scene's own, or more where the shapes need it.
    """
    camera = scene["camera"]
    # Frames of all clips in a row: only their extremes matter.
    shown = np.concatenate([poses, *beside])
    centres, radii = enclosing_spheres(scene, shown)
    targets = np.tile(np.array(camera["lookat"], np.float64), (len(shown), 1))
    if camera["tracks"] is not None:
        low, high = (centres[..., 2] - radii).min(), (centres[..., 2] + radii).max()
        targets[:, :2], targets[:, 2] = shown[:, camera["tracks"], :2], (low + high) / 2
    azimuth, elevation = math.radians(camera["azimuth_deg"]), math.radians(camera["elevation_deg"])
    # MuJoCo's free camera looks along (cos e cos a, cos e sin a, sin e).
    level = np.array([math.cos(azimuth), math.sin(azimuth), 0.0])
    forward = math.cos(elevation) * level + [0.0, 0.0, math.sin(elevation)]
    right = np.array([level[1], -level[0], 0.0])
    offsets = centres - targets[:, None]
    half_height = math.radians(FIELD_OF_VIEW_DEG / 2) * USED_VIEW
    # The angles of a flat image: tan(half width) = aspect * tan(half height).
    half_width = math.atan(aspect * math.tan(half_height))
    distance = camera["distance"] * max(1.0, NARROWEST / aspect)
    for across, angle in ((right, half_width), (np.cross(right, forward), half_height)):
        # A sphere touches the edge of the view, at an angle a, where
        # |across| cos a + radius = (distance + depth) sin a.
        reach = np.abs(offsets @ across) * math.cos(angle) + radii
        needed = reach / math.sin(angle) - offsets @ forward
        distance = max(distance, float(needed.max(initial=0.0)))
    return targets[: len(poses)], distance


def _rotated(
    quats: Float[np.ndarray, "*frame 4"], points: Float[np.ndarray, "*point 3"]
) -> Float[np.ndarray, "..."]:
    """Rotate points by quaternions."""
    # For a unit quaternion (w, u): p + 2 w (u x p) + 2 u x (u x p).
    turn = 2 * np.cross(quats[..., 1:], points)
    return points + quats[..., :1] * turn + np.cross(quats[..., 1:], turn)


# --- numbers ---


def _rounded(numbers: Any) -> Any:
    """Round numbers for JSON, so that hashes do not depend on the machine's last bits."""
    # Adding zero turns -0.0 into 0.0.
    return (np.round(np.asarray(numbers, np.float64), DECIMALS) + 0.0).tolist()
