"""Input rows of the reward predictor: one observation and one action as a row of numbers.

The content of a row depends on the observation space and the image encoder:

* vectors: the flattened observation, then the action;
* images with random features (keypoints or profiles): the features, then the action;
* images with a convolutional network: the bytes of the image, then the action as bytes, because
  images dominate the memory of the labels. A discrete action takes one byte per choice, a
  continuous one the four bytes of each float32.

The vector observed with an image (`ImageLayout.vector_size`) comes last, in byte rows as four bytes
for each element.
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import Bool, Float32, Shaped
from pydantic import TypeAdapter

from rl_teacher.common.errors import BadConfig
from rl_teacher.common.state_dict import StateDict
from rl_teacher.nn.encoders import PREDICTOR_CNNS, PredictorEncoder, image_layout_of
from rl_teacher.nn.image_layout import (
    FLOAT_BYTES,
    ImageLayout,
    trailing_floats,
    with_trailing_floats,
)
from rl_teacher.nn.random_features import RandomFeatures, random_features_for

BYTE_SCALE = 1 / 255


@dataclass(frozen=True)
class InputSpace:
    """Shapes of one environment's observations and actions, and how they become input rows.

    Attributes:
        observation_shape: shape of one observation.
        action_shape: shape of one action; () for Discrete.
        action_choices: number of choices of each part of a Discrete, MultiDiscrete or MultiBinary
            action; empty for a Box.
        first_choices: number of the first choice of each of those parts.
        observation_scale: factor on flattened observations: 1/255 for uint8 that is no image.
        image: layout of an image observation; None for vectors.
        uses_random_features: whether rows hold random features of an image in place of its bytes.
            Excluded from comparison: two spaces that differ in it only describe one environment.
    """

    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_choices: tuple[int, ...] = ()
    first_choices: tuple[int, ...] = ()
    observation_scale: float = 1.0
    image: ImageLayout | None = None
    uses_random_features: bool = field(default=False, compare=False)

    @staticmethod
    def from_spaces(observation_space: gym.Space, action_space: gym.Space) -> "InputSpace":
        """Describe the inputs for an environment's spaces.

        Raises:
            BadConfig: the observation space is not a Box, or the action space is not a Box,
                Discrete, MultiDiscrete or MultiBinary.
        """
        if not isinstance(observation_space, gym.spaces.Box):
            raise BadConfig(
                f"The observation space is {observation_space}, but the reward predictor needs a "
                "Box. Flatten it first, for example with gymnasium.wrappers.FlattenObservation."
            )
        shape = observation_space.shape
        scale = BYTE_SCALE if observation_space.dtype == np.uint8 else 1.0
        match action_space:
            case gym.spaces.Box():
                choices, first = (), ()
            case gym.spaces.Discrete(n=n, start=start):
                choices, first = (int(n),), (int(start),)
            case gym.spaces.MultiDiscrete(nvec=nvec, start=start):
                choices, first = tuple(nvec.ravel().tolist()), tuple(start.ravel().tolist())
            case gym.spaces.MultiBinary(shape=sides):
                choices, first = (2,) * math.prod(sides), (0,) * math.prod(sides)
            case _:
                raise BadConfig(
                    f"The action space is {action_space}, but the reward predictor needs Box, "
                    "Discrete, MultiDiscrete or MultiBinary."
                )
        image = image_layout_of(observation_space)
        return InputSpace(shape, action_space.shape or (), choices, first, scale, image)

    def for_encoder(self, encoder: PredictorEncoder) -> "InputSpace":
        """Return the same space with the rows that an image encoder needs."""
        uses_random_features = self.image is not None and encoder not in PREDICTOR_CNNS
        return replace(self, uses_random_features=uses_random_features)

    @property
    def is_discrete(self) -> bool:
        """True if actions are choices, which are one-hot encoded."""
        return bool(self.action_choices)

    @property
    def num_action_inputs(self) -> int:
        """Numbers that encode one action: the lengths of its one-hot vectors, or its size."""
        return sum(self.action_choices) or math.prod(self.action_shape)

    @property
    def has_byte_rows(self) -> bool:
        """True if rows are the bytes of images, for a convolutional network."""
        return self.image is not None and not self.uses_random_features

    @property
    def _random_features(self) -> RandomFeatures | None:
        if self.image is None or not self.uses_random_features:
            return None
        return random_features_for(self.image)

    @property
    def num_observation_inputs(self) -> int:
        """Numbers (or bytes) of a row that encode the observation; they precede the action."""
        if features := self._random_features:
            return features.num_features
        return self.image.num_bytes if self.image else math.prod(self.observation_shape)

    @property
    def vector_size(self) -> int:
        """V, the size of the vector observed with an image; it follows the action."""
        return self.image.vector_size if self.image else 0

    @property
    def num_features(self) -> int:
        """F, the numbers (or bytes) of one row."""
        size = FLOAT_BYTES if self.has_byte_rows else 1
        return self._action_end + size * self.vector_size

    @property
    def _action_end(self) -> int:
        has_floats = self.has_byte_rows and not self.is_discrete
        action_size = (FLOAT_BYTES if has_floats else 1) * self.num_action_inputs
        return self.num_observation_inputs + action_size

    @property
    def feature_scales(self) -> Float32[np.ndarray, " features"]:
        """[F] standard deviation of each feature after normalisation; [V] for byte rows."""
        if self.has_byte_rows:
            return np.ones(self.vector_size, np.float32)
        scales = np.ones(self.num_features, np.float32)
        if self._random_features:
            scales[: self._random_features.num_features] = self._random_features.scales
        return scales

    def feature_mask(
        self, encoder: PredictorEncoder, *, uses_actions: bool = True
    ) -> Bool[np.ndarray, " features"]:
        """Select the features of a row that the networks use.

        Args:
            encoder: `profiles` selects the profiles and no actions; every other encoder selects
                the keypoints (or the vector) and the action.
            uses_actions: whether the action is selected; ignored for `profiles`.

        Returns:
            [F] True for selected features; [V] for byte rows.
        """
        if self.has_byte_rows:
            return np.ones(self.vector_size, bool)
        # A row is keypoints, profiles, action, vector; or without random features vector, action.
        sizes = self.num_observation_inputs, self.num_action_inputs, self.vector_size
        is_observed, is_action, is_number = np.repeat(np.eye(3, dtype=bool), sizes, axis=1)
        if not self._random_features:
            return is_observed | (is_action & uses_actions)
        is_keypoint = np.arange(self.num_features) < self._random_features.num_keypoints
        if encoder == "profiles":
            return (is_observed & ~is_keypoint) | is_number
        return is_keypoint | (is_action & uses_actions) | is_number

    def normalised_part(
        self, rows: Shaped[np.ndarray, "*batch features"]
    ) -> Float32[np.ndarray, "*batch n"]:
        """Return what `InputNormaliser` normalises: all of a row, or the vector at its end."""
        return trailing_floats(rows, self.vector_size) if self.has_byte_rows else rows

    @property
    def row_dtype(self) -> type:
        """NumPy type of the numbers in a row."""
        return np.uint8 if self.has_byte_rows else np.float32

    def rows(
        self,
        observations: Shaped[np.ndarray, "..."],
        actions: Shaped[np.ndarray, "..."],
    ) -> Shaped[np.ndarray, "... features"]:
        """Encode observations and actions as input rows.

        Args:
            observations: [..., *observation_shape].
            actions: [..., *action_shape].

        Returns:
            [..., F] float32, or uint8 where rows are the bytes of images.

        Raises:
            BadConfig: the arrays do not have these shapes, or there is no such discrete action.
        """
        batch = self._batch_shape(observations, actions)
        rows = np.empty((*batch, self.num_features), self.row_dtype)
        split, end = self.num_observation_inputs, self._action_end
        flat = observations.reshape(*batch, math.prod(self.observation_shape))
        vectors = trailing_floats(flat, self.vector_size)
        rows[..., end:] = vectors.view(np.uint8) if self.has_byte_rows else vectors
        flat = flat[..., : flat.shape[-1] - FLOAT_BYTES * self.vector_size]
        if self._random_features:
            features = self._random_features(flat.reshape(-1, flat.shape[-1]))
            rows[..., :split] = features.reshape(*batch, split)
        else:
            rows[..., :split] = flat
            if not self.has_byte_rows and self.observation_scale != 1.0:
                rows[..., :split] *= self.observation_scale
        encoded = self._encode_actions(actions, batch)
        if self.has_byte_rows and not self.is_discrete:
            # float32 [..., A] to bytes [..., 4 A]; `split` is the inverse.
            encoded = np.ascontiguousarray(encoded).view(np.uint8)
        rows[..., split:end] = encoded
        return rows

    def _encode_actions(
        self, actions: Shaped[np.ndarray, "..."], batch: tuple[int, ...]
    ) -> Float32[np.ndarray, "... inputs"]:
        flat = actions.reshape(*batch, -1)
        if not self.action_choices:
            return flat.astype(np.float32, copy=False)
        # A one-hot vector per part, one after another.
        parts = zip(self.action_choices, self.first_choices, strict=True)
        return np.concatenate(
            [
                one_hot(flat[..., part], first, choices)
                for part, (choices, first) in enumerate(parts)
            ],
            axis=-1,
        )

    def split(self, rows: Any) -> tuple[Any, Any, Any]:
        """Split byte rows into images, encoded actions and vectors, inside a compiled function.

        Args:
            rows: [B, F] traced bytes.

        Returns:
            [B, P] bytes of the images, [B, A] float32 actions, and [B, V] float32 vectors.
        """
        # Imported here because this module is also used where nothing is computed with JAX.
        import jax.numpy as jnp  # noqa: PLC0415

        from rl_teacher.nn.conv import bytes_to_floats  # noqa: PLC0415

        ends = self.num_observation_inputs, self._action_end
        images, actions, vectors = jnp.split(rows, ends, axis=1)
        actions = actions.astype(jnp.float32) if self.is_discrete else bytes_to_floats(actions)
        return images, actions, bytes_to_floats(vectors)

    def check_steps(self, observations: np.ndarray, actions: np.ndarray) -> None:
        """Check that observations [B, ...] and actions [B, ...] are of this space.

        Raises:
            BadConfig: the arrays have other shapes or types, or there is no such discrete action.
        """
        self._batch_shape(observations, actions)
        if not self.is_discrete:
            return
        if not np.issubdtype(actions.dtype, np.integer):
            raise BadConfig(f"Actions of {actions.dtype} were given; whole numbers are needed.")
        parts = actions.reshape(-1, len(self.action_choices))
        for part, first, num in zip(parts.T, self.first_choices, self.action_choices, strict=True):
            check_choices(part, first, num)

    def _batch_shape(self, observations: np.ndarray, actions: np.ndarray) -> tuple[int, ...]:
        num_batch_axes = observations.ndim - len(self.observation_shape)
        batch = observations.shape[: max(num_batch_axes, 0)]
        if observations.shape != (*batch, *self.observation_shape) or actions.shape != (
            *batch,
            *self.action_shape,
        ):
            raise BadConfig(
                f"Observations {observations.shape} and actions {actions.shape} were given, but "
                f"this predictor was made for [..., {self.observation_shape}] and "
                f"[..., {self.action_shape}]."
            )
        return batch

    @property
    def description(self) -> str:
        """Shapes of observations and actions as a phrase for messages."""
        actions = f"actions of shape {self.action_shape}"
        if self.action_choices:
            actions = f"discrete actions of {self.action_choices} choices"
        return f"observations of shape {self.observation_shape} and {actions}"

    def to_json(self) -> dict:
        """Return plain values; `uses_random_features` follows from the predictor's encoder."""
        values = asdict(self)
        del values["uses_random_features"]
        return values

    @staticmethod
    def from_json(values: Any) -> "InputSpace":
        """Restore a space from the plain values of `to_json`, of a file that may be untrusted.

        Raises:
            ValueError: the values describe no space.
        """
        space = TypeAdapter(InputSpace).validate_json(json.dumps(values), strict=True)
        shape, choices, firsts = space.observation_shape, space.action_choices, space.first_choices
        image = space.image or ImageLayout(shape, None)
        if any(size < 1 for size in (*shape, *image.shape, *space.action_shape, *choices)):
            raise ValueError("a size is below 1")
        num_parts = math.prod(space.action_shape) if choices else 0
        if (len(choices), len(firsts)) != (num_parts, num_parts):
            raise ValueError("the action has another number of parts than of choices")
        axes = {2: (None,), 3: (0, 2)}.get(len(image.shape), ())
        is_image = image.channel_axis in axes and image.vector_size >= 0
        if space.image and not (is_image and image.observation_shape == shape):
            raise ValueError("the image has another shape than the observations")
        if space.observation_scale not in (1.0, BYTE_SCALE):
            raise ValueError("there is no such scale of observations")
        return space


def one_hot(
    actions: Shaped[np.ndarray, "..."], first: int, num: int
) -> Float32[np.ndarray, "... choices"]:
    """Encode whole numbers from `first` on, `num` in all, as one-hot vectors.

    Raises:
        BadConfig: a number is outside of this range.
    """
    # A negative index would silently select from the end.
    check_choices(actions, first, num)
    return np.eye(num, dtype=np.float32)[actions - first]


def check_choices(actions: Shaped[np.ndarray, "..."], first: int, num: int) -> None:
    """Check that numbers are from `first` on, `num` in all.

    Raises:
        BadConfig: a number is outside of this range.
    """
    if (actions < first).any() or (actions >= first + num).any():
        raise BadConfig(
            f"Discrete actions from {actions.min()} to {actions.max()} were given, but "
            f"{first} to {first + num - 1} are needed."
        )


class InputNormaliser(NamedTuple):
    """Affine normalisation of input rows, with a mask of the features that the networks use.

    Masked features are 0 after normalisation, so the networks ignore them. Of byte rows only the
    vectors at their end are normalised; without any, all three arrays are empty.

    Attributes:
        mean: [F].
        std: [F] positive.
        mask: [F] True for the features that are used.
    """

    mean: Float32[np.ndarray, " features"]
    std: Float32[np.ndarray, " features"]
    mask: Bool[np.ndarray, " features"]

    @staticmethod
    def identity(space: InputSpace) -> "InputNormaliser":
        """Return a normaliser that leaves rows as they are."""
        size = len(space.feature_scales)
        return InputNormaliser(
            np.zeros(size, np.float32), np.ones(size, np.float32), np.ones(size, bool)
        )

    def __call__(self, rows: Shaped[np.ndarray, "... features"]) -> np.ndarray:
        """Normalise rows; return byte rows without vectors unchanged."""
        if not len(self.mean):
            return rows
        if rows.dtype == np.uint8:
            return with_trailing_floats(rows, self(trailing_floats(rows, len(self.mean))))
        # x' = mask * (x - mean) / std
        normalised = (rows - self.mean) / self.std
        if not self.mask.all():
            normalised *= self.mask
        return normalised

    def state(self) -> StateDict:
        """Return the arrays of a checkpoint."""
        return dict(self._asdict())

    @staticmethod
    def from_state(state: StateDict) -> "InputNormaliser":
        """Restore a normaliser from the arrays of a checkpoint."""
        return InputNormaliser(*(state[name] for name in InputNormaliser._fields))
