"""An environment's spaces as plain values: what a predictor for its labels must know."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from rl_teacher.common.errors import BadInput

MOST_AXES = 8
LARGEST = 2**31
"""Numbers in one observation or action, at most; likewise the choices of a discrete action."""
DTYPES = ("float32", "float64", "int64", "int32", "uint8")
"""Of boxes that are written and read."""


@dataclass(frozen=True)
class Spaces:
    """Of one environment.

    Attributes:
        observation: a Box.
        action: Box, Discrete, MultiDiscrete or MultiBinary.
    """

    observation: gym.Space
    action: gym.Space

    def to_json(self) -> dict[str, Any]:
        """As plain values.

        Raises:
            BadInput: spaces of another kind.
        """
        return {"observation": described(self.observation), "action": described(self.action)}

    @staticmethod
    def from_json(values: Any) -> "Spaces":
        """From plain values, whoever wrote them.

        Raises:
            BadInput: they describe no spaces.
        """
        if not isinstance(values, Mapping):
            raise BadInput(f"The spaces are {values!r:.80}; observation and action are needed.")
        observation, action = (
            space_from(values.get("observation")),
            space_from(values.get("action")),
        )
        if not isinstance(observation, gym.spaces.Box):
            raise BadInput(f"The observations are of {observation}; a Box is needed.")
        return Spaces(observation, action)


def described(space: gym.Space) -> dict[str, Any]:
    """A space as plain values; where a Box ends is left out, for no label depends on it."""
    if isinstance(space, gym.spaces.Box):
        return {"kind": "box", "shape": list(space.shape), "dtype": str(space.dtype)}
    if isinstance(space, gym.spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        values = {"kind": "multi_discrete", "nvec": np.asarray(space.nvec).tolist()}
        start = np.asarray(space.start)
        return values | ({"start": start.tolist()} if start.any() else {})
    if isinstance(space, gym.spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": list(space.shape)}
    raise BadInput(
        f"The space {space} cannot be kept in a data set. Box, Discrete, MultiDiscrete "
        "and MultiBinary can: wrap the environment so that it has these."
    )


def space_from(values: Any) -> gym.Space:
    """The space that plain values describe.

    Raises:
        BadInput: none.
    """
    match values:
        case {"kind": "box", "shape": list(shape), "dtype": str(dtype)}:
            if may_be_shape(shape) and dtype in DTYPES:
                return box(tuple(shape), dtype)
        case {"kind": "discrete", "n": n, "start": start}:
            if is_count(n) and is_start(start):
                return gym.spaces.Discrete(n, start=start)
        case {"kind": "multi_discrete", "nvec": list(nvec)}:
            start = values.get("start", [0] * len(nvec))
            are_starts = isinstance(start, list) and all(map(is_start, start))
            is_whole_space = 0 < len(nvec) <= LARGEST and all(map(is_count, nvec))
            if is_whole_space and are_starts and len(start) == len(nvec):
                return gym.spaces.MultiDiscrete(nvec, start=start)
        case {"kind": "multi_binary", "shape": list(shape)}:
            if shape and may_be_shape(shape):
                return gym.spaces.MultiBinary(shape)
    raise BadInput(
        f"{values!r:.200} is no space: a kind (box, discrete, multi_discrete, multi_binary) with "
        "its shape and dtype, n and start, nvec, or shape is needed."
    )


def box(shape: tuple[int, ...], dtype: str) -> gym.spaces.Box:
    """A Box that everything of this shape and type is in."""
    kind = np.dtype(dtype)
    if np.issubdtype(kind, np.floating):
        return gym.spaces.Box(-np.inf, np.inf, shape, kind.type)
    limits = np.iinfo(kind)
    return gym.spaces.Box(limits.min, limits.max, shape, kind.type)


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def may_be_shape(shape: list[Any]) -> bool:
    """Whether an array of one observation or action may have this shape."""
    return len(shape) <= MOST_AXES and all(map(is_count, shape)) and math.prod(shape) <= LARGEST


def is_start(value: Any) -> bool:
    """Whether it may be the number of a first choice."""
    return is_whole(value) and abs(value) <= LARGEST


def is_count(value: Any) -> bool:
    """Whether it is a whole number of at least 1 that an array may have."""
    return is_whole(value) and 1 <= value <= LARGEST
