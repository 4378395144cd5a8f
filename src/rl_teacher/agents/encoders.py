"""What an agent sees with, before its policy and its value function: nothing, or convolutions.

B: batch, P: bytes of a picture, F: features.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from rl_teacher.convolutions import Convolutions
from rl_teacher.networks import orthogonal
from rl_teacher.picture_shape import PictureShape
from rl_teacher.pictures import POLICIES, NetworkSize, plan_for, seen_by

ENCODED_AT_ONCE = 256
"""Pictures at once where nothing is learned: what the first convolution says of them is large."""


class Identity(eqx.Module):
    """Vectors are seen as they are."""

    def __call__(self, observations: Float[Array, "*batch features"]) -> Array:
        """The same."""
        return observations


class PictureEncoder(eqx.Module):
    """Convolutions and one dense layer, shared by the policy and the value function."""

    convolutions: Convolutions
    weights: Float[Array, "seen features"]
    bias: Float[Array, " features"]

    def __init__(self, picture: PictureShape, size: NetworkSize, rng: np.random.Generator) -> None:
        """Orthogonal weights with a gain of sqrt(2); biases 0."""
        plan = plan_for(picture, POLICIES[size])
        self.convolutions = Convolutions(picture, plan, "relu", rng)
        dense = 2**0.5 * orthogonal((seen_by(plan, picture), plan.dense), rng)
        self.weights = jnp.asarray(dense)
        self.bias = jnp.asarray(np.zeros(plan.dense, np.float32))

    def __call__(self, pictures: Shaped[Array, "*batch byte"]) -> Float[Array, "*batch features"]:
        """The features of each picture."""
        seen = self.convolutions(pictures.reshape(-1, pictures.shape[-1]))
        features = jax.nn.relu(seen @ self.weights + self.bias)
        return features.reshape(*pictures.shape[:-1], -1)


Encoder = Identity | PictureEncoder


def encoded(
    encoder: Encoder, observations: Shaped[Array, "time env inputs"]
) -> Float[Array, "time env features"]:
    """The features of a whole rollout, piece by piece where they are pictures."""
    if isinstance(encoder, Identity):
        return observations
    rows = observations.reshape(-1, observations.shape[-1])
    features = jax.lax.map(encoder, rows, batch_size=ENCODED_AT_ONCE)
    return features.reshape(*observations.shape[:-1], -1)
