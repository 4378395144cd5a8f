"""What an agent sees with, before its policy and its value function: nothing, or convolutions.

B: batch, P: bytes of a picture, F: features.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped, UInt8

from rl_teacher.nn.conv import Convolutions
from rl_teacher.nn.encoders import POLICIES, NetworkSize, plan_for, seen_by
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.nn.mlp import orthogonal


class Identity(eqx.Module):
    """Vectors are seen as they are."""

    def __call__(self, observations: Float[Array, "*batch features"]) -> Array:
        """The same."""
        return observations


class ImageEncoder(eqx.Module):
    """Convolutions and one dense layer, shared by the policy and the value function."""

    convolutions: Convolutions
    weights: Float[Array, "seen features"]
    bias: Float[Array, " features"]

    def __init__(self, picture: ImageLayout, size: NetworkSize, rng: np.random.Generator) -> None:
        """Orthogonal weights with a gain of sqrt(2); biases 0."""
        plan = plan_for(picture, POLICIES[size])
        self.convolutions = Convolutions(picture, plan, "relu", rng)
        dense = 2**0.5 * orthogonal((seen_by(plan, picture), plan.dense), rng)
        self.weights = jnp.asarray(dense)
        self.bias = jnp.asarray(np.zeros(plan.dense, np.float32))

    def in_tiles(self, pictures: UInt8[np.ndarray, "batch byte"]) -> UInt8[np.ndarray, "batch _"]:
        """Pictures in the order in which they are looked at."""
        layers = self.convolutions
        return layers.picture.in_tiles(pictures, layers.strides[0], len(layers.filters[0]))

    def __call__(self, tiles: Shaped[Array, "*batch byte"]) -> Float[Array, "*batch features"]:
        """The features of each picture, given tile by tile."""
        rows = tiles.reshape(-1, tiles.shape[-1])
        seen = self.convolutions.of_tiles(rows)
        features = jax.nn.relu(seen @ self.weights + self.bias)
        return features.reshape(*tiles.shape[:-1], -1)


Encoder = Identity | ImageEncoder
