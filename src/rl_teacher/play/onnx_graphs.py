"""Policies and reward predictors as ONNX graphs, with normalisation and clipping inside.

B: batch, D: features, C: channels, H, W: rows and columns, M: members, A: outputs of a policy.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from rl_teacher.agents.actions import LOG_STD_RANGE
from rl_teacher.agents.numpy_policy import NumpyPolicy
from rl_teacher.nn.conv import BATCH_NORM_EPSILON
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.nn.numpy_networks import NumpyImageEncoder, NumpyMLP
from rl_teacher.nn.random_features import MIN_TOTAL, NUM_BANDS, random_features_for
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.networks import ImageRewardNetwork, unstack_members

OPSET, IR_VERSION = 17, 8
"""Versions of 2022, which every runtime of today reads."""
OPERATORS = {"tanh": "Tanh", "relu": "Relu", "leaky_relu": "LeakyRelu"}
"""The slope of LeakyRelu is 0.01 by default, as here."""


class Graph:
    """A graph under construction. Operands are names of values, or arrays, which are stored."""

    def __init__(self) -> None:
        self._inputs, self._nodes, self._arrays = [], [], []

    def input(self, name: str, dtype: str, shape: tuple[int, ...]) -> str:
        """Declare an input of [B, *shape]."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, ["batch", *shape]))
        return name

    def add(self, operator: str, *operands: Any, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        names = [each if isinstance(each, str) else self._store(each) for each in operands]
        output = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, names, [output], **attributes))
        return output

    def _store(self, array: np.ndarray) -> str:
        array = array.astype(np.float32) if array.dtype.kind == "f" else array
        self._arrays.append(numpy_helper.from_array(array, f"array_{len(self._arrays)}"))
        return self._arrays[-1].name

    def save(self, path: Path, result: str, name: str) -> None:
        """Write the graph, whose result gets a name."""
        self._nodes.append(helper.make_node("Identity", [result], [name]))
        output = helper.make_empty_tensor_value_info(name)
        graph = helper.make_graph(self._nodes, "rl-teacher", self._inputs, [output], self._arrays)
        opsets = [helper.make_opsetid("", OPSET)]
        save(helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION), path)


def save_policy(policy: NumpyPolicy, arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Write a policy as a function of observations [B, ...] and noise [B, A] to actions [B, ...].

    Zeros give the most likely actions; standard normal noise (for discrete actions Gumbel noise)
    gives samples.

    Args:
        policy: the policy.
        arrays: its parameters by name.
        path: file to write.
    """
    graph, encoder, head = Graph(), policy.encoder, policy.head
    if isinstance(encoder, NumpyImageEncoder):
        x = graph.input("observation", "uint8", encoder.shape)
        x = graph.add("Div", graph.add("Cast", x, to=TensorProto.FLOAT), np.float32(255))
        layers = zip(encoder.filters, encoder.biases, encoder.strides, strict=True)
        for filters, bias, stride in layers:
            # [O] or [rows, columns, O]
            places = (bias if bias.ndim > 1 else bias[None, None]).transpose(2, 0, 1)
            x = graph.add("Relu", graph.add("Add", convolve(graph, x, filters, stride), places))
        x = graph.add("Relu", linear(graph, channels_last(graph, x), encoder.weights, encoder.bias))
    else:
        layout = encoder.layout
        x = graph.input("observation", "float32" if layout is None else "uint8", encoder.shape)
        if layout is not None:
            x = bands(graph, graph.add("Cast", x, to=TensorProto.FLOAT), layout)
        x = graph.add("Mul", graph.add("Sub", x, encoder.mean), encoder.inverse_std)
        x = graph.add("Clip", x, -arrays["clip"], arrays["clip"])
    x = mlp(graph, x, policy.network)
    size = policy.network.biases[-1].size
    if head.kind == "categorical":
        x = graph.add("Add", x, graph.input("noise", "float32", (size,)))
        x = graph.add("ArgMax", x, axis=-1, keepdims=0)
        graph.save(path, graph.add("Add", x, np.int64(head.scale.first)), "action")
        return
    std = np.exp(arrays["log_std"])
    if head.kind == "squashed_gaussian":
        size //= 2
        log_std = graph.add("Gather", x, np.arange(size, 2 * size), axis=-1)
        std = graph.add("Exp", graph.add("Clip", log_std, *map(np.float32, LOG_STD_RANGE)))
        x = graph.add("Gather", x, np.arange(size), axis=-1)
    noise = graph.add("Mul", graph.input("noise", "float32", (size,)), std)
    x = graph.add("Reshape", graph.add("Add", x, noise), np.array([-1, *head.shape]))
    if head.kind == "squashed_gaussian":
        x = graph.add("Tanh", x)
    x = graph.add("Clip", x, -arrays["limit"], arrays["limit"])
    x = graph.add("Add", graph.add("Mul", x, arrays["half_range"]), arrays["middle"])
    x = graph.add("Min", graph.add("Max", x, arrays["low"]), arrays["high"])
    graph.save(path, x, "action")


def save_predictor(predictor: RewardPredictor, path: Path) -> dict[str, str]:
    """Write a predictor as a function of observations and actions [B, ...] to rewards [B].

    Images have their channels first, as preprocessing leaves them.

    Returns:
        The types of the observations and of the actions.
    """
    graph, space, networks = Graph(), predictor.space, predictor.networks
    is_bytes = space.image is not None or space.observation_scale != 1
    observation = "uint8" if is_bytes else "float32"
    types = {"observation": observation, "action": "int64" if space.is_discrete else "float32"}
    x = graph.input("observation", observation, space.observation_shape)
    action = graph.add("Flatten", graph.input("action", types["action"], space.action_shape))
    if space.is_discrete:
        # Agents have one choice, which becomes a one-hot vector.
        choices = space.first_choices[0] + np.arange(space.action_choices[0])
        is_chosen = graph.add("Equal", action, choices)
        action = graph.add("Cast", is_chosen, to=TensorProto.FLOAT)
    x = graph.add("Cast", x, to=TensorProto.FLOAT)
    if isinstance(networks, ImageRewardNetwork):
        x = graph.add("Div", x, np.float32(255))
        members = [member_reward(graph, x, action, each) for each in unstack_members(networks)]
        rewards = graph.add("Transpose", graph.add("Concat", *members, axis=1), perm=[1, 0])
    else:
        if space.image is not None:
            x = random_features(graph, x, space.image)
        else:
            x = graph.add("Mul", graph.add("Flatten", x), np.float32(space.observation_scale))
        mean, std, mask = predictor.normaliser
        x = graph.add("Sub", graph.add("Concat", x, action, axis=1), mean)
        x = mlp(graph, graph.add("Mul", x, mask / std), NumpyMLP.from_jax(networks))
        rewards = graph.add("Squeeze", x, np.array([-1]))
    mean, spread = predictor.recent.shift_and_scale(keeps_zero=predictor.keeps_zero)
    rewards = graph.add("Sub", rewards, mean[:, None])
    rewards = graph.add("Mul", rewards, (predictor.config.reward_std / spread)[:, None])
    graph.save(path, graph.add("ReduceMean", rewards, axes=[0], keepdims=0), "reward")
    return types


def member_reward(graph: Graph, x: str, action: str, network: ImageRewardNetwork) -> str:
    """Compute [B, 1] the raw reward of one member with a CNN."""
    layers = network.convolutions
    for number, stride in enumerate(layers.strides):
        filters, bias = np.asarray(layers.filters[number]), np.asarray(layers.biases[number])
        if layers.norms:
            # ((f * x + b) - mean) / std * scale + shift is a convolution, too.
            norm = layers.norms[number]
            factor = np.asarray(norm.scale) / np.sqrt(norm.variance + BATCH_NORM_EPSILON)
            filters, bias = filters * factor, (bias - norm.mean) * factor + norm.shift
        x = graph.add(OPERATORS[layers.activation], convolve(graph, x, filters, stride, bias))
    x = channels_last(graph, x)
    if network.uses_actions:
        x = graph.add("Concat", x, action, axis=1)
    return mlp(graph, x, NumpyMLP.from_jax(network.head))


def random_features(graph: Graph, x: str, layout: ImageLayout) -> str:
    """Compute [B, P] the features of images; see `RandomFeatures`."""
    response, sizes = response_maps(graph, x, layout)
    mean = graph.add("ReduceMean", response, axes=[2, 3], keepdims=0)
    total = graph.add("Mul", mean, np.float32(math.prod(sizes)))
    centres, profiles = [], []
    for axis, size in zip((3, 2), sizes, strict=True):
        line = graph.add("ReduceSum", response, np.array([axis]), keepdims=0)
        place = graph.add("MatMul", line, np.linspace(-1, 1, size, dtype=np.float32))
        centres.append(graph.add("Div", place, graph.add("Add", total, np.float32(MIN_TOTAL))))
        profiles.append(profile(graph, line))
    return graph.add("Concat", *centres, mean, *profiles, axis=1)


def bands(graph: Graph, x: str, layout: ImageLayout) -> str:
    """Compute [B, D] the profiles of the bands of images; see `random_features.bands`."""
    response, sizes = response_maps(graph, x, layout)
    profiles = []
    for axis, size in zip((3, 2), reversed(sizes), strict=True):
        for band in np.array_split(np.arange(size), NUM_BANDS):
            part = graph.add("Gather", response, band, axis=axis)
            profiles.append(
                profile(graph, graph.add("ReduceSum", part, np.array([axis]), keepdims=0))
            )
    return graph.add("Concat", *profiles, axis=1)


def response_maps(graph: Graph, x: str, layout: ImageLayout) -> tuple[str, list[int]]:
    """Compute [B, F, H, W] the responses of the fixed random filters; also return H and W."""
    features = random_features_for(layout)
    maps = graph.add("Relu", convolve(graph, x, features.filters, features.stride))
    background = graph.add("ReduceMean", maps, axes=[2, 3])
    sizes = [(n - len(features.filters)) // features.stride + 1 for n in layout.size]
    return graph.add("Relu", graph.add("Sub", maps, background)), sizes


def profile(graph: Graph, line: str) -> str:
    """Compute [B, H * F] the logarithms of sums [B, F, H], line by line."""
    logarithm = graph.add("Log", graph.add("Add", line, np.float32(1)))
    return graph.add("Flatten", graph.add("Transpose", logarithm, perm=[0, 2, 1]))


# --- layers ---


def linear(graph: Graph, x: str, weights: Any, bias: Any) -> str:
    """Compute x W + b, for a stack of layers with the member as first axis."""
    return graph.add("Add", graph.add("MatMul", x, weights), bias[..., None, :])


def mlp(graph: Graph, x: str, network: NumpyMLP) -> str:
    """Compute the output of a network, or of a stack of them."""
    x = linear(graph, x, network.weights[0], network.biases[0])
    for weights, bias in zip(network.weights[1:], network.biases[1:], strict=True):
        x = linear(graph, graph.add(OPERATORS[network.activation], x), weights, bias)
    return x


def convolve(graph: Graph, x: str, filters: Any, stride: int, bias: Any = 0.0) -> str:
    """Compute a convolution without padding of [B, C, H, W]."""
    bias = np.broadcast_to(np.float32(bias), filters.shape[-1:])
    return graph.add("Conv", x, np.transpose(filters, (3, 2, 0, 1)), bias, strides=[stride] * 2)


def channels_last(graph: Graph, x: str) -> str:
    """Flatten [B, C, H, W] in the order [H, W, C] of the networks here."""
    return graph.add("Flatten", graph.add("Transpose", x, perm=[0, 2, 3, 1]))
