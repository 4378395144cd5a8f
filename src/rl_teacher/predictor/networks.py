"""The networks of the reward predictor: a perceptron for vectors, convolutions for pictures.

B: input rows, F: their length; see `InputSpace.rows`.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.nn.conv import Convolutions
from rl_teacher.nn.encoders import PREDICTORS, plan_for, seen_by
from rl_teacher.nn.mlp import ACTIVATIONS, MLP
from rl_teacher.predictor.inputs import InputSpace


class PictureNetwork(eqx.Module):
    """Convolutions on the picture, then a perceptron on what they see.

    Source: Christiano et al. 2017, A.2; there the action is no input, which is a setting here.
    """

    convolutions: Convolutions
    head: MLP
    space: InputSpace = eqx.field(static=True)
    sees_actions: bool = eqx.field(static=True)

    def __init__(
        self, space: InputSpace, config: PredictorConfig, rng: np.random.Generator
    ) -> None:
        assert space.picture is not None  # noqa: S101 - this is the network for pictures
        assert config.image_encoder in PREDICTORS  # noqa: S101 - others are perceptrons
        plan = plan_for(space.picture, PREDICTORS[config.image_encoder])
        self.space = space
        self.convolutions = Convolutions(
            space.picture, plan, "leaky_relu", rng, normalises=config.batch_norm
        )
        self.sees_actions = not config.ignores_actions
        inputs = seen_by(plan, space.picture) + self.sees_actions * space.num_action_inputs
        self.head = MLP((inputs, plan.dense, 1), "leaky_relu", 1.0, rng)

    def __call__(self, rows: Shaped[Array, "*batch byte"]) -> Float[Array, "*batch 1"]:
        """The reward of each row."""
        pictures, told = self.space.split(rows.reshape(-1, rows.shape[-1]))
        rewards = self._rewards(self.convolutions(pictures), told)
        return rewards.reshape(*rows.shape[:-1], 1)

    def train(
        self, rows: Shaped[Array, "*batch byte"], dropout: float, key: Array
    ) -> tuple[Float[Array, "*batch 1"], "PictureNetwork"]:
        """The reward of each row while fitting, and itself with its statistics moved on.

        Note: what is left out is left out of what the convolutions say.
        """
        pictures, told = self.space.split(rows.reshape(-1, rows.shape[-1]))
        keys = jax.random.split(key, len(self.convolutions.filters))
        features, moved = self.convolutions.train(
            pictures, lambda x, layer: dropped(x, dropout, keys[layer])
        )
        rewards = self._rewards(features, told)
        own = eqx.tree_at(lambda network: network.convolutions, self, moved)
        return rewards.reshape(*rows.shape[:-1], 1), own

    def _rewards(
        self, features: Float[Array, "batch feature"], told: Float[Array, "batch action"]
    ) -> Float[Array, " batch"]:
        """Of what is seen and, if that is told, what was done."""
        seen = jnp.concatenate([features, told], axis=-1) if self.sees_actions else features
        return self.head(seen)[:, 0]


RewardNetwork = MLP | PictureNetwork


def new_networks(space: InputSpace, config: PredictorConfig, seed: int) -> RewardNetwork:
    """The M networks, stacked: every array has a first axis of members."""
    rng = np.random.default_rng([seed, 7])
    return stacked([new_network(space, config, rng) for _ in range(config.ensemble_size)])


def new_network(
    space: InputSpace, config: PredictorConfig, rng: np.random.Generator
) -> RewardNetwork:
    """One of them."""
    if space.is_bytes:
        return PictureNetwork(space, config, rng)
    return MLP((space.num_features, *config.hidden, 1), "leaky_relu", 1.0, rng)


Network = TypeVar("Network", MLP, PictureNetwork, RewardNetwork)


def stacked(members: Sequence[Network]) -> Network:
    """M networks as one whose every array has a first axis of members."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *members)


def unstacked(networks: Network) -> list[Network]:
    """The M networks, each for itself."""
    num_members = len(jax.tree.leaves(networks)[0])
    return [jax.tree.map(lambda leaf, m=m: leaf[m], networks) for m in range(num_members)]


def rewards_while_fitting(
    network: Network, rows: Shaped[Array, "*batch features"], dropout: float, key: Array
) -> tuple[Float[Array, "*batch"], Network]:
    """What one member says while it is fitted, and itself with its running statistics moved on."""
    if isinstance(network, PictureNetwork):
        rewards, network = network.train(rows, dropout, key)
        return rewards[..., 0], network
    if dropout == 0.0:
        return network(rows)[..., 0], network
    activate, _ = ACTIVATIONS[network.activation]
    keys = jax.random.split(key, len(network.weights))
    layers = list(zip(network.weights, network.biases, keys, strict=True))
    for weight, bias, layer_key in layers[:-1]:
        rows = dropped(activate(rows @ weight + bias), dropout, layer_key)
    weight, bias, _ = layers[-1]
    return (rows @ weight + bias)[..., 0], network


def with_statistics(network: Network, of: Network) -> Network:
    """A network with the running statistics of another one."""
    if not isinstance(network, PictureNetwork) or not isinstance(of, PictureNetwork):
        return network

    def statistics(each: Any) -> list[Any]:
        return [part for norm in each.convolutions.norms for part in (norm.mean, norm.variance)]

    if not statistics(of):
        return network
    return eqx.tree_at(statistics, network, statistics(of))  # pyright: ignore[reportReturnType]


def dropped(x: Array, dropout: float, key: Array) -> Array:
    """Some of it left out by chance, the rest scaled up for that (Srivastava et al. 2014)."""
    if dropout == 0.0:
        return x
    kept = jax.random.bernoulli(key, 1 - dropout, x.shape)
    return jnp.where(kept, x / (1 - dropout), 0.0)
