"""Schema of a scene file, which `rl_teacher.clips.scene` writes."""

from typing import Literal

from pydantic import BaseModel


class Geom(BaseModel):
    """Geometric primitive or mesh, in MuJoCo's conventions (half sizes, quaternions as w x y z).

    `body` indexes `Scene.bodies`, -1 for the world; `mesh` and `hfield` index `Scene.meshes` and
    `Scene.hfields`.
    """

    type: Literal["plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh", "hfield"]
    body: int
    size: list[float]
    pos: list[float]
    quat: list[float]
    rgba: list[float]
    mesh: int | None
    hfield: int | None


class Mesh(BaseModel):
    """Triangle mesh; both arrays are base64."""

    vertices: str
    faces: str


class HeightField(BaseModel):
    """Height field; `data` is base64."""

    rows: int
    columns: int
    size: list[float]
    data: str


class SceneCamera(BaseModel):
    """Free camera; `tracks` is the index of the body that it follows."""

    distance: float
    elevation_deg: float
    azimuth_deg: float
    lookat: list[float]
    tracks: int | None


class Scene(BaseModel):
    """Shapes, colours and camera of an environment, which clips of poses animate."""

    version: int
    bodies: list[str]
    geoms: list[Geom]
    meshes: list[Mesh]
    hfields: list[HeightField]
    camera: SceneCamera
    extent: float
    ground_z: float | None
