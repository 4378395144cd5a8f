"""Spaces of an environment as JSON, validated when read."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import gymnasium as gym
import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from rl_teacher.common.errors import BadInput
from rl_teacher.nn.encoders import ImageBox
from rl_teacher.nn.image_layout import ImageLayout

MAX_AXES = 8
MAX_SIZE = 2**31
"""Maximum number of elements of an observation or action, and of choices of a discrete action."""


def check_num_elements(shape: list[int]) -> list[int]:
    """Check that the elements of a shape can be counted.

    Raises:
        ValueError: There are too many.
    """
    if math.prod(shape) > MAX_SIZE:
        raise ValueError(f"more than {MAX_SIZE:,} elements")
    return shape


Count = Annotated[int, Field(ge=1, le=MAX_SIZE)]
Start = Annotated[int, Field(ge=-MAX_SIZE, le=MAX_SIZE)]
Shape = Annotated[list[Count], Field(max_length=MAX_AXES), AfterValidator(check_num_elements)]


FloatName = Literal["float16", "float32", "float64"]
IntegerName = Literal["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]


class SpaceModel(BaseModel):
    """Base class of spaces; strict, so that nothing is converted."""

    model_config = ConfigDict(strict=True)

    @property
    def value_shape(self) -> tuple[int, ...]:
        """Shape of one observation or action."""
        return tuple(getattr(self, "shape", ()))


class BoxModel(SpaceModel):
    """An unbounded Box: bounds are not kept, since no label depends on them."""

    kind: Literal["box"]
    shape: Shape
    dtype: Literal[FloatName, IntegerName, "bool"]

    def to_space(self) -> gym.Space:
        """Create the space."""
        dtype, shape = np.dtype(self.dtype), tuple(self.shape)
        if np.issubdtype(dtype, np.floating):
            return gym.spaces.Box(-np.inf, np.inf, shape, dtype.type)
        if dtype == np.bool_:
            return gym.spaces.Box(0, 1, shape, dtype.type)
        limits = np.iinfo(dtype)
        return gym.spaces.Box(limits.min, limits.max, shape, dtype.type)


class ImageModel(SpaceModel):
    """A Box of uint8 images whose channel axis is known; null for one channel without an axis."""

    kind: Literal["image"]
    shape: Annotated[Shape, Field(min_length=2, max_length=3)]
    channel_axis: Literal[0, 2] | None

    @model_validator(mode="after")
    def check_axis(self) -> Self:
        """Check that three axes are height, width and channels, and two have no channels."""
        if (self.channel_axis is None) != (len(self.shape) == 2):
            raise ValueError("channel_axis must be 0 or 2 for three axes, and null for two")
        return self

    def to_space(self) -> gym.Space:
        """Create the space."""
        return ImageBox(ImageLayout(tuple(self.shape), self.channel_axis))


class DiscreteModel(SpaceModel):
    """A choice of n actions, numbered from `start`."""

    kind: Literal["discrete"]
    n: Count
    start: Start

    def to_space(self) -> gym.Space:
        """Create the space."""
        return gym.spaces.Discrete(self.n, start=self.start)


class MultiDiscreteModel(SpaceModel):
    """Several choices, one after another; null in `start` numbers each from 0.

    Without a shape, an action has one axis.
    """

    kind: Literal["multi_discrete"]
    nvec: Annotated[list[Count], Field(min_length=1)]
    start: list[Start] | None = None
    shape: Shape | None = None

    @model_validator(mode="after")
    def check_lengths(self) -> Self:
        """Check that every choice has its first number and its place."""
        if self.start is not None and len(self.start) != len(self.nvec):
            raise ValueError("start and nvec must have equal lengths")
        if math.prod(self.value_shape) != len(self.nvec):
            raise ValueError("shape must have as many elements as nvec")
        return self

    @property
    def value_shape(self) -> tuple[int, ...]:
        """Shape of one observation or action."""
        return tuple(self.shape or [len(self.nvec)])

    def to_space(self) -> gym.Space:
        """Create the space."""
        start = None if self.start is None else np.reshape(self.start, self.value_shape)
        return gym.spaces.MultiDiscrete(np.reshape(self.nvec, self.value_shape), start=start)


class MultiBinaryModel(SpaceModel):
    """Several binary choices."""

    kind: Literal["multi_binary"]
    shape: Annotated[Shape, Field(min_length=1)]

    def to_space(self) -> gym.Space:
        """Create the space."""
        return gym.spaces.MultiBinary(self.shape)


class SpacesModel(SpaceModel):
    """Observation and action space as in `dataset.json`."""

    observation: Annotated[BoxModel | ImageModel, Field(discriminator="kind")]
    action: Annotated[
        BoxModel | DiscreteModel | MultiDiscreteModel | MultiBinaryModel,
        Field(discriminator="kind"),
    ]

    def to_spaces(self) -> "Spaces":
        """Create the spaces."""
        return Spaces(self.observation.to_space(), self.action.to_space())


@dataclass(frozen=True)
class Spaces:
    """Observation and action space.

    Attributes:
        observation: A Box.
        action: A Box, Discrete, MultiDiscrete or MultiBinary.
    """

    observation: gym.Space
    action: gym.Space

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON.

        Raises:
            BadInput: A space is of another kind.
        """
        return {
            "observation": space_to_json(self.observation),
            "action": space_to_json(self.action),
        }

    @staticmethod
    def from_json(values: Any) -> "Spaces":
        """Convert from untrusted JSON.

        Raises:
            BadInput: The values do not describe spaces.
        """
        try:
            model = SpacesModel.model_validate(values)
        except ValidationError as error:
            [first, *_] = error.errors(include_url=False, include_context=False)
            place = ".".join(map(str, first["loc"])) or "spaces"
            raise BadInput(
                f"The spaces {values!r:.200} are invalid ({place}: {first['msg']}). An observation "
                "space (box or image) and an action space (box, discrete, multi_discrete or "
                "multi_binary) are needed, as in docs/datasets.md."
            ) from error
        return model.to_spaces()


def space_to_json(space: gym.Space) -> dict[str, Any]:
    """Convert a space to JSON.

    Raises:
        BadInput: The space is of another kind.
    """
    match space:
        case ImageBox(layout=layout):
            axis = layout.channel_axis
            return {"kind": "image", "shape": list(layout.shape), "channel_axis": axis}
        case gym.spaces.Box(shape=shape, dtype=dtype):
            return {"kind": "box", "shape": list(shape), "dtype": str(dtype)}
        case gym.spaces.Discrete(n=n, start=start):
            return {"kind": "discrete", "n": int(n), "start": int(start)}
        case gym.spaces.MultiDiscrete(nvec=nvec, start=start, shape=shape):
            starts = {"start": np.ravel(start).tolist()} if np.any(start) else {}
            shapes = {"shape": list(shape)} if len(shape) > 1 else {}
            nvec = np.ravel(nvec).tolist()
            return {"kind": "multi_discrete", "nvec": nvec, **starts, **shapes}
        case gym.spaces.MultiBinary(shape=shape):
            return {"kind": "multi_binary", "shape": list(shape)}
    raise BadInput(
        f"The space {space} cannot be kept in a data set. Box, Discrete, MultiDiscrete "
        "and MultiBinary can: wrap the environment so that it has these."
    )
