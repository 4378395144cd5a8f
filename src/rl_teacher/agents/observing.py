"""How what is observed comes to a policy that acts alone. It needs NumPy, no JAX.

B: observations at once, D: numbers of an observation, F: features that the policy is given.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Shaped

from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.nn.numpy_conv import convolved

Vector = Float32[np.ndarray, " _"]
Matrix = Float32[np.ndarray, "_ _"]
Filters = Float32[np.ndarray, "_ _ _ _"]


@dataclass(frozen=True, eq=False)
class Observed:
    """Vectors, brought to the scale that the policy knows.

    Attributes:
        shape: of one observation; it is flattened to D numbers.
        mean: [D].
        inverse_std: [D].
        limit: normalised numbers are clipped to this.
    """

    shape: tuple[int, ...]
    mean: Vector
    inverse_std: Vector
    limit: float = math.inf

    def features(self, observations: Shaped[np.ndarray, "batch ..."]) -> Float[np.ndarray, "B F"]:
        """[B, D] what the policy sees."""
        flat = observations.reshape(len(observations), self.mean.size).astype(
            np.float32, copy=False
        )
        return np.clip((flat - self.mean) * self.inverse_std, -self.limit, self.limit)

    @property
    def num_features(self) -> int:
        """D."""
        return math.prod(self.shape)

    def described(self) -> dict[str, Any]:
        """What of it is no array, for JSON."""
        return {"shape": self.shape, "limit": self.limit if math.isfinite(self.limit) else None}

    def arrays(self) -> dict[str, np.ndarray]:
        """Its arrays."""
        return {"mean": self.mean, "inverse_std": self.inverse_std}

    def check(self) -> None:
        """Refuse parts that do not fit together.

        Raises:
            ValueError: and says which.
        """
        if not self.mean.shape == self.inverse_std.shape == (self.num_features,):
            raise ValueError("the observations' moments do not have their size")


@dataclass(frozen=True, eq=False)
class ObservedPictures:
    """Pictures, seen by convolutions without padding and one dense layer, ReLU after each.

    Attributes:
        picture: how their bytes lie.
        filters: of each convolution, [width, width, inputs, outputs].
        biases: of each convolution, [outputs].
        strides: of each convolution.
        weights: [S, F] of the dense layer.
        bias: [F].
    """

    picture: ImageLayout
    filters: tuple[Filters, ...]
    biases: tuple[Vector, ...]
    strides: tuple[int, ...]
    weights: Matrix
    bias: Vector

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one observation."""
        return self.picture.shape

    def features(self, observations: Shaped[np.ndarray, "batch ..."]) -> Float[np.ndarray, "B F"]:
        """[B, F] what the policy is given."""
        flat = observations.reshape(len(observations), self.picture.num_bytes)
        x = self.picture.channels_last(flat.astype(np.float32)) / np.float32(255)
        for filters, bias, stride in zip(self.filters, self.biases, self.strides, strict=True):
            x = _relu(convolved(x, filters, stride) + bias)
        return _relu(x.reshape(len(x), len(self.weights)) @ self.weights + self.bias)

    @property
    def num_features(self) -> int:
        """F."""
        return len(self.bias)

    def described(self) -> dict[str, Any]:
        """What of it is no array, for JSON."""
        axis = self.picture.channel_axis
        return {"shape": self.shape, "channel_axis": axis, "strides": self.strides}

    def arrays(self) -> dict[str, np.ndarray]:
        """Its arrays."""
        arrays = {"weights": self.weights, "bias": self.bias}
        for number, (filters, bias) in enumerate(zip(self.filters, self.biases, strict=True)):
            arrays |= {f"filters/{number}": filters, f"biases/{number}": bias}
        return arrays

    def check(self) -> None:
        """Refuse parts that do not fit together.

        Raises:
            ValueError: and says which.
        """
        axis = self.picture.channel_axis
        if len(self.shape) not in (2, 3) or (axis is None) != (len(self.shape) == 2):
            raise ValueError("the pictures do not have the axes of pictures")
        (height, width), channels = self.picture.size, self.picture.num_channels
        for filters, bias, stride in zip(self.filters, self.biases, self.strides, strict=True):
            window = len(filters)
            if filters.shape != (window, window, channels, *bias.shape) or stride < 1:
                raise ValueError("the convolutions do not fit one another")
            height, width = ((size - window) // stride + 1 for size in (height, width))
            channels = len(bias)
        if self.weights.shape != (height * width * channels, *self.bias.shape):
            raise ValueError("the dense layer does not fit the convolutions")


def read_observed(
    said: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Observed | ObservedPictures:
    """As it was written.

    Args:
        said: what `described` gave.
        arrays: what `arrays` gave.

    Raises:
        LookupError, TypeError, ValueError: it was not.
    """
    shape = tuple(said["shape"])
    if "strides" not in said:
        limit = math.inf if said["limit"] is None else float(said["limit"])
        return Observed(shape, arrays["mean"], arrays["inverse_std"], limit)
    strides = tuple(map(int, said["strides"]))
    filters, biases = (
        tuple(arrays[f"{name}/{number}"] for number in range(len(strides)))
        for name in ("filters", "biases")
    )
    picture = ImageLayout(shape, said["channel_axis"])
    return ObservedPictures(picture, filters, biases, strides, arrays["weights"], arrays["bias"])


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)
