"""The policy that acts in rollouts, in `play` and after export. It needs NumPy alone, no JAX.

B: batch of observations, D: features of an observation, A: action dimensions.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import index
from pathlib import Path
from typing import Any, get_args

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from safetensors import SafetensorError
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

from rl_teacher.agents.actions import ActionHead, ActionScale, Kind, Masks
from rl_teacher.common.errors import (
    INVALID_CONTENT,
    BadInput,
    BadObservation,
    CorruptCheckpoint,
)
from rl_teacher.common.files import write_atomically
from rl_teacher.common.paths import user_path
from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.nn.image_layout import ImageLayout, trailing_floats, with_trailing_floats
from rl_teacher.nn.numpy_networks import NumpyImageEncoder, NumpyMLP, Vector
from rl_teacher.nn.random_features import random_features_for

FORMAT_NAME = "rl-teacher-agent"
SCHEMA_VERSION = 1
"""Version of the file format."""
MAX_ACTIVATIONS = 1 << 23
"""Numbers of the largest observation, or convolution, of a saved policy."""
VECTOR_COPIES = 16
"""Copies of a vector with the bands of its image: among hundreds, one element goes unnoticed."""
SCALE_ARRAYS = ("middle", "half_range", "low", "high")
"""Arrays of an `ActionScale`."""
DESCRIPTION = "agent.json"
ARRAYS = "agent.safetensors"


@dataclass(frozen=True, eq=False)
class VectorNormaliser:
    """Normalisation of vectors, or of the bands of images: clip((x - mean) / std, -clip, clip).

    Attributes:
        shape: shape of one observation.
        mean: [D]
        inverse_std: [D]
        clip: bound of normalised features.
        layout: layout of images, whose `bands` and vectors are the D features; None for vectors.
    """

    shape: tuple[int, ...]
    mean: Vector
    inverse_std: Vector
    clip: float = math.inf
    layout: ImageLayout | None = None

    @staticmethod
    def from_stats(
        shape: tuple[int, ...],
        stats: RunningMeanStd,
        clip: float,
        layout: ImageLayout | None = None,
    ) -> "VectorNormaliser":
        """Create a normaliser from the statistics of [D] features.

        Frozen statistics belong to an agent that was trained on raw observations, as in a file of
        Stable-Baselines3; these were not clipped either.
        """
        clip = math.inf if stats.frozen else clip
        mean, inverse_std = stats.mean.astype(np.float32), (1 / stats.std).astype(np.float32)
        return VectorNormaliser(shape, mean, inverse_std, clip, layout)

    def features(self, observations: Shaped[np.ndarray, "B ..."]) -> Shaped[np.ndarray, "B D"]:
        """Flatten vectors, or compute the bands of images, followed by copies of their vectors."""
        if self.layout is None:
            return observations.reshape(len(observations), self.mean.size)
        rows = observations.reshape(len(observations), math.prod(self.shape))
        bands = random_features_for(self.layout).bands(rows[:, : self.layout.num_bytes])
        vectors = trailing_floats(rows, self.layout.vector_size)
        return np.concatenate([bands, np.tile(vectors, VECTOR_COPIES)], axis=1)

    def normalise(self, x: Shaped[np.ndarray, "*batch D"]) -> Float[np.ndarray, "*batch D"]:
        """Normalise features."""
        # In place, since the rows of a replay buffer's minibatches are many.
        centred = x.astype(np.float32, copy=False) - self.mean
        centred *= self.inverse_std
        return np.clip(centred, -self.clip, self.clip, out=centred)

    def description(self) -> dict[str, Any]:
        """Return everything except the arrays, for JSON."""
        limit = self.clip if math.isfinite(self.clip) else None
        layout = {} if self.layout is None else asdict(self.layout)
        return {"shape": self.shape, "limit": limit, **layout}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        return {"mean": self.mean, "inverse_std": self.inverse_std}


@dataclass(frozen=True, eq=False)
class ImageVectorEncoder:
    """An image encoder after the normalisation of the vectors observed with the images.

    Attributes:
        encoder: encoder of images and normalised vectors, as in `NumpyPolicy`.
        layout: layout of the observations.
        own: normalisation of the vectors.
    """

    encoder: Any
    layout: ImageLayout
    own: VectorNormaliser

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return self.layout.observation_shape

    def features(self, observations: Shaped[np.ndarray, "B row"]) -> Float[np.ndarray, "B F"]:
        """Compute the features of images and their vectors."""
        return self.encoder.features(self.normalise(observations))

    def normalise(self, rows: UInt8[np.ndarray, "*batch row"]) -> UInt8[np.ndarray, "*batch row"]:
        """Normalise the vectors at the end of observations, also after tiles."""
        vectors = trailing_floats(rows, self.layout.vector_size)
        return with_trailing_floats(rows, self.own.normalise(vectors))

    def description(self) -> dict[str, Any]:
        """Return everything except the arrays, for JSON."""
        return self.own.description() | self.encoder.description()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        return self.own.arrays() | self.encoder.arrays()


@dataclass(frozen=True, eq=False)
class NumpyPolicy:
    """A callable policy on NumPy arrays: `policy(observations)` returns environment actions.

    Attributes:
        encoder: turns observations into features: `VectorNormaliser` or `NumpyImageEncoder`; while
            an agent learns a CNN, its `ImageEncoder` in JAX. With vectors, a
            `ImageVectorEncoder` of one of the latter two.
        network: turns features into parameters of the action distribution.
        head: turns those into actions.
        made_from: provenance in JSON, for information only.
    """

    encoder: Any
    network: NumpyMLP
    head: ActionHead
    made_from: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self,
        observations: Shaped[np.ndarray, "..."],
        *,
        explore: bool = False,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """Return environment actions.

        Args:
            observations: [B, *shape], or one observation of [*shape].
            explore: sample actions instead of taking the most likely ones.
            rng: random generator of the samples; by default a new one.

        Returns:
            [B, *action shape], or one action for one observation: float32, or int64 if discrete.

        Raises:
            BadInput: the observations have another shape.
            BadObservation: they are not finite.
        """
        given, shape = np.asarray(observations), self.encoder.shape
        is_single = given.shape == shape
        batch = given[None] if is_single else given
        if batch.shape[1:] != shape or batch.ndim != len(shape) + 1:
            raise BadInput(
                f"The observations have the shape {given.shape}, but this agent needs one "
                f"observation of {shape}, or a batch of them. Use the environment in which it was "
                "trained."
            )
        if not np.isfinite(batch).all():
            raise BadObservation(
                "The observations contain NaN or infinity, but must be finite. Fix the "
                "environment, or wrap it so that it never returns them."
            )
        sampler = (rng or np.random.default_rng()) if explore else None
        actions = self.environment_actions(self.encoder.features(batch), sampler)
        return actions[0] if is_single else actions

    def environment_actions(
        self,
        features: Shaped[np.ndarray, "batch features"],
        rng: np.random.Generator | None,
        masks: Masks = None,
    ) -> np.ndarray:
        """Return environment actions: samples, or the most likely ones without a generator."""
        return self.head.to_environment(self.policy_actions(features, rng, masks))

    def policy_actions(
        self,
        features: Shaped[np.ndarray, "batch features"],
        rng: np.random.Generator | None,
        masks: Masks = None,
    ) -> Shaped[np.ndarray, "batch ..."]:
        """Return actions before scaling, [B, A] float32, or [B] int64 if discrete."""
        if isinstance(self.encoder, VectorNormaliser):
            features = self.encoder.normalise(features)
        outputs, head = self.network(features), self.head
        return head.mode(outputs, masks) if rng is None else head.sample(outputs, rng, masks)

    def save(self, folder: Path | str) -> None:
        """Write `agent.safetensors` and `agent.json` into a folder, which is created if needed.

        Raises:
            OSError: the folder cannot be written.
        """
        network, head = self.network, self.head
        arrays = {f"observations/{name}": each for name, each in self.encoder.arrays().items()}
        for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            arrays |= {f"layers/{number}/weights": weight, f"layers/{number}/biases": bias}
        scale = head.scale
        of_actions = {name: getattr(scale, name) for name in SCALE_ARRAYS}
        of_actions["log_std"] = head.log_std
        arrays |= {f"actions/{name}": each for name, each in of_actions.items() if each is not None}
        content = pack(
            {name: np.asarray(array, np.float32, order="C") for name, array in arrays.items()}
        )
        description = {
            "format": FORMAT_NAME,
            "schema_version": SCHEMA_VERSION,
            "observations": self.encoder.description(),
            "layers": {"number": len(network.weights), "activation": network.activation},
            "actions": {"kind": head.kind, "shape": head.shape, "first": scale.first},
            "made_from": dict(self.made_from),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # The description is written last, so that the arrays are complete wherever it exists.
        (folder / DESCRIPTION).unlink(missing_ok=True)
        write_atomically(folder / ARRAYS, content, is_synced=False)
        write_atomically(folder / DESCRIPTION, text.encode(), is_synced=False)

    @staticmethod
    def load(folder: Path | str) -> "NumpyPolicy":
        """Read a saved policy; nothing in the files is executed.

        Raises:
            BadInput: the folder holds no policy.
            CorruptCheckpoint: the files are truncated, altered, or of a newer version.
        """
        folder = user_path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise BadInput(
                f"There is no agent in {str(folder)!r}: it must be a folder with {DESCRIPTION} and "
                f"{ARRAYS}, as written by `rl-teacher export --format safetensors`."
            )
        try:
            return _read(folder)
        except (OSError, SafetensorError, *INVALID_CONTENT) as error:
            raise CorruptCheckpoint(
                f"The agent in {folder} is damaged ({error!s:.300}). "
                "Write it again with `rl-teacher export --format safetensors`."
            ) from error


load_agent = NumpyPolicy.load


def export_policy(agent: object) -> NumpyPolicy:
    """Export the policy of an agent for NumPy inference.

    Raises:
        BadInput: the agent has no such policy.
    """
    export = getattr(agent, "numpy_policy", None)
    if export is not None:
        return export()
    raise BadInput(
        f"An agent of type {type(agent).__name__} cannot be exported, since it has no method "
        "numpy_policy. The saved attributes of a custom agent are in its checkpoints."
    )


# --- reading ---


def _read(folder: Path) -> NumpyPolicy:
    description = json.loads((folder / DESCRIPTION).read_bytes())
    if not isinstance(description, dict) or description.get("format") != FORMAT_NAME:
        raise ValueError(f"{DESCRIPTION} does not describe an agent of rl-teacher")
    if description["schema_version"] > SCHEMA_VERSION:
        raise CorruptCheckpoint(
            f"{folder} holds an agent of schema version {description['schema_version']}, but this "
            f"release reads versions up to {SCHEMA_VERSION}. Install a newer rl-teacher."
        )
    content = (folder / ARRAYS).read_bytes()
    if hashlib.sha256(content).hexdigest() != description["sha256"]:
        raise ValueError(f"{ARRAYS} does not have the SHA-256 digest in {DESCRIPTION}")
    arrays = unpack(content)
    action_shape = tuple(map(index, description["actions"]["shape"]))
    for name, array in arrays.items():
        # Arrays with more axes would multiply when they are added.
        kind = name.rpartition("/")[2]
        axes = (4,) if "/filters/" in name else (2,) if kind == "weights" else (1,)
        if "/biases/" in name:  # of convolutions; see `_read_encoder`
            axes = (1, 3)
        if array.shape != action_shape if kind in SCALE_ARRAYS else array.ndim not in axes:
            raise ValueError(f"{name} has the shape {array.shape}")
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"{name} has other numbers than finite ones of float32")
    layers, actions = description["layers"], description["actions"]
    weights, biases = (
        tuple(arrays[f"layers/{number}/{name}"] for number in range(layers["number"]))
        for name in ("weights", "biases")
    )
    log_std = arrays.get("actions/log_std")
    of_scale = {name: arrays.get(f"actions/{name}") for name in SCALE_ARRAYS}
    scale = ActionScale(first=int(actions["first"]), **of_scale)
    policy = NumpyPolicy(
        _read_encoder(description["observations"], arrays),
        NumpyMLP(weights, biases, layers["activation"]),
        ActionHead(actions["kind"], action_shape, log_std, scale),
        dict(description["made_from"]),
    )
    _check_fits(policy)
    return policy


def _read_encoder(
    description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> VectorNormaliser | NumpyImageEncoder | ImageVectorEncoder:
    shape = tuple(map(index, description["shape"]))
    layout = normaliser = None
    if "channel_axis" in description:
        vector_size = index(description.get("vector_size", 0))
        layout = ImageLayout(shape, description["channel_axis"], vector_size)
        shape = layout.observation_shape
    if "limit" in description:
        clip = math.inf if description["limit"] is None else float(description["limit"])
        if not clip > 0:
            raise ValueError(f"the limit of observations is {clip}")
        mean, inverse_std = (arrays[f"observations/{name}"] for name in ("mean", "inverse_std"))
        normaliser = VectorNormaliser(shape, mean, inverse_std, clip, layout)
    if normaliser is not None and "strides" not in description:
        return normaliser
    if layout is None:
        raise ValueError("neither vectors nor images are described")
    strides = tuple(map(int, description["strides"]))
    filters, biases = (
        tuple(arrays[f"observations/{name}/{number}"] for number in range(len(strides)))
        for name in ("filters", "biases")
    )
    size = layout.size
    for each, bias, stride in zip(filters, biases, strides, strict=True):
        size = tuple((pixels - len(each)) // stride + 1 for pixels in size)
        # See `convolve`: each output is a sum of so many products.
        num_products = math.prod(size) * each.shape[-1] * (-(-len(each) // stride)) ** 2
        if not 1 <= stride <= len(each) or num_products > MAX_ACTIVATIONS:
            raise ValueError(f"filters {each.shape} with stride {stride} for {shape}")
        if bias.shape not in (each.shape[3:], (*size, each.shape[3])):
            raise ValueError(f"a bias {bias.shape} of filters {each.shape}")
    dense = arrays["observations/weights"], arrays["observations/bias"]
    encoder = NumpyImageEncoder(layout, filters, biases, strides, *dense)
    return encoder if normaliser is None else ImageVectorEncoder(encoder, layout, normaliser)


def _check_fits(policy: NumpyPolicy) -> None:
    """Check that encoder, network and head fit together, by acting once.

    Raises:
        ValueError: they do not.
    """
    shape, kind = policy.encoder.shape, policy.head.kind
    if kind not in get_args(Kind) or math.prod(shape) > MAX_ACTIVATIONS:
        raise ValueError(f"observations of shape {shape} or actions of the kind {kind!r}")
    # Finite weights may be too large to be multiplied.
    with np.errstate(all="ignore"):
        features = policy.encoder.features(np.zeros((1, *shape), np.uint8))
        for rng in (None, np.random.default_rng()):
            if policy.environment_actions(features, rng).shape != (1, *policy.head.shape):
                raise ValueError("the range of actions does not fit the shape of an action")
