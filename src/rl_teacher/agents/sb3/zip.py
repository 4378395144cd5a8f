"""Warm starts from a model file of Stable-Baselines3, without executing anything in it.

Such a file also contains pickles, which are ignored: torch reads only tensors from `policy.pth` and
`pytorch_variables.pth`, and only the plain JSON of `data` is used.
"""

import contextlib
import io
import json
import math
import zipfile
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from rl_teacher.agents.actions import ActionScale
from rl_teacher.common.errors import INVALID_CONTENT, BadConfig, BadInput, MissingExtra
from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.common.state_dict import StateDict, nest

Spaces = tuple[gym.Space, gym.Space]
"""Observation space and action space of an environment."""

NATIVE = ("ppo", "a2c", "trpo")
"""Built-in agents whose networks have the structure of those in such files."""
MAX_BYTES = 1 << 30
"""Size of the largest part that is read."""


class SavedPolicy(NamedTuple):
    """The contents of a model file.

    Attributes:
        weights: parameters of all networks, under the names of the library.
        variables: other learned variables, such as a temperature.
        activation: activation of the networks, in words.
    """

    weights: StateDict
    variables: StateDict
    activation: str


def agent_state(path: Path, kind: str, spaces: Spaces) -> StateDict:
    """Convert a model file to the state that `Agent.warm_start_from` needs.

    Its policy was trained on raw observations, so the normaliser is the identity, frozen. Whether
    its networks fit those of the agent is checked there.

    Args:
        path: path of the file.
        kind: the agent to be warm-started: `ppo`, `a2c`, `trpo`, or `sb3:...`.
        spaces: its observation and action spaces.

    Raises:
        BadInput: the file is not a model file, or cannot be read safely.
        BadConfig: the agent cannot be warm-started from it.
    """
    if kind not in NATIVE and not kind.startswith("sb3:"):
        raise BadConfig(
            f"{path} is a model file of Stable-Baselines3, but --agent is {kind}. Only "
            f"{', '.join(NATIVE)} and sb3:... can start from such a file. Choose one of them, or "
            "give --agent-path an experiment."
        )
    saved = read_zip(path)
    observed = spaces[0].shape or ()
    returns = RunningMeanStd(()).state()
    if kind in NATIVE:
        if "Tanh" not in saved.activation or "action_net.weight" not in saved.weights:
            raise BadConfig(
                f"--agent {kind} needs an MlpPolicy of PPO, A2C or TRPO with tanh, and {path} has "
                "another policy or activation. Give --agent sb3:... with the algorithm that saved "
                "it and its policy_kwargs."
            )
        networks = native_networks(saved.weights, spaces[1])
        observations = RunningMeanStd((math.prod(observed),), frozen=True).state()
        return nest({"networks": networks, "observations": observations, "returns": returns})
    parts = {
        "weights/policy": saved.weights,
        "weights/variables": saved.variables,
        "observations": RunningMeanStd(observed, frozen=True).state(),
        "returns": returns,
    }
    return nest(parts)


def native_networks(weights: StateDict, action_space: gym.Space) -> StateDict:
    """Return policy and value function under the names of `OnPolicyAgent`'s state.

    In the file, actions u are those of the environment; here they are a = (u - middle) / half_range
    in [-1, 1].
    """
    layers = {net: layers_of(weights, net) for net in ("policy", "value")}
    networks: StateDict = {}
    network = "mean" if "log_std" in weights else "logits"
    if "log_std" in weights:
        (weight, bias), log_std = layers["policy"][-1], weights["log_std"]
        scale = ActionScale.of(action_space)
        if scale.middle is not None and scale.half_range is not None:
            middle, half = scale.middle.reshape(-1), scale.half_range.reshape(-1)
            # Other shapes belong to other actions, and are refused by the agent.
            if weight.shape[:1] == bias.shape == log_std.shape == half.shape:
                # Both the mean and its standard deviation are divided by the half range.
                weight, bias = (weight.T / half).T, (bias - middle) / half
                log_std = log_std - np.log(half)
        layers["policy"][-1], networks["[0].log_std"] = (
            (weight, bias),
            np.asarray(log_std, np.float32),
        )
    for prefix, net in ((f"[0].{network}", "policy"), ("[1]", "value")):
        for i, (weight, bias) in enumerate(layers[net]):
            networks[f"{prefix}.weights[{i}]"] = np.ascontiguousarray(weight.T, np.float32)
            networks[f"{prefix}.biases[{i}]"] = np.asarray(bias, np.float32)
    return networks


def layers_of(weights: StateDict, net: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return [out, in] weights and biases of the layers of `policy` or `value`, in order."""
    head = "action_net" if net == "policy" else "value_net"
    hidden = [name for name in weights if name.startswith(f"mlp_extractor.{net}_net.")]
    numbers = {int(name.split(".")[2]) for name in hidden if name.split(".")[2].isdecimal()}
    names = [*(f"mlp_extractor.{net}_net.{number}" for number in sorted(numbers)), head]
    # An agent refuses the empty arrays of a layer that is incomplete.
    none = np.empty(0, np.float32)
    return [
        (weights.get(f"{name}.weight", none), weights.get(f"{name}.bias", none)) for name in names
    ]


# --- reading ---


def read_zip(path: Path) -> SavedPolicy:
    """Read a file written by `model.save` of Stable-Baselines3.

    Raises:
        BadInput: it is another file, or contains more than tensors.
    """
    parts = _read_parts(path)
    if "policy.pth" not in parts:
        raise BadInput(
            f"{path} has no policy.pth, so it is not a model file of Stable-Baselines3. (SBX saves "
            "its networks as pickles, which are not read.) Give a file written by model.save of "
            "Stable-Baselines3 or sb3-contrib."
        )
    activation = "Tanh"
    # The name of the activation's class is in the plain part of the file, next to its pickle.
    with contextlib.suppress(*INVALID_CONTENT):
        settings = json.loads(parts["data"])
        activation = str(settings["policy_kwargs"]["activation_fn"])
    tensors = {
        name: _tensors(path, name, content) for name, content in parts.items() if name != "data"
    }
    return SavedPolicy(tensors["policy.pth"], tensors.get("pytorch_variables.pth", {}), activation)


def _read_parts(path: Path) -> dict[str, bytes]:
    """Return the parts of a file that are used, by name.

    Raises:
        BadInput: it is no archive, or a part is too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {each.filename: each.file_size for each in archive.infolist()}
            if max(sizes.values(), default=0) > MAX_BYTES:
                raise ValueError(f"a part has more than {MAX_BYTES >> 30} GiB")
            return {
                name: archive.read(name)
                for name in ("policy.pth", "pytorch_variables.pth", "data")
                if name in sizes
            }
    # The file is untrusted, and any error that it causes in a library means that it is invalid.
    except Exception as error:
        raise BadInput(
            f"{path} is not a .zip file of Stable-Baselines3: {error!s:.200}. Nothing in it was "
            "executed. Give a file written by model.save, or an experiment."
        ) from error


def _tensors(path: Path, name: str, content: bytes) -> StateDict:
    try:
        import torch  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingExtra(f"Reading {path} needs torch", "sb3", error) from error
    try:
        loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        arrays = {
            str(key): tensor.detach().numpy().copy() for key, tensor in (loaded or {}).items()
        }
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("it has numbers that are not finite")
        return arrays
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(
            f"{name} in {path} does not contain only tensors, as in a file of Stable-Baselines3 "
            f"({reason}). Nothing in it was executed. Use only files from sources that you trust."
        ) from error
