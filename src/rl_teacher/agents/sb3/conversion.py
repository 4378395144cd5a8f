"""Conversion of built-in policies to models of Stable-Baselines3."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import TRPO
from stable_baselines3 import A2C, PPO, SAC
from torch import nn

from rl_teacher.agents.numpy_policy import NumpyPolicy
from rl_teacher.agents.sb3.adapter import SpacesOnly
from rl_teacher.common.errors import BadInput
from rl_teacher.nn.numpy_networks import NumpyImageEncoder

ALGORITHMS: dict[str, Any] = {"ppo": PPO, "a2c": A2C, "ga3c": A2C, "trpo": TRPO, "sac": SAC}
NATURE_CNN = [(8, 32, 4), (4, 64, 2), (3, 64, 1)]
"""Width, number and stride of the filters of NatureCNN (Mnih et al. 2015)."""


def to_sb3(
    policy: NumpyPolicy, arrays: Mapping[str, np.ndarray], kind: str, venv: gym.vector.VectorEnv
) -> Any:
    """Return a model that acts as a policy where no normalised observation is clipped.

    Normalisation and action scale become part of the first and of the last layer. The value
    functions are untrained.

    Args:
        policy: the policy.
        arrays: its parameters by name.
        kind: name of the agent.
        venv: environment with its spaces.

    Raises:
        BadInput: Stable-Baselines3 has no such networks or actions.
    """
    network, encoder, is_squashed = policy.network, policy.encoder, kind == "sac"
    observations, actions = venv.single_observation_space, venv.single_action_space
    weights, biases = (
        [each.astype(float) for each in a] for a in (network.weights, network.biases)
    )
    widths = [each.size for each in biases[:-1]]
    if policy.head.scale.first:
        raise BadInput("Stable-Baselines3 numbers actions from 0. Use --format onnx.")
    convolutions, log_std = [], arrays["log_std"].astype(float)
    if encoder.layout is not None:
        layers = []
        if isinstance(encoder, NumpyImageEncoder):
            pairs = zip(encoder.filters, encoder.strides, strict=True)
            layers = [(len(each), each.shape[-1], stride) for each, stride in pairs]
        if layers != NATURE_CNN:
            raise BadInput(
                "Stable-Baselines3 has only the image encoder of --ppo.image-encoder paper, for "
                "images of 44 pixels and more, and this agent has another one. Use --format onnx."
            )
        # A plain space, since the class of the other one belongs to this package.
        observations = gym.spaces.Box(0, 255, observations.shape, np.uint8)
        convolutions = list(zip(encoder.filters, encoder.biases, strict=True))
        # Features are flattened as [H * W, C] here and as [C, H * W] there.
        dense = encoder.weights.reshape(-1, len(encoder.biases[-1]), len(encoder.bias))
        weights.insert(0, dense.transpose(1, 0, 2).reshape(encoder.weights.shape))
        biases.insert(0, encoder.bias)
    else:
        # ((o - mean) / std) W + b = o (W / std) + (b - (mean / std) W)
        biases[0] -= (encoder.mean * encoder.inverse_std) @ weights[0]
        weights[0] *= encoder.inverse_std[:, None]
    if is_squashed:
        weights[-1:], biases[-1:] = np.split(weights[-1], 2, -1), np.split(biases[-1], 2)
    elif policy.head.kind == "gaussian":
        # middle + half range * (x W + b + std * noise)
        half_range, middle = arrays["half_range"].ravel(), arrays["middle"].ravel()
        weights[-1], biases[-1] = weights[-1] * half_range, biases[-1] * half_range + middle
        log_std += np.log(half_range)
    model = ALGORITHMS[kind](
        "CnnPolicy" if convolutions else "MlpPolicy",
        SpacesOnly(1, observations, actions),
        policy_kwargs={
            "net_arch": widths if is_squashed else {"pi": widths, "vf": widths},
            "activation_fn": {"tanh": nn.Tanh, "relu": nn.ReLU}[network.activation],
        },
        device="cpu",
    )
    own = model.policy
    parts = (
        [own.features_extractor, own.mlp_extractor.policy_net, own.action_net]
        if not is_squashed
        else [own.actor.latent_pi, own.actor.mu, own.actor.log_std]
    )
    layers = [m for part in parts for m in part.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    given = [(np.transpose(f, (3, 2, 0, 1)), b) for f, b in convolutions]
    given += [(matrix.T, bias) for matrix, bias in zip(weights, biases, strict=True)]
    with torch.no_grad():
        for layer, (matrix, bias) in zip(layers, given, strict=True):
            layer.weight.copy_(torch.tensor(matrix))
            layer.bias.copy_(torch.tensor(bias))  # pyright: ignore[reportOptionalMemberAccess]
        if policy.head.kind == "gaussian":
            own.log_std.copy_(torch.tensor(log_std))
    return model
