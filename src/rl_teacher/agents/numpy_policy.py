"""An agent's policy alone: what acts once nothing is learned any more. It needs NumPy, no JAX.

B: observations at once, D: numbers of an observation, A: numbers of an action (or choices of a
discrete one).
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Shaped
from safetensors import SafetensorError
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

from rl_teacher.agents.observing import (
    Matrix,
    Observed,
    ObservedPictures,
    Vector,
    read_observed,
)
from rl_teacher.common.errors import BadInput, BadObservation, CorruptCheckpoint

if TYPE_CHECKING:
    from rl_teacher.agents.actions import ActionScale
    from rl_teacher.nn.agent_encoders import ImageEncoder
    from rl_teacher.nn.mlp import MLP

FORMAT_NAME = "rl-teacher-agent"
SCHEMA_VERSION = 2
"""Of the files; it grows when an older reader would misunderstand them. Agents that see are 2."""
DESCRIPTION = "agent.json"
ARRAYS = "agent.safetensors"

Kind = Literal["gaussian", "squashed_gaussian", "categorical"]
"""What the last layer's outputs are: the mean; mean and log spread, squashed by tanh; or logits."""

LOG_STD_RANGE = (-20.0, 2.0)
"""Of a squashed Gaussian, as in Haarnoja et al. 2018."""

ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu": lambda x: np.maximum(x, 0.01 * x),
}


@dataclass(frozen=True, eq=False)
class Layers:
    """A multi-layer perceptron.

    Attributes:
        weights: of each layer, [inputs, outputs].
        biases: of each layer, [outputs].
        activation: between two layers; one of `ACTIVATIONS`.
    """

    weights: tuple[Matrix, ...]
    biases: tuple[Vector, ...]
    activation: str

    def __call__(self, x: Float[np.ndarray, "batch inputs"]) -> Float[np.ndarray, "batch outputs"]:
        """The last layer's outputs."""
        activate = ACTIVATIONS[self.activation]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = activate(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


@dataclass(frozen=True, eq=False)
class Acted:
    """How the network's outputs become actions.

    Attributes:
        kind: what the outputs are.
        shape: of one action; () for a discrete one.
        log_std: [A] log of a Gaussian's spread; None for the other kinds.
        middle: of the range that -1 to 1 is brought to, in the action's shape; None where actions
            are given to the environment as they are.
        half_range: of that range.
        first: the number of the first discrete action.
    """

    kind: Kind
    shape: tuple[int, ...]
    log_std: Vector | None = None
    middle: Float32[np.ndarray, "..."] | None = None
    half_range: Float32[np.ndarray, "..."] | None = None
    first: int = 0

    def best(self, outputs: Float[np.ndarray, "batch outputs"]) -> Shaped[np.ndarray, "batch ..."]:
        """The most likely actions."""
        if self.kind == "categorical":
            return np.argmax(outputs, axis=-1) + self.first
        if self.kind == "squashed_gaussian":
            return self._scaled(np.tanh(np.split(outputs, 2, axis=-1)[0]))
        return self._scaled(outputs)

    def sample(
        self, outputs: Float[np.ndarray, "batch outputs"], rng: np.random.Generator
    ) -> Shaped[np.ndarray, "batch ..."]:
        """Actions that are drawn."""
        if self.kind == "categorical":
            # The Gumbel trick: the argmax of logits plus Gumbel noise is a draw from the softmax.
            return np.argmax(outputs + rng.gumbel(size=outputs.shape), axis=-1) + self.first
        if self.log_std is not None:
            return self._scaled(_drawn(outputs, self.log_std, rng))
        mean, log_std = np.split(outputs, 2, axis=-1)
        return self._scaled(np.tanh(_drawn(mean, np.clip(log_std, *LOG_STD_RANGE), rng)))

    def _scaled(self, actions: Float[np.ndarray, "batch A"]) -> Float[np.ndarray, "batch ..."]:
        shaped = actions.reshape(len(actions), *self.shape)
        if self.middle is None or self.half_range is None:
            return shaped
        clipped = np.clip(shaped, -1.0, 1.0)
        return (self.middle + self.half_range * clipped).astype(np.float32)


def _drawn(
    mean: Float[np.ndarray, "batch A"],
    log_std: Float[np.ndarray, "... A"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "batch A"]:
    return mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class NumpyPolicy:
    """A callable on NumPy arrays: `agent(observations)` gives actions.

    Attributes:
        observed: how observations come in.
        layers: the network.
        acted: how actions go out.
        made_from: in JSON, where it comes from; nothing depends on it.
    """

    observed: Observed | ObservedPictures
    layers: Layers
    acted: Acted
    made_from: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self,
        observations: Shaped[np.ndarray, "..."],
        *,
        explore: bool = False,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """Actions, ready to be given to the environment.

        Args:
            observations: [B, *shape], or one of [*shape].
            explore: draw actions, in the place of the most likely ones.
            rng: what is drawn with; a new one without it.

        Returns:
            [B, *action shape], or one action for one observation: float32, or int64 if discrete.

        Raises:
            BadInput: the observations are of another shape.
            BadObservation: they are not finite numbers.
        """
        given = np.asarray(observations)
        is_one = given.shape == self.observed.shape
        batch = given[None] if is_one else given
        self._check(batch, given)
        outputs = self.layers(self.observed.features(batch))
        if explore:
            actions = self.acted.sample(outputs, rng or np.random.default_rng())
        else:
            actions = self.acted.best(outputs)
        return actions[0] if is_one else actions

    def _check(self, batch: np.ndarray, given: np.ndarray) -> None:
        shape = self.observed.shape
        if batch.shape[1:] != shape or batch.ndim != len(shape) + 1:
            raise BadInput(
                f"Observations of shape {given.shape} were given, but this agent was made for one "
                f"of {shape}, or a batch of them. Give those of the environment that it learned in."
            )
        if not np.isfinite(batch).all():
            raise BadObservation(
                "Observations were given that are not finite numbers. Mend the environment, or "
                "wrap it so that it never returns NaN or infinity."
            )

    def save(self, folder: Path | str) -> None:
        """Write `agent.safetensors` and `agent.json` into a folder, which is made if need be.

        Raises:
            OSError: it cannot be written.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        content = pack(_arrays_of(self))
        description = {
            "format": FORMAT_NAME,
            "schema_version": 1 if isinstance(self.observed, Observed) else SCHEMA_VERSION,
            "observations": self.observed.described(),
            "layers": {"number": len(self.layers.weights), "activation": self.layers.activation},
            "actions": {
                "kind": self.acted.kind,
                "shape": self.acted.shape,
                "first": self.acted.first,
            },
            "made_from": dict(self.made_from),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        # Note: the description last, so that where one is, the arrays are whole.
        (folder / DESCRIPTION).unlink(missing_ok=True)
        (folder / ARRAYS).write_bytes(content)
        (folder / DESCRIPTION).write_text(text, encoding="utf-8")

    @staticmethod
    def load(folder: Path | str) -> "NumpyPolicy":
        """Read an agent that was saved; nothing that is in the files is run.

        Raises:
            BadInput: there is none.
            CorruptCheckpoint: the files are cut short, altered, or of a newer version.
        """
        folder = Path(folder).expanduser()
        if not (folder / DESCRIPTION).is_file():
            raise BadInput(
                f"There is no agent in {str(folder)!r}: a folder with {DESCRIPTION} and {ARRAYS} "
                "in it is needed, as `rl-teacher export-agent` writes it."
            )
        try:
            return _read(folder)
        except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
            raise CorruptCheckpoint(
                f"The agent in {folder} is not what was written ({error}). "
                "Write it again with `rl-teacher export-agent`."
            ) from error


load_agent = NumpyPolicy.load


def _arrays_of(network: NumpyPolicy) -> dict[str, np.ndarray]:
    layers, acted = network.layers, network.acted
    arrays = {f"observations/{name}": each for name, each in network.observed.arrays().items()}
    for number, (weight, bias) in enumerate(zip(layers.weights, layers.biases, strict=True)):
        arrays |= {f"layers/{number}/weights": weight, f"layers/{number}/biases": bias}
    optional = {name: getattr(acted, name) for name in ("log_std", "middle", "half_range")}
    arrays |= {f"actions/{name}": each for name, each in optional.items() if each is not None}
    return {name: np.asarray(array, np.float32, order="C") for name, array in arrays.items()}


# --- reading ---


def _read(folder: Path) -> NumpyPolicy:
    description = json.loads((folder / DESCRIPTION).read_bytes())
    _check_format(folder, description)
    content = (folder / ARRAYS).read_bytes()
    if hashlib.sha256(content).hexdigest() != description["sha256"]:
        raise ValueError(f"{ARRAYS} does not have the SHA-256 that {DESCRIPTION} says")
    arrays = unpack(content)
    seen = {
        name.removeprefix("observations/"): array
        for name, array in arrays.items()
        if name.startswith("observations/")
    }
    actions = description["actions"]
    numbers = range(description["layers"]["number"])
    network = NumpyPolicy(
        read_observed(description["observations"], seen),
        Layers(
            tuple(arrays[f"layers/{number}/weights"] for number in numbers),
            tuple(arrays[f"layers/{number}/biases"] for number in numbers),
            description["layers"]["activation"],
        ),
        Acted(
            actions["kind"],
            tuple(actions["shape"]),
            *(arrays.get(f"actions/{name}") for name in ("log_std", "middle", "half_range")),
            first=int(actions["first"]),
        ),
        description["made_from"],
    )
    _check_sizes(network)
    return network


def _check_format(folder: Path, description: Any) -> None:
    if not isinstance(description, dict) or description.get("format") != FORMAT_NAME:
        raise ValueError(f"{DESCRIPTION} describes no agent of rl-teacher")
    if description["schema_version"] > SCHEMA_VERSION:
        raise CorruptCheckpoint(
            f"{folder} holds an agent of schema {description['schema_version']}; this version "
            f"reads up to {SCHEMA_VERSION}. Install a newer rl-teacher."
        )


def _check_sizes(network: NumpyPolicy) -> None:
    """Refuse parts that do not fit together.

    Raises:
        ValueError: and says which.
    """
    observed, layers, acted = network.observed, network.layers, network.acted
    if acted.kind not in get_args(Kind):
        raise ValueError(f"actions of the kind {acted.kind!r} are not known")
    if layers.activation not in ACTIVATIONS:
        raise ValueError(f"the activation {layers.activation!r} is not known")
    observed.check()
    size = observed.num_features
    for weight, bias in zip(layers.weights, layers.biases, strict=True):
        if weight.shape != (size, *bias.shape):
            raise ValueError("the layers do not fit one another")
        size = len(bias)
    numbers = math.prod(acted.shape)
    if acted.kind != "categorical" and size != numbers * (1 + (acted.kind != "gaussian")):
        raise ValueError("the last layer does not have the size of an action")
    if _shape_of(acted.log_std) != ((numbers,) if acted.kind == "gaussian" else None):
        raise ValueError("the spread does not have the size of an action")
    if not {_shape_of(acted.middle), _shape_of(acted.half_range)} <= {None, acted.shape}:
        raise ValueError("the actions' range does not have their shape")


def _shape_of(array: np.ndarray | None) -> tuple[int, ...] | None:
    return None if array is None else array.shape


# --- from an agent ---


@runtime_checkable
class SupportsExport(Protocol):
    """An agent of which what acts can be taken out."""

    def acting(self) -> NumpyPolicy:
        """What of it acts."""
        ...


def export_policy(agent: object) -> NumpyPolicy:
    """What of an agent acts.

    Raises:
        BadInput: it is another library's, or has none that can be taken out.
    """
    if isinstance(agent, SupportsExport):
        return agent.acting()
    raise BadInput(
        f"An agent of the kind {type(agent).__name__} cannot be exported: it is another library's. "
        "Use that library's own file."
    )


def observed_by(
    shape: tuple[int, ...], mean: np.ndarray, inverse_std: np.ndarray, limit: float
) -> Observed:
    """How an agent that normalises its observations takes them in."""
    return Observed(shape, floats(mean), floats(inverse_std), float(limit))


def seen_by(encoder: "ImageEncoder") -> ObservedPictures:
    """How an agent that sees takes pictures in."""
    seen = encoder.convolutions
    filters, biases = (tuple(map(floats, each)) for each in (seen.filters, seen.biases))
    dense = floats(encoder.weights), floats(encoder.bias)
    return ObservedPictures(seen.picture, filters, biases, seen.strides, *dense)


def layers_of(network: "MLP") -> Layers:
    """The layers of a network."""
    weights, biases = (tuple(map(floats, each)) for each in (network.weights, network.biases))
    return Layers(weights, biases, network.activation)


def acted_by(
    kind: Kind, shape: tuple[int, ...], scale: "ActionScale", log_std: Any = None
) -> Acted:
    """How an agent whose actions are scaled so gives them out."""
    is_scaled = scale.half_range is not None and not np.isinf(scale.half_range).any()
    return Acted(
        kind,
        shape,
        None if log_std is None else floats(log_std),
        floats(scale.middle) if is_scaled else None,
        floats(scale.half_range) if is_scaled else None,
        scale.start,
    )


def floats(array: Any) -> Float32[np.ndarray, "..."]:
    """A copy that does not change with the agent."""
    return np.array(array, np.float32)
