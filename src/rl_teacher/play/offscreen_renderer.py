"""Offscreen rendering of MuJoCo bodies in another process.

MuJoCo selects its OpenGL backend once, when it is imported. A new process can try one backend after
the other, whatever this process has imported, so this module must not import MuJoCo at the top.
"""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Inexact, UInt8

from rl_teacher.common.errors import BadInput

CHUNK_FRAMES = 25
WITHOUT_A_DISPLAY = ("egl", "osmesa")
NARROWEST = 1.25
"""Images with a smaller aspect ratio are viewed from farther away, as on the page."""
SHADOW_SIZE = 1024
GROUND_GREY, GROUND_CONTRAST = 150, 0.12

Frames = UInt8[np.ndarray, "time height width 3"]


@dataclass(frozen=True)
class Shot:
    """A camera setup.

    Attributes:
        env_id: id of the environment.
        camera: the camera of the scene.
        look_height: height of the target in metres, if the camera tracks a body.
        width: image width in pixels.
        height: image height in pixels.
    """

    env_id: str
    camera: Mapping[str, Any]
    look_height: float
    width: int
    height: int


class OffscreenRenderer:
    """A renderer in another process."""

    def __init__(self) -> None:
        """Start a process with a working OpenGL backend.

        Raises:
            BadInput: this machine has none.
        """
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(working_pool())

    def draw(
        self, shot: Shot, scene_states: Inexact[np.ndarray, "time nq"]
    ) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
        """Yield one image per state."""
        for first in range(0, len(scene_states), CHUNK_FRAMES):
            states = scene_states[first : first + CHUNK_FRAMES]
            yield from self._pool.submit(drawn, shot, states).result()

    def close(self) -> None:
        """End the process."""
        self._stack.close()


def working_pool() -> ProcessPoolExecutor:
    """Start a process in which MuJoCo can render.

    Raises:
        BadInput: no OpenGL backend works.
    """
    faults = []
    for backend in backends():
        pool = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=choose, initargs=(backend,)
        )
        try:
            pool.submit(try_to_draw).result()
        except (BrokenProcessPool, Exception) as error:
            pool.shutdown()
            faults.append(f"{backend or 'the default'}: {error}")
        else:
            return pool
    raise BadInput(
        f"MuJoCo finds no OpenGL to render a video with ({'; '.join(faults)}). Install one that "
        "needs no display (Debian: apt-get install libegl1 libgl1-mesa-dri), or leave --video out "
        "and watch on the page, which needs none."
    )


def backends() -> tuple[str, ...]:
    """Return the backends to try; an empty name leaves the choice to MuJoCo."""
    if os.environ.get("MUJOCO_GL"):
        return (os.environ["MUJOCO_GL"],)
    return WITHOUT_A_DISPLAY if sys.platform == "linux" else ("",)


# --- in the other process ---


def choose(backend: str) -> None:
    """Select the OpenGL backend before MuJoCo is imported."""
    if backend:
        os.environ["MUJOCO_GL"] = backend


def try_to_draw() -> None:
    """Raise an error if nothing can be rendered."""
    import mujoco  # noqa: PLC0415 - not before `choose`

    mujoco.GLContext(8, 8).free()


def drawn(shot: Shot, scene_states: Inexact[np.ndarray, "time nq"]) -> Frames:
    """Render [T, H, W, 3] images of states."""
    import mujoco  # noqa: PLC0415 - not before `choose`

    from rl_teacher.envs.mujoco.physics import quiet_mujoco  # noqa: PLC0415
    from rl_teacher.envs.registry import mujoco_model  # noqa: PLC0415

    model: Any = mujoco_model(shot.env_id)
    make_plain(model)
    model.vis.global_.offwidth, model.vis.global_.offheight = shot.width, shot.height
    pose: Any = mujoco.MjData(model)  # pyright: ignore[reportAttributeAccessIssue]
    frames = np.empty((len(scene_states), shot.height, shot.width, 3), np.uint8)
    with quiet_mujoco(), mujoco.Renderer(model, shot.height, shot.width) as renderer:
        for frame, qpos in zip(frames, scene_states, strict=True):
            pose.qpos[:] = qpos
            mujoco.mj_forward(model, pose)  # pyright: ignore[reportAttributeAccessIssue]
            renderer.update_scene(pose, _camera(shot, model, pose))
            renderer.render(out=frame)
    return frames


def make_plain(model: Any) -> None:
    """Simplify materials: bodies stand out from the ground, and rendering takes half the time."""
    import mujoco  # noqa: PLC0415

    model.mat_reflectance[:] = 0
    model.vis.quality.shadowsize = SHADOW_SIZE
    planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE  # pyright: ignore[reportAttributeAccessIssue]
    materials = model.geom_matid[planes]
    for texture in np.unique(model.mat_texid[materials[materials >= 0]]):
        if texture >= 0:
            height, width = model.tex_height[texture], model.tex_width[texture]
            first = model.tex_adr[texture]
            pixels = model.tex_data[first : first + height * width * model.tex_nchannel[texture]]
            pixels[:] = GROUND_GREY + GROUND_CONTRAST * (pixels.astype(np.float64) - GROUND_GREY)


def _camera(shot: Shot, model: Any, pose: Any) -> Any:
    """Return the initial camera of the page."""
    import mujoco  # noqa: PLC0415

    from rl_teacher.clips.scene import moving_bodies  # noqa: PLC0415

    settings = shot.camera
    camera: Any = mujoco.MjvCamera()  # pyright: ignore[reportAttributeAccessIssue]
    camera.lookat[:] = settings["lookat"]
    if settings["tracks"] is not None:
        camera.lookat[:] = _at_height(
            pose.xpos[moving_bodies(model)[settings["tracks"]]], shot.look_height
        )
    camera.distance = settings["distance"] * max(1.0, NARROWEST * shot.height / shot.width)
    camera.azimuth, camera.elevation = settings["azimuth_deg"], settings["elevation_deg"]
    return camera


def _at_height(place: Float[np.ndarray, "3"], height: float) -> Float[np.ndarray, "3"]:
    return np.array([place[0], place[1], height])
