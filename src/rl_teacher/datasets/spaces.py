"""Spaces of an environment as JSON."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from rl_teacher.common.errors import BadInput

MAX_AXES = 8
MAX_SIZE = 2**31
"""Maximum number of elements of an observation or action, and of choices of a discrete action."""
DTYPES = ("float32", "float64", "int64", "int32", "uint8")
"""Allowed types of a Box."""


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
        if not isinstance(values, Mapping):
            raise BadInput(f"The spaces are {values!r:.80}; observation and action are needed.")
        observation, action = (
            space_from_json(values.get("observation")),
            space_from_json(values.get("action")),
        )
        if not isinstance(observation, gym.spaces.Box):
            raise BadInput(f"The observations are of {observation}; a Box is needed.")
        return Spaces(observation, action)


def space_to_json(space: gym.Space) -> dict[str, Any]:
    """Convert a space to JSON; bounds of a Box are dropped, since no label depends on them."""
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


def space_from_json(values: Any) -> gym.Space:
    """Convert JSON to a space.

    Raises:
        BadInput: The values do not describe a space.
    """
    match values:
        case {"kind": "box", "shape": list(shape), "dtype": str(dtype)}:
            if is_shape(shape) and dtype in DTYPES:
                return box(tuple(shape), dtype)
        case {"kind": "discrete", "n": n, "start": start}:
            if is_count(n) and is_start(start):
                return gym.spaces.Discrete(n, start=start)
        case {"kind": "multi_discrete", "nvec": list(nvec)}:
            start = values.get("start", [0] * len(nvec))
            are_starts = isinstance(start, list) and all(map(is_start, start))
            is_whole_space = 0 < len(nvec) <= MAX_SIZE and all(map(is_count, nvec))
            if is_whole_space and are_starts and len(start) == len(nvec):
                return gym.spaces.MultiDiscrete(nvec, start=start)
        case {"kind": "multi_binary", "shape": list(shape)}:
            if shape and is_shape(shape):
                return gym.spaces.MultiBinary(shape)
    raise BadInput(
        f"{values!r:.200} is no space: a kind (box, discrete, multi_discrete, multi_binary) with "
        "its shape and dtype, n and start, nvec, or shape is needed."
    )


def box(shape: tuple[int, ...], dtype: str) -> gym.spaces.Box:
    """Create an unbounded Box of a shape and type."""
    kind = np.dtype(dtype)
    if np.issubdtype(kind, np.floating):
        return gym.spaces.Box(-np.inf, np.inf, shape, kind.type)
    limits = np.iinfo(kind)
    return gym.spaces.Box(limits.min, limits.max, shape, kind.type)


def is_whole(value: Any) -> bool:
    """Return True for an integer that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_shape(shape: list[Any]) -> bool:
    """Return True for a valid shape of an observation or action."""
    return len(shape) <= MAX_AXES and all(map(is_count, shape)) and math.prod(shape) <= MAX_SIZE


def is_start(value: Any) -> bool:
    """Return True for a valid number of a first choice."""
    return is_whole(value) and abs(value) <= MAX_SIZE


def is_count(value: Any) -> bool:
    """Return True for a valid number of choices or length of an axis."""
    return is_whole(value) and 1 <= value <= MAX_SIZE
