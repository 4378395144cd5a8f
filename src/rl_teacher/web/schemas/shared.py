"""Field types, limits and schemas that several others share, and those of clips and scenes."""

import math
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    computed_field,
)

from rl_teacher.clips.poses import MAX_NUMBER
from rl_teacher.clips.segment import playback_speed

MAX_PAGE = 200
"""Rows on one page of a long list."""

NO_NULL = "^[^\\x00]*$"
"""Excludes the one character that not every database can store or compare."""


def finite(value: Any) -> Any:
    """Return a finite number, or None."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


Number = Annotated[float | None, BeforeValidator(finite)]
"""None if the value is missing or not finite."""
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class StrictRequest(BaseModel):
    """Request body that rejects unknown fields, so that a misspelt setting is not ignored."""

    model_config = ConfigDict(extra="forbid")


class Clip(BaseModel):
    """Clip metadata and the URLs of its content: poses, which animate a scene, or a video.

    Clips side by side are played at the highest `speed` of theirs, which is below 1 for very short
    clips.
    """

    hash: str
    kind: Literal["poses", "video"]
    url: str
    scene_url: str | None
    num_frames: int
    fps: float

    @computed_field
    @property
    def seconds(self) -> float:
        """Duration at speed 1."""
        return self.num_frames / self.fps

    @computed_field
    @property
    def speed(self) -> float:
        """Speed at which the clip is played."""
        return playback_speed(self.seconds)


Length = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Vector = Annotated[list[Length], Field(min_length=3, max_length=3)]


class Geom(BaseModel):
    """Geometric primitive or mesh, in MuJoCo's conventions (half sizes, quaternions as w x y z).

    `body` indexes `Scene.bodies`, -1 for the world; `mesh` and `hfield` index `Scene.meshes` and
    `Scene.hfields`.
    """

    type: Literal["plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh", "hfield"]
    body: int
    size: Vector
    pos: Vector
    quat: Annotated[list[Length], Field(min_length=4, max_length=4)]
    rgba: Annotated[list[Length], Field(min_length=4, max_length=4)]
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
    size: Annotated[list[Length], Field(min_length=4, max_length=4)]
    data: str


class SceneCamera(BaseModel):
    """Free camera; `tracks` is the index of the body that it follows."""

    distance: Length
    elevation_deg: Length
    azimuth_deg: Length
    lookat: Vector
    tracks: int | None


class Scene(BaseModel):
    """Shapes, colours and camera of an environment, which clips of poses animate."""

    version: int
    bodies: list[str]
    geoms: list[Geom]
    meshes: list[Mesh]
    hfields: list[HeightField]
    camera: SceneCamera
    extent: Length
    ground_z: Length | None
