"""Warm starts from a model file of Stable-Baselines3, without executing anything in it.

Such a file also contains pickles, which are ignored: torch reads only tensors from `policy.pth` and
`pytorch_variables.pth`, and only the plain JSON of `data` is used.
"""

import contextlib
import io
import json
import math
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_teacher.agents.actions import ActionScale
from rl_teacher.common.errors import BadConfig, BadInput, MissingExtra
from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.common.state_dict import StateDict, nest

Spaces = tuple[gym.Space, gym.Space]
"""Observation space and action space of an environment."""

NATIVE = ("ppo", "a2c", "trpo")
"""Built-in agents whose networks have the structure of those in such files."""
MAX_BYTES = 1 << 30
"""Size of the largest part that is read."""

LAYER = re.compile(r"mlp_extractor\.(policy|value)_net\.(\d+)\.(weight|bias)")
HEADS = ("action_net.weight", "action_net.bias", "value_net.weight", "value_net.bias")


@dataclass(frozen=True)
class SavedPolicy:
    """The contents of a model file.

    Attributes:
        path: path of the file.
        weights: parameters of all networks, under the names of the library.
        variables: other learned variables, such as a temperature.
        settings: constructor arguments, as far as they are plain JSON.
    """

    path: Path
    weights: StateDict
    variables: StateDict
    settings: Mapping[str, Any]


def agent_state(path: Path, kind: str, hidden: tuple[int, ...], spaces: Spaces) -> StateDict:
    """Convert a model file to the state that `Agent.warm_start_from` needs.

    Its policy was trained on raw observations, so the normaliser is the identity, frozen.

    Args:
        path: path of the file.
        kind: the agent to be warm-started: `ppo`, `a2c`, `trpo`, or `sb3:...`.
        hidden: hidden layer sizes of that agent; not used for `sb3:...`.
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
        networks = _as_networks(saved, kind, hidden, spaces)
        observations = RunningMeanStd((math.prod(observed),), frozen=True).state()
        return nest({"networks": networks, "observations": observations, "returns": returns})
    parts = {
        "weights/policy": saved.weights,
        "weights/variables": saved.variables,
        "observations": RunningMeanStd(observed, frozen=True).state(),
        "returns": returns,
    }
    return nest(parts)


# --- reading ---


def read_zip(path: Path) -> SavedPolicy:
    """Read a file written by `model.save` of Stable-Baselines3.

    Raises:
        BadInput: it is another file, or contains more than tensors.
    """
    read = _read_parts(path)
    if "policy.pth" not in read:
        raise BadInput(
            f"{path} has no policy.pth, so it is not a model file of Stable-Baselines3. (SBX saves "
            "its networks as pickles, which are not read.) Give a file written by model.save of "
            "Stable-Baselines3 or sb3-contrib."
        )
    settings: Any = {}
    with contextlib.suppress(ValueError):
        settings = json.loads(read.pop("data", b"{}"))
    tensors = {name: _tensors(path, name, content) for name, content in read.items()}
    return SavedPolicy(
        path,
        tensors["policy.pth"],
        tensors.get("pytorch_variables.pth", {}),
        settings if isinstance(settings, dict) else {},
    )


def _read_parts(path: Path) -> dict[str, bytes]:
    """Return the parts of a file that are used, by name.

    Raises:
        BadInput: it is no archive, or a part is too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {each.filename: each.file_size for each in archive.infolist()}
            if max(sizes.values(), default=0) > MAX_BYTES:
                raise BadInput(
                    f"{path} contains a part of more than {MAX_BYTES >> 30} GiB, which is not "
                    "read. Use a smaller model."
                )
            return {
                name: archive.read(name)
                for name in ("policy.pth", "pytorch_variables.pth", "data")
                if name in sizes
            }
    except BadInput:
        raise
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


# --- conversion ---


def _as_networks(
    saved: SavedPolicy, kind: str, hidden: tuple[int, ...], spaces: Spaces
) -> StateDict:
    """Return policy and value function under the names of `OnPolicyAgent`'s state."""
    layers = _layers(saved)
    _check_networks(saved, layers, kind, hidden)
    _check_spaces(saved, layers, spaces)
    network, networks = "logits", {}
    if isinstance(spaces[1], gym.spaces.Box):
        network = "mean"
        layers["policy"][-1], networks["[0].log_std"] = _rescale_to_unit_actions(
            saved, layers, spaces[1]
        )
    for prefix, net in ((f"[0].{network}", "policy"), ("[1]", "value")):
        for i, (weight, bias) in enumerate(layers[net]):
            networks[f"{prefix}.weights[{i}]"] = np.ascontiguousarray(weight.T)
            networks[f"{prefix}.biases[{i}]"] = bias
    return networks


def _check_networks(
    saved: SavedPolicy, layers: Mapping[str, list], kind: str, hidden: tuple[int, ...]
) -> None:
    """Refuse networks with another activation or other layer sizes than the agent's.

    Raises:
        BadConfig: they have.
    """
    # The name of the activation's class is in the plain part of the file, next to its pickle.
    kwargs = saved.settings.get("policy_kwargs")
    activation = kwargs.get("activation_fn", "Tanh") if isinstance(kwargs, dict) else "Tanh"
    if "Tanh" not in str(activation):
        raise BadConfig(
            f"The networks in {saved.path} use the activation {activation}, but those of {kind} "
            "use tanh. Give --agent sb3:... and its policy_kwargs, or another file."
        )
    sizes = {net: [len(bias) for _, bias in layers[net][:-1]] for net in ("policy", "value")}
    if sizes["policy"] != sizes["value"]:
        raise BadConfig(
            f"The policy in {saved.path} has layers of {_in_words(sizes['policy'])}, but its value "
            f"function of {_in_words(sizes['value'])}; in {kind} both have the same sizes. Give "
            "--agent sb3:PPO and its policy_kwargs, or another file."
        )
    if tuple(sizes["policy"]) != tuple(hidden):
        given = " ".join(map(str, sizes["policy"]))
        raise BadConfig(
            f"The networks in {saved.path} have layers of {_in_words(sizes['policy'])}, but those "
            f"of this agent of {_in_words(hidden)}. Give --{kind}.hidden {given}"
        )


def _layers(saved: SavedPolicy) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """Return [out, in] weights and biases of each layer, including the last."""
    weights = saved.weights
    unknown = [
        name for name in weights if not (LAYER.fullmatch(name) or name in (*HEADS, "log_std"))
    ]
    if unknown or not set(HEADS) <= set(weights):
        found = unknown[0] if unknown else "no action_net"
        raise BadConfig(
            f"{saved.path} does not contain an MlpPolicy of PPO, A2C or TRPO (it has {found}). "
            "Give a file with one, or --agent sb3:... with the algorithm that saved this file."
        )
    layers: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for net, head in (("policy", "action_net"), ("value", "value_net")):
        prefix = f"mlp_extractor.{net}_net"
        layer_indices = sorted(
            int(match[2])
            for match in map(LAYER.fullmatch, weights)
            if match and match[1] == net and match[3] == "weight"
        )
        names = [*(f"{prefix}.{layer_index}" for layer_index in layer_indices), head]
        layers[net] = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]
    return layers


def _check_spaces(saved: SavedPolicy, layers: Mapping[str, list], spaces: Spaces) -> None:
    """Refuse a policy for other observations or actions.

    Raises:
        BadConfig: it has other inputs or outputs, or state-dependent exploration.
    """
    observation_space, action_space = spaces
    is_box = isinstance(action_space, gym.spaces.Box)
    num_outputs = (
        action_space.n
        if isinstance(action_space, gym.spaces.Discrete)
        else math.prod(action_space.shape or ())
    )
    needed = math.prod(observation_space.shape or ()), int(num_outputs)
    given = layers["policy"][0][0].shape[1], len(layers["policy"][-1][1])
    if given != needed or is_box != ("log_std" in saved.weights):
        kind = "continuous" if "log_std" in saved.weights else "discrete"
        raise BadConfig(
            f"The agent in {saved.path} has observations of {given[0]} numbers and {given[1]} "
            f"{kind} actions, but the environment has observations of {needed[0]} numbers and the "
            f"action space {action_space}. Use the environment in which it was trained."
        )
    if is_box and saved.weights["log_std"].shape != (needed[1],):
        raise BadConfig(
            f"The agent in {saved.path} has state-dependent exploration (use_sde), which the "
            "built-in agents do not support. Use one without it, or --agent sb3:..."
        )


def _rescale_to_unit_actions(
    saved: SavedPolicy, layers: Mapping[str, list], space: gym.spaces.Box
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Rescale the last layer and log_std to actions in [-1, 1].

    In the file, actions u are those of the environment; here they are (u - middle) / half_range.
    """
    weight, bias = layers["policy"][-1]
    log_std, scale = saved.weights["log_std"], ActionScale.of(space)
    if scale.middle is None or scale.half_range is None:
        return (weight, bias), log_std
    middle, half = scale.middle.reshape(-1), scale.half_range.reshape(-1)
    # a = (u - m) / h: both the mean and its standard deviation are divided by h.
    last = (weight / half[:, None]).astype(np.float32), ((bias - middle) / half).astype(np.float32)
    return last, (log_std - np.log(half)).astype(np.float32)


def _in_words(sizes: tuple[int, ...] | list[int]) -> str:
    return " and ".join(map(str, sizes)) + " units" if sizes else "no units"
