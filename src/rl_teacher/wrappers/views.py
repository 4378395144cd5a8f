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

Transform = Callable[[Any], np.ndarray]


class ObservationView:
    """Converts observations to arrays, which are always copies.

    Attributes:
        space: space of one converted observation.
        is_plain: True if observations are only cast, not flattened or transformed.
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
        self._own_space = own_space
        self._batched_space = batched_space
        self._transform = transform or self._default_transform()
        self.space = self._transformed_space() if transform else self._default_space()
        self.is_plain = transform is None and isinstance(own_space, gym.spaces.Box)

    def _default_transform(self) -> Transform:
        if isinstance(self._own_space, gym.spaces.Box):
            return np.asarray
        if not self._own_space.is_np_flattenable:
            raise BadInput(
                f"Observations of {self._own_space} cannot be flattened to one array of a fixed "
                "size. Give observation_transform, a function of one observation that returns one."
            )
        return lambda observation: np.asarray(flatten(self._own_space, observation))

    def _default_space(self) -> gym.spaces.Box:
        flat = flatten_space(self._own_space)
        space = self._own_space if isinstance(self._own_space, gym.spaces.Box) else flat
        assert isinstance(space, gym.spaces.Box)  # noqa: S101 - flattenable spaces become a Box
        dtype = np.float32 if np.issubdtype(space.dtype, np.floating) else space.dtype
        return gym.spaces.Box(-np.inf, np.inf, space.shape) if dtype == np.float32 else space

    def _transformed_space(self) -> gym.spaces.Box:
        """Return the space of a transformed sample, drawn from a copy of the space."""
        space = copy.deepcopy(self._own_space)
        space.seed(0)
        try:
            seen = np.asarray(self._transform(space.sample()))
        except Exception as error:
            raise BadInput(
                f"observation_transform raised {type(error).__name__}: {error}. It is given one "
                f"observation of {self._own_space}, and must return an array."
            ) from error
        if seen.dtype.kind not in "fiub":
            raise BadInput(
                f"observation_transform returned an array of {seen.dtype}; numbers are needed."
            )
        if seen.dtype == np.uint8:
            return gym.spaces.Box(0, 255, seen.shape, np.uint8)
        return gym.spaces.Box(-np.inf, np.inf, seen.shape, np.float32)

    def one(self, observation: Any) -> Shaped[np.ndarray, "..."]:
        """Convert one observation.

        Raises:
            BadInput: the converted observation has another shape than `space`.
        """
        seen = np.array(self._transform(observation), self.space.dtype)
        if seen.shape != self.space.shape:
            raise BadInput(
                f"An observation became an array of {seen.shape}, others of {self.space.shape}. "
                "All must have one shape: mend the environment or its observation_transform."
            )
        return seen

    def many(self, observations: Any) -> Shaped[np.ndarray, "env ..."]:
        """Convert N observations of a vector environment."""
        if self.is_plain:
            return np.array(observations, self.space.dtype)
        assert self._batched_space is not None  # noqa: S101 - a vector environment has one
        return np.stack([self.one(each) for each in iterate(self._batched_space, observations)])
