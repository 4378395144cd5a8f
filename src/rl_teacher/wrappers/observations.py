"""Conversion of observations of any space to the predictor's Box space."""

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces.utils import flatten, flatten_space
from gymnasium.vector.utils import iterate
from jaxtyping import Shaped

from rl_teacher.common.errors import BadInput
from rl_teacher.envs.preprocessing import ImageRows, find_space_fault, has_image

Transform = Callable[[Any], np.ndarray]


class ObservationConverter:
    """Converts observations to arrays, which are always copies.

    Images of floats become bytes, other floats float32.

    Attributes:
        space: space of one converted observation; that of the environment if it is a Box.
    """

    def __init__(
        self, own_space: gym.Space, batched_space: gym.Space | None, transform: Transform | None
    ) -> None:
        """Initialise.

        Args:
            own_space: space of one observation of the environment.
            batched_space: space of N observations; None for a single environment.
            transform: function of one observation; None to keep a Box and flatten any other
                space.

        Raises:
            BadInput: the observations cannot be flattened, or the transform does not work.
        """
        self._batched_space = batched_space
        self._keeps_arrays = transform is None and isinstance(own_space, gym.spaces.Box)
        if transform is not None:
            self._transform, self.space = transform, space_of_results(transform, own_space)
            return
        if (fault := find_space_fault(own_space)) is not None:
            raise BadInput(
                f"Observations of {own_space!s:.200} cannot be used: {fault}. "
                "Give observation_transform, a function of one observation that returns an array."
            )
        if has_image(own_space) and own_space.dtype != np.uint8:
            self._keeps_arrays, self._transform = False, ImageRows(own_space)
            self.space = self._transform.space
            return
        space = own_space if isinstance(own_space, gym.spaces.Box) else flatten_space(own_space)
        assert isinstance(space, gym.spaces.Box)  # noqa: S101 - flattenable spaces become a Box
        self.space = space
        self._transform = (
            np.asarray
            if self._keeps_arrays
            else lambda observation: np.asarray(flatten(own_space, observation))
        )

    @property
    def _dtype(self) -> np.dtype:
        """Type of the arrays, as in the segments of `rl-teacher teach`."""
        is_float = np.issubdtype(self.space.dtype, np.floating)
        return np.dtype(np.float32 if is_float else self.space.dtype)

    def one(self, observation: Any) -> Shaped[np.ndarray, "..."]:
        """Convert one observation.

        Raises:
            BadInput: the converted observation has another shape than `space`.
        """
        converted = np.array(self._transform(observation), self._dtype)
        if converted.shape != self.space.shape:
            raise BadInput(
                f"An observation became an array of shape {converted.shape}, but "
                f"{self.space.shape} is needed. All observations must have one shape: correct the "
                "environment or its observation_transform."
            )
        return converted

    def many(self, observations: Any) -> Shaped[np.ndarray, "env ..."]:
        """Convert N observations of a vector environment."""
        if self._keeps_arrays:
            return np.array(observations, self._dtype)
        assert self._batched_space is not None  # noqa: S101 - a vector environment has one
        return np.stack([self.one(each) for each in iterate(self._batched_space, observations)])


def seeded(space: gym.Space, seed: int) -> gym.Space:
    """Return a seeded copy of a space, which leaves the generator of the original unchanged."""
    copied = copy.deepcopy(space)
    copied.seed(seed)
    return copied


def space_of_results(transform: Transform, own_space: gym.Space) -> gym.spaces.Box:
    """Return the space of transformed observations, from one sample.

    Raises:
        BadInput: the transform fails, or returns no array of numbers.
    """
    space = seeded(own_space, 0)
    try:
        result = np.asarray(transform(space.sample()))
    except Exception as error:
        raise BadInput(
            f"observation_transform raised {type(error).__name__}: {error}. It is called with one "
            f"observation of {own_space} and must return an array."
        ) from error
    if result.dtype.kind not in "fiub":
        raise BadInput(
            f"observation_transform returned an array of {result.dtype}; numbers are needed."
        )
    if result.dtype == np.uint8:
        return gym.spaces.Box(0, 255, result.shape, np.uint8)
    return gym.spaces.Box(-np.inf, np.inf, result.shape, np.float32)
