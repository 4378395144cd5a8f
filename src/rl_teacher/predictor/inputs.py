"""What the reward predictor is given: an observation and an action as one row of numbers.

Of a picture a predictor is told what fixed filters find in it, and where; a row is numbers then as
well. For one that learns to see a row is bytes, since there they are what fills the memory: first
the picture's, then a byte for each choice of a discrete action, or the four of each number of a
continuous one.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
from jaxtyping import Bool, Float32, Shaped

from rl_teacher.common.errors import BadConfig
from rl_teacher.nn.encoders import PREDICTORS, PredictorNetwork, image_layout_of
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.predictor.random_features import Places, of_picture

FLOAT_BYTES = 4


@dataclass(frozen=True)
class InputSpace:
    """Shapes of one environment's observations and actions.

    Attributes:
        observation_shape: of one observation.
        action_shape: of one action; () when discrete.
        num_actions: number of discrete actions, or 0 when actions are continuous or of several
            parts.
        first_action: the number of the first discrete action.
        action_choices: number of choices of each part of a MultiDiscrete or MultiBinary action, or
            nothing.
        first_choices: the number of the first choice of each part.
        observation_scale: what observations are multiplied by: 1/255 for bytes that are no picture.
        picture: how the bytes of an observation lie, where it is a picture.
        tells_places: whether rows tell of a picture what is found in it, in the place of its bytes.
            Spaces that differ in this alone are equal: the environment is the same.
    """

    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    num_actions: int
    first_action: int = 0
    action_choices: tuple[int, ...] = ()
    first_choices: tuple[int, ...] = ()
    observation_scale: float = 1.0
    picture: ImageLayout | None = None
    tells_places: bool = field(default=False, compare=False)

    @staticmethod
    def of(observation_space: gym.Space, action_space: gym.Space) -> "InputSpace":
        """The shapes of an environment's spaces.

        Raises:
            BadConfig: the observations are no Box, or the actions none of Box, Discrete,
                MultiDiscrete and MultiBinary.
        """
        if not isinstance(observation_space, gym.spaces.Box):
            raise BadConfig(
                f"The observation space is {observation_space}, but the reward predictor needs a "
                "Box. Flatten it first, for example with gymnasium.wrappers.FlattenObservation."
            )
        observed = observation_space.shape
        scale = 1 / 255 if observation_space.dtype == np.uint8 else 1.0
        seen = {"observation_scale": scale, "picture": image_layout_of(observation_space)}
        if isinstance(action_space, gym.spaces.Discrete):
            n, start = int(action_space.n), int(action_space.start)
            return InputSpace(observed, (), n, start, **seen)
        if isinstance(action_space, gym.spaces.Box):
            return InputSpace(observed, action_space.shape, 0, **seen)
        if isinstance(action_space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
            choices, first = _choices_of(action_space)
            return InputSpace(observed, action_space.shape, 0, 0, choices, first, **seen)
        raise BadConfig(
            f"The action space is {action_space}, but the reward predictor needs Box, Discrete, "
            "MultiDiscrete or MultiBinary."
        )

    def seen_by(self, network: PredictorNetwork) -> "InputSpace":
        """The same, with rows for a predictor that has this network for pictures."""
        tells_places = self.picture is not None and network not in PREDICTORS
        return replace(self, tells_places=tells_places)

    @property
    def is_discrete(self) -> bool:
        """Whether actions are choices."""
        return bool(self.num_actions or self.action_choices)

    @property
    def num_action_inputs(self) -> int:
        """Numbers that an action is told by: one for each choice of a discrete one."""
        return self.num_actions or sum(self.action_choices) or int(np.prod(self.action_shape))

    @property
    def is_bytes(self) -> bool:
        """Whether rows are the bytes of pictures, for a network that learns to see."""
        return self.picture is not None and not self.tells_places

    @property
    def _places(self) -> Places | None:
        """What tells of pictures where something is, if that is told."""
        return of_picture(self.picture) if self.picture is not None and self.tells_places else None

    @property
    def num_observation_inputs(self) -> int:
        """Numbers, or bytes, in a row before those of the action."""
        return self._places.num if self._places else int(np.prod(self.observation_shape))

    @property
    def num_features(self) -> int:
        """Numbers in one row; or bytes."""
        has_numbers = self.is_bytes and not self.is_discrete
        action_size = (FLOAT_BYTES if has_numbers else 1) * self.num_action_inputs
        return self.num_observation_inputs + action_size

    @property
    def input_weights(self) -> Float32[np.ndarray, " features"]:
        """[F] what spread each number of a row is given beside the others; of bytes nothing."""
        if self.is_bytes:
            return np.ones(0, np.float32)
        weights = np.ones(self.num_features, np.float32)
        if self._places:
            weights[: self._places.num] = self._places.weights
        return weights

    def told(
        self, network: PredictorNetwork, *, sees_actions: bool = True
    ) -> Bool[np.ndarray, " features"]:
        """[F] which numbers of a row a predictor is told; of bytes nothing.

        Args:
            network: `lines` are told, and no actions; or `places`, as with `auto` at first.
            sees_actions: whether others are told actions.
        """
        if self.is_bytes:
            return np.ones(0, bool)
        told = np.ones(self.num_features, bool)
        told[self.num_observation_inputs :] = sees_actions
        if self._places:
            is_line = np.arange(len(told)) >= self._places.num_places
            is_line[self._places.num :] = False
            told = is_line if network == "lines" else told & ~is_line
        return told

    @property
    def row_type(self) -> type:
        """Of the numbers in a row."""
        return np.uint8 if self.is_bytes else np.float32

    def rows(
        self,
        observations: Shaped[np.ndarray, "..."],
        actions: Shaped[np.ndarray, "..."],
    ) -> Shaped[np.ndarray, "... features"]:
        """Observations flattened, then actions: one-hot when discrete, one after the other.

        Args:
            observations: [..., *observation_shape].
            actions: [..., *action_shape].

        Returns:
            [..., F] float32, or uint8 where rows are the bytes of pictures.

        Raises:
            BadConfig: the arrays do not have these shapes.
        """
        batch = self._batch_shape(observations, actions)
        rows = np.empty((*batch, self.num_features), self.row_type)
        split = self.num_observation_inputs
        if self._places:
            told_of = self._places(observations.reshape(-1, *self.observation_shape))
            rows[..., :split] = told_of.reshape(*batch, split)
        else:
            rows[..., :split] = observations.reshape(*batch, -1)
            if not self.is_bytes and self.observation_scale != 1.0:
                rows[..., :split] *= self.observation_scale
        told = self._told(actions, batch)
        if self.is_bytes and not self.is_discrete:
            told = np.ascontiguousarray(told).view(np.uint8)
        rows[..., split:] = told
        return rows

    def _told(
        self, actions: Shaped[np.ndarray, "..."], batch: tuple[int, ...]
    ) -> Float32[np.ndarray, "... inputs"]:
        """Actions as the numbers that they are told by."""
        if self.action_choices:
            return self._one_hots(actions.reshape(*batch, -1))
        if self.num_actions:
            return np.eye(self.num_actions, dtype=np.float32)[actions - self.first_action]
        return actions.reshape(*batch, -1).astype(np.float32, copy=False)

    def split(self, rows: Any) -> tuple[Any, Any]:
        """What was put together, in a compiled function: pictures' bytes, and what tells actions.

        Args:
            rows: [B, F] traced bytes.

        Returns:
            [B, P] bytes, and [B, A] float32.
        """
        import jax  # noqa: PLC0415 - this module is also needed where nothing is computed
        import jax.numpy as jnp  # noqa: PLC0415

        end = int(np.prod(self.observation_shape))
        pictures, told = rows[:, :end], rows[:, end:]
        if self.is_discrete:
            return pictures, told.astype(jnp.float32)
        quads = told.reshape(len(rows), self.num_action_inputs, FLOAT_BYTES)
        return pictures, jax.lax.bitcast_convert_type(quads, jnp.float32)

    def _one_hots(
        self, actions: Shaped[np.ndarray, "... part"]
    ) -> Float32[np.ndarray, "... choices"]:
        """One-hots of each part of an action, one after the other."""
        parts = zip(self.action_choices, self.first_choices, strict=True)
        one_hots = [
            np.eye(choices, dtype=np.float32)[actions[..., place] - first]
            for place, (choices, first) in enumerate(parts)
        ]
        return np.concatenate(one_hots, axis=-1)

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
    def in_words(self) -> str:
        """Shapes of observations and actions, for a message."""
        if self.num_actions:
            actions = f"{self.num_actions} discrete actions"
        elif self.action_choices:
            actions = f"discrete actions of {self.action_choices}"
        else:
            actions = f"actions of shape {self.action_shape}"
        return f"observations of shape {self.observation_shape} and {actions}"

    def to_json(self) -> dict:
        """As plain values, but for `tells_places`, which the predictor's network says."""
        return {name: each for name, each in asdict(self).items() if name != "tells_places"}

    @staticmethod
    def from_json(values: dict) -> "InputSpace":
        """From plain values."""
        return InputSpace(
            observation_shape=tuple(values["observation_shape"]),
            action_shape=tuple(values["action_shape"]),
            num_actions=values["num_actions"],
            first_action=values["first_action"],
            action_choices=tuple(values.get("action_choices", ())),
            first_choices=tuple(values.get("first_choices", ())),
            observation_scale=values.get("observation_scale", 1.0),
            picture=_picture_from(values.get("picture")),
        )


def _picture_from(values: dict[str, Any] | None) -> ImageLayout | None:
    if values is None:  # a predictor of vectors, or from before pictures were seen as such
        return None
    return ImageLayout(tuple(values["shape"]), values["channel_axis"])


def _choices_of(
    space: gym.spaces.MultiDiscrete | gym.spaces.MultiBinary,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Number of choices of each part of an action, and the number of the first."""
    if isinstance(space, gym.spaces.MultiBinary):
        num_parts = int(np.prod(space.shape))
        return (2,) * num_parts, (0,) * num_parts
    return tuple(space.nvec.ravel().tolist()), tuple(space.start.ravel().tolist())
