"""Networks of the reward predictor: an MLP for feature rows, a CNN for image rows.

B: input rows, F: features of a row (see `InputSpace.rows`), M: ensemble members.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.nn.conv import Convolutions
from rl_teacher.nn.encoders import PREDICTOR_CNNS, num_conv_features, plan_for
from rl_teacher.nn.mlp import ACTIVATIONS, MLP
from rl_teacher.predictor.inputs import InputSpace

OUTPUT_SCALE = 0.1
"""Gain of the initial output layer of an MLP: labels correct the random initial function only in
part, so it should be small."""


class ImageRewardNetwork(eqx.Module):
    """Convolutions on the image, then an MLP on their output, the action, and the vector.

    Source: Christiano et al. 2017, A.2. The action is no input there; here it is a setting.
    """

    convolutions: Convolutions
    head: MLP
    space: InputSpace = eqx.field(static=True)
    uses_actions: bool = eqx.field(static=True)

    def __init__(
        self, space: InputSpace, config: PredictorConfig, rng: np.random.Generator
    ) -> None:
        assert space.image is not None  # noqa: S101 - only image spaces have byte rows
        assert config.image_encoder in PREDICTOR_CNNS  # noqa: S101 - other encoders use an MLP
        plan = plan_for(space.image, PREDICTOR_CNNS[config.image_encoder])
        self.space = space
        self.convolutions = Convolutions(
            space.image, plan, "leaky_relu", rng, batch_norm=config.batch_norm
        )
        self.uses_actions = not config.ignore_actions
        self.head = MLP(layer_widths(space, config), "leaky_relu", 1.0, rng)

    def __call__(self, rows: Shaped[Array, "*batch byte"]) -> Float[Array, "*batch 1"]:
        """Compute the reward of each row."""
        images, *others = self.space.split(rows.reshape(-1, rows.shape[-1]))
        rewards = self._head_rewards(self.convolutions(images), *others)
        return rewards.reshape(*rows.shape[:-1], 1)

    def train(
        self,
        rows: Shaped[Array, "*batch byte"],
        is_real: Bool[Array, "*batch"],
        dropout: float,
        key: Array,
    ) -> tuple[Float[Array, "*batch 1"], "ImageRewardNetwork"]:
        """Compute the reward of each row in training mode.

        Dropout is applied to the output of each convolution, as in the paper.

        Returns:
            The rewards, and the network with updated batch-norm statistics.
        """
        images, *others = self.space.split(rows.reshape(-1, rows.shape[-1]))
        keys = jax.random.split(key, len(self.convolutions.filters))
        features, updated = self.convolutions.train(
            images, is_real.ravel(), lambda x, layer: apply_dropout(x, dropout, keys[layer])
        )
        rewards = self._head_rewards(features, *others)
        network = eqx.tree_at(lambda each: each.convolutions, self, updated)
        return rewards.reshape(*rows.shape[:-1], 1), network

    def _head_rewards(
        self,
        features: Float[Array, "batch feature"],
        actions: Float[Array, "batch action"],
        vectors: Float[Array, "batch vector"],
    ) -> Float[Array, " batch"]:
        inputs = [features, actions, vectors] if self.uses_actions else [features, vectors]
        return self.head(jnp.concatenate(inputs, axis=-1))[:, 0]


RewardNetwork = MLP | ImageRewardNetwork


def learning_rate(config: PredictorConfig, network: RewardNetwork) -> float:
    """Return the learning rate of a network: the given one, or the default of its kind."""
    if config.learning_rate is not None:
        return config.learning_rate
    return 1e-3 if isinstance(network, ImageRewardNetwork) else 5e-3


def layer_widths(space: InputSpace, config: PredictorConfig) -> tuple[int, ...]:
    """Return the number of inputs, of units of each dense layer, and of outputs of a network."""
    if space.image is None or config.image_encoder not in PREDICTOR_CNNS:
        return (space.num_features, *config.hidden, 1)
    plan = plan_for(space.image, PREDICTOR_CNNS[config.image_encoder])
    uses_actions = not config.ignore_actions
    inputs = num_conv_features(plan, space.image) + uses_actions * space.num_action_inputs
    return (inputs + space.vector_size, plan.dense, 1)


def new_networks(space: InputSpace, config: PredictorConfig, seed: int) -> RewardNetwork:
    """Initialise M networks, stacked: the first axis of every array is the member."""
    # One generator for all members: they differ by initialisation and by what is held out.
    rng = np.random.default_rng([seed, 7])
    layer_sizes = layer_widths(space, config)
    members = [
        ImageRewardNetwork(space, config, rng)
        if space.has_byte_rows
        else MLP(layer_sizes, "leaky_relu", OUTPUT_SCALE, rng)
        for _ in range(config.ensemble_size)
    ]
    return stack_members(members)


Network = TypeVar("Network", MLP, ImageRewardNetwork, RewardNetwork)


def stack_members(members: Sequence[Network]) -> Network:
    """Stack M networks into one whose arrays have the member as their first axis."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *members)


def unstack_members(networks: Network) -> list[Network]:
    """Split stacked networks into a list of M networks."""
    num_members = len(jax.tree.leaves(networks)[0])
    # NumPy's slices need no compilation, which a person would wait for.
    return [
        jax.tree.map(lambda leaf, m=m: jnp.asarray(np.asarray(leaf)[m]), networks)
        for m in range(num_members)
    ]


def training_rewards(
    network: Network,
    rows: Shaped[Array, "*batch features"],
    is_real: Bool[Array, "*batch"],
    dropout: float,
    key: Array,
) -> tuple[Float[Array, "*batch"], Network]:
    """Compute rewards in training mode, with dropout and batch statistics of the real rows.

    Returns:
        The rewards, and the network with updated running statistics.
    """
    if isinstance(network, ImageRewardNetwork):
        rewards, network = network.train(rows, is_real, dropout, key)
        return rewards[..., 0], network
    if dropout == 0.0:
        return network(rows)[..., 0], network
    # h_k = dropout(f(W_k h_{k-1} + b_k)); the output layer has neither activation nor dropout.
    activate = ACTIVATIONS[network.activation]
    keys = jax.random.split(key, len(network.weights))
    layers = list(zip(network.weights, network.biases, keys, strict=True))
    for weight, bias, layer_key in layers[:-1]:
        rows = apply_dropout(activate(rows @ weight + bias), dropout, layer_key)
    weight, bias, _ = layers[-1]
    return (rows @ weight + bias)[..., 0], network


def replace_running_stats(network: Network, source: Network) -> Network:
    """Return a network with the batch-norm statistics of another one."""
    if not isinstance(network, ImageRewardNetwork) or not isinstance(source, ImageRewardNetwork):
        return network

    def statistics(each: Any) -> list[Any]:
        return [part for norm in each.convolutions.norms for part in (norm.mean, norm.variance)]

    return eqx.tree_at(statistics, network, statistics(source))  # pyright: ignore[reportReturnType]


def apply_dropout(x: Array, dropout: float, key: Array) -> Array:
    """Zero units at random and scale up the others (Srivastava et al. 2014)."""
    if dropout == 0.0:
        return x
    # E[x * kept / (1 - p)] = x: the scale makes training and evaluation agree in the mean.
    is_kept = jax.random.bernoulli(key, 1 - dropout, x.shape)
    return jnp.where(is_kept, x / (1 - dropout), 0.0)
