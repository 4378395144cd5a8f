"""Field types, limits and schemas that several others share, and those of clips and scenes."""

import base64
import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    computed_field,
    model_validator,
)

from rl_teacher.clips.poses import MAX_NUMBER
from rl_teacher.clips.segment import playback_speed

MAX_PAGE = 200
"""Rows on one page of a long list."""
MAX_CURSOR = 200

CURSOR = "^[A-Za-z0-9_=-]*$"
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


def decode_rows(text: str, dtype: str, columns: int) -> np.ndarray:
    """Decode base64 to [rows, columns] finite numbers.

    Raises:
        ValueError: it is no base64, or of no whole rows, or a number is not finite.
    """
    rows = np.frombuffer(base64.b64decode(text, validate=True), dtype).reshape(-1, columns)
    if not len(rows) or not np.isfinite(rows).all():
        raise ValueError("one row or more of finite numbers is needed")
    return rows


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

    @model_validator(mode="after")
    def check_arrays(self) -> Self:
        """Check that faces are three indices of vertices each."""
        vertices, faces = decode_rows(self.vertices, "<f4", 3), decode_rows(self.faces, "<u4", 3)
        if faces.max() >= len(vertices):
            raise ValueError(f"a face has vertex {faces.max()} of {len(vertices)}")
        return self


class HeightField(BaseModel):
    """Height field; `data` is base64."""

    rows: int
    columns: int
    size: Annotated[list[Length], Field(min_length=4, max_length=4)]
    data: str

    @model_validator(mode="after")
    def check_data(self) -> Self:
        """Check the number of heights."""
        if len(decode_rows(self.data, "<f4", 1)) != self.rows * self.columns:
            raise ValueError(f"{self.rows} x {self.columns} heights are needed")
        return self


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

    @model_validator(mode="after")
    def check_references(self) -> Self:
        """Check that bodies, meshes and height fields that others refer to exist."""
        references = [
            *((geom.body, -1, self.bodies) for geom in self.geoms),
            *((geom.mesh, 0, self.meshes) for geom in self.geoms if geom.type == "mesh"),
            *((geom.hfield, 0, self.hfields) for geom in self.geoms if geom.type == "hfield"),
        ]
        if self.camera.tracks is not None:
            references.append((self.camera.tracks, 0, self.bodies))
        for index, first, existing in references:
            if index is None or not first <= index < len(existing):
                raise ValueError(f"{index} refers to none of {len(existing)}")
        return self
