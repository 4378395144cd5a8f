"""Offscreen rendering of pose clips, in another process.

MuJoCo selects its OpenGL backend once, when it is imported. A new process can try one backend after
the other, whatever this process has imported, so this module must not import MuJoCo at the top.

T: frames, B: moving bodies, H, W: height and width of the images in pixels.
"""
# MuJoCo's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import base64
import json
import math
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, UInt8

from rl_teacher.common.errors import BadInput, RendererKilled
from rl_teacher.common.runtime import blocked_interrupts

CHUNK_FRAMES = 25
WITHOUT_A_DISPLAY = ("egl", "osmesa")
GROUND_MATERIAL = "ground"
TEXTURE_SIZE = 256
SQUARES_PER_DISTANCE = 5
"""A square of the ground is at most this fraction of the camera's distance wide, as on the page."""
SUN = (0.35, 0.47, -1.0)
"""Direction of the light, as on the page."""
FLATNESS = 1e-3
"""Thickness of a shadow, relative to that of its shape."""

# The page's dark theme.
SKY = (0.110, 0.122, 0.145)
GROUND, GROUND_LINE = (0.192, 0.212, 0.247), (0.227, 0.251, 0.294)
SHADOW = (0.115, 0.127, 0.148, 1.0)


@dataclass(frozen=True)
class View:
    """Properties that all images of a clip share.

    Attributes:
        scene: the file of the scene.
        distance: distance of the camera to its targets in metres.
        width: W.
        height: H.
    """

    scene: bytes
    distance: float
    width: int
    height: int


class OffscreenRenderer:
    """A renderer in another process."""

    def __init__(self) -> None:
        """Start a process with a working OpenGL backend.

        Raises:
            BadInput: this machine has none.
        """
        self._pool = working_pool()

    def draw(
        self,
        view: View,
        poses: Float32[np.ndarray, "time body 7"],
        targets: Float[np.ndarray, "time 3"],
    ) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
        """Yield one image per frame.

        Args:
            view: the scene, camera distance and size.
            poses: [T, B, 7] poses of the bodies.
            targets: [T, 3] points that the camera looks at.

        Raises:
            RendererKilled: the process was killed.
        """
        # The next chunk is rendered while the caller works on this one.
        pending = None
        with report_killed_process():
            for first in range(0, len(poses), CHUNK_FRAMES):
                frames = slice(first, first + CHUNK_FRAMES)
                upcoming = self._pool.submit(draw_frames, view, poses[frames], targets[frames])
                if pending is not None:
                    yield from pending.result()
                pending = upcoming
            if pending is not None:
                yield from pending.result()

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def report_killed_process() -> Iterator[None]:
    """Convert the error of a pool whose process was killed to one that names a remedy.

    Raises:
        RendererKilled: the process was killed.
    """
    try:
        yield
    except BrokenProcessPool as error:
        raise RendererKilled(
            "The process that renders images was killed, most likely because the memory of this "
            "machine ran out. Free memory, for example by ending other runs or giving them fewer "
            "environments, and give the same command again."
        ) from error


def spawn_pool(initializer: Callable[..., None], *arguments: object) -> ProcessPoolExecutor:
    """Start a pool of one process, which Ctrl-C does not interrupt.

    Args:
        initializer: function that the process calls first.
        arguments: its arguments.
    """
    pool = ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=initializer, initargs=arguments
    )
    with blocked_interrupts():
        pool.submit(int)  # the first task starts the process
    return pool


def working_pool() -> ProcessPoolExecutor:
    """Start a process in which MuJoCo can render.

    Raises:
        BadInput: no OpenGL backend works.
    """
    faults = []
    for backend in backends():
        pool = spawn_pool(choose, backend)
        try:
            pool.submit(try_to_draw).result()
        # A broken driver raises an error, or ends the process: BrokenProcessPool.
        except Exception as error:
            pool.shutdown()
            faults.append(f"{backend or 'the default'}: {error}")
        else:
            return pool
    raise BadInput(
        f"MuJoCo finds no OpenGL to render a video with ({'; '.join(faults)}). Install one that "
        "needs no display (Debian: apt-get install libegl1 libgl1-mesa-dri libopengl0), or make no "
        "videos and watch on the page, which needs none."
    )


def backends() -> tuple[str, ...]:
    """Return the backends to try; an empty name leaves the choice to MuJoCo."""
    if os.environ.get("MUJOCO_GL"):
        return (os.environ["MUJOCO_GL"],)
    return WITHOUT_A_DISPLAY if sys.platform == "linux" else ("",)


# --- in the other process ---


def choose(backend: str) -> None:
    """Select the OpenGL backend before MuJoCo is imported."""
    end_with_parent()
    if backend:
        os.environ["MUJOCO_GL"] = backend


def end_with_parent() -> None:
    """End this process as soon as the one that started it has ended, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - called in processes of a pool only

    def wait() -> None:
        parent.join()
        os._exit(1)

    # A killed parent does not close the queue that this process reads: it would wait for ever.
    threading.Thread(target=wait, daemon=True).start()


def try_to_draw() -> None:
    """Raise an error if nothing can be rendered."""
    import mujoco  # noqa: PLC0415 - not before `choose`

    mujoco.GLContext(8, 8).free()


def draw_frames(
    view: View,
    poses: Float32[np.ndarray, "time body 7"],
    targets: Float[np.ndarray, "time 3"],
) -> UInt8[np.ndarray, "time height width 3"]:
    """Render [T, H, W, 3] images."""
    import mujoco  # noqa: PLC0415 - not before `choose`

    scene, renderer, data = make_renderer(view)
    camera: Any = mujoco.MjvCamera()
    camera.distance = view.distance
    camera.azimuth = scene["camera"]["azimuth_deg"]
    camera.elevation = scene["camera"]["elevation_deg"]
    images = np.empty((len(poses), view.height, view.width, 3), np.uint8)
    for image, pose, target in zip(images, poses, targets, strict=True):
        data.mocap_pos[:], data.mocap_quat[:] = pose[:, :3], pose[:, 3:]
        # Kinematics places mocap bodies; no dynamics are needed.
        mujoco.mj_kinematics(renderer.model, data)
        mujoco.mj_camlight(renderer.model, data)
        camera.lookat[:] = target
        renderer.update_scene(data, camera)
        if scene["ground_z"] is not None:
            add_shadows(renderer, scene["ground_z"])
        renderer.render(out=image)
    return images


@lru_cache(1)
def make_renderer(view: View) -> tuple[dict[str, Any], Any, Any]:
    """Make the scene, renderer and data of a clip, which all its chunks share."""
    import mujoco  # noqa: PLC0415 - not before `choose`

    scene = json.loads(view.scene)
    model = build_model(scene, view)
    renderer: Any = mujoco.Renderer(model, view.height, view.width)
    flags = renderer.scene.flags
    flags[mujoco.mjtRndFlag.mjRND_SHADOW] = flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
    flags[mujoco.mjtRndFlag.mjRND_FOG] = True
    return scene, renderer, mujoco.MjData(model)


def build_model(scene: dict[str, Any], view: View) -> Any:
    """Build a MuJoCo model whose bodies are posed freely (mocap) and look as in a scene."""
    import mujoco  # noqa: PLC0415 - not before `choose`

    spec: Any = mujoco.MjSpec()
    spec.visual.global_.offwidth, spec.visual.global_.offheight = view.width, view.height
    # Four samples of each pixel would take 60 % of the rendering time in software.
    spec.visual.quality.offsamples = 0
    # Segments around round shapes: MuJoCo's 28 x 16 cost a quarter more and look the same.
    spec.visual.quality.numslices, spec.visual.quality.numstacks = 16, 10
    spec.visual.headlight.ambient, spec.visual.headlight.diffuse = [0.5] * 3, [0.0] * 3
    spec.visual.headlight.specular = [0.0] * 3
    # The lengths of the fog are multiples of the extent.
    spec.stat.extent = view.distance
    spec.visual.map.fogstart, spec.visual.map.fogend, spec.visual.map.zfar = 1.5, 4.0, 60.0
    spec.visual.rgba.fog = [*SKY, 1.0]
    flat, checker = mujoco.mjtBuiltin.mjBUILTIN_FLAT, mujoco.mjtBuiltin.mjBUILTIN_CHECKER
    spec.add_texture(
        name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, builtin=flat, rgb1=SKY, rgb2=SKY,
        width=8, height=48,
    )  # fmt: skip
    spec.add_texture(
        name=GROUND_MATERIAL, type=mujoco.mjtTexture.mjTEXTURE_2D, builtin=checker,
        rgb1=GROUND, rgb2=GROUND_LINE, width=TEXTURE_SIZE, height=TEXTURE_SIZE,
    )  # fmt: skip
    ground = spec.add_material(name=GROUND_MATERIAL, texuniform=True, specular=0.0)
    ground.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = GROUND_MATERIAL
    # The texture has two squares in each direction.
    ground.texrepeat = [0.5 / round_length(view.distance / SQUARES_PER_DISTANCE)] * 2
    light = spec.worldbody.add_light(
        dir=SUN, castshadow=False, diffuse=[0.65] * 3, specular=[0.1] * 3, ambient=[0.0] * 3
    )
    if hasattr(light, "type"):
        light.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    else:  # MuJoCo 3.3.0
        light.directional = True
    add_shapes(spec, scene)
    return spec.compile()


def add_shapes(spec: Any, scene: dict[str, Any]) -> None:
    """Add the shapes of a scene, and its bodies, to a specification."""
    import mujoco  # noqa: PLC0415 - not before `choose`

    for index, mesh in enumerate(scene["meshes"]):
        spec.add_mesh(
            name=f"mesh {index}",
            uservert=np.frombuffer(base64.b64decode(mesh["vertices"]), "<f4"),
            userface=np.frombuffer(base64.b64decode(mesh["faces"]), "<u4").astype(np.int32),
            # The volume of a mesh may be 0; its surface may not.
            inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,
        )
    for index, hfield in enumerate(scene["hfields"]):
        heights = np.frombuffer(base64.b64decode(hfield["data"]), "<f4")
        spec.add_hfield(
            name=f"hfield {index}", nrow=hfield["rows"], ncol=hfield["columns"],
            size=hfield["size"], userdata=heights,
        )  # fmt: skip
    bodies = [spec.worldbody.add_body(mocap=True) for _ in scene["bodies"]]
    for geom in scene["geoms"]:
        kind = geom["type"]
        added = [*bodies, spec.worldbody][geom["body"]].add_geom(
            type=getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}"), size=geom["size"],
            pos=geom["pos"], quat=geom["quat"], rgba=geom["rgba"], contype=0, conaffinity=0,
        )  # fmt: skip
        if kind in ("mesh", "hfield"):
            setattr(added, f"{kind}name", f"{kind} {geom[kind]}")
        if kind == "plane":
            added.material = GROUND_MATERIAL
            added.rgba = [1.0, 1.0, 1.0, 1.0]


def add_shadows(renderer: Any, ground_z: float) -> None:
    """Add the shadow of every moving shape: the shape itself, flattened onto the ground.

    MuJoCo's shadow maps take two thirds of the rendering time in software, and have hard, jagged
    edges.
    """
    import mujoco  # noqa: PLC0415 - not before `choose`

    model, scene = renderer.model, renderer.scene
    # A point moves along the light to the ground: x and y shift by the height times its slope. The
    # rest of a height keeps the surface normals, hence the brightness, defined.
    flatten = np.array([[1, 0, -SUN[0] / SUN[2]], [0, 1, -SUN[1] / SUN[2]], [0, 0, FLATNESS]])
    lift = np.array([0.0, 0.0, ground_z + FLATNESS * model.stat.extent])
    # The bound is evaluated once: the shadows that are appended cast none.
    for index in range(scene.ngeom):
        shape = scene.geoms[index]
        if model.body_mocapid[model.geom_bodyid[shape.objid]] < 0 or shape.pos[2] < ground_z:
            continue
        shadow = scene.geoms[scene.ngeom]
        rotation = np.array(shape.mat, np.float64).reshape(3, 3)
        place = flatten @ (np.array(shape.pos, np.float64) - [0, 0, ground_z]) + lift
        mujoco.mjv_initGeom(shadow, shape.type, shape.size, place, rotation.ravel(), SHADOW)
        shadow.mat[:], shadow.size[:] = flatten @ rotation, shape.size
        shadow.dataid, shadow.specular = shape.dataid, 0.0
        scene.ngeom += 1


def round_length(length: float) -> float:
    """Round a length down to 1, 2 or 5 times a power of ten, as the page's ground squares."""
    power = 10.0 ** math.floor(math.log10(length))
    return power * max(step for step in (1, 2, 5) if step <= max(length / power, 1))
