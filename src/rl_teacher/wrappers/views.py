"""What the predictor sees of observations: a Box, whatever the environment's own space is."""

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
    """Makes arrays of observations, which are always copies.

    Attributes:
        space: of what is seen of one observation.
        is_plain: whether observations are seen as they are.
    """

    def __init__(
        self, own_space: gym.Space, batched_space: gym.Space | None, transform: Transform | None
    ) -> None:
        """Choose a view.

        Args:
            own_space: of one observation of the environment.
            batched_space: of N of them; None where there is only ever one.
            transform: of one observation; without it, a Box is seen as it is, and anything else
                flattened.

        Raises:
            BadInput: the observations cannot be flattened, or the transform does not work.
        """
        self._own_space = own_space
        self._batched_space = batched_space
        self._transform = transform or self._default_transform()
        self.space = self._space_of_outcome() if transform else self._default_space()
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
        assert isinstance(space, gym.spaces.Box)  # noqa: S101 - what can be flattened becomes a Box
        dtype = np.float32 if np.issubdtype(space.dtype, np.floating) else space.dtype
        return gym.spaces.Box(-np.inf, np.inf, space.shape) if dtype == np.float32 else space

    def _space_of_outcome(self) -> gym.spaces.Box:
        """What the transform makes of a sample, drawn from a copy so that nothing else changes."""
        sample_of = copy.deepcopy(self._own_space)
        sample_of.seed(0)
        try:
            seen = np.asarray(self._transform(sample_of.sample()))
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
        """What is seen of one observation.

        Raises:
            BadInput: its shape is not that of the others.
        """
        seen = np.array(self._transform(observation), self.space.dtype)
        if seen.shape != self.space.shape:
            raise BadInput(
                f"An observation became an array of {seen.shape}, others of {self.space.shape}. "
                "All must have one shape: mend the environment or its observation_transform."
            )
        return seen

    def many(self, observations: Any) -> Shaped[np.ndarray, "env ..."]:
        """What is seen of N observations, as the vector environment returned them."""
        if self.is_plain:
            return np.array(observations, self.space.dtype)
        assert self._batched_space is not None  # noqa: S101 - a vector environment has one
        return np.stack([self.one(each) for each in iterate(self._batched_space, observations)])
