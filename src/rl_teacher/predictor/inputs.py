"""What the reward predictor is given: an observation and an action as one row of numbers."""

from dataclasses import asdict, dataclass

import gymnasium as gym
import numpy as np
from jaxtyping import Float32, Shaped

from rl_teacher.errors import BadConfig


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
        observation_scale: what observations are multiplied by: 1/255 for pictures' bytes.
    """

    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    num_actions: int
    first_action: int = 0
    action_choices: tuple[int, ...] = ()
    first_choices: tuple[int, ...] = ()
    observation_scale: float = 1.0

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
        if isinstance(action_space, gym.spaces.Discrete):
            n, start = int(action_space.n), int(action_space.start)
            return InputSpace(observed, (), n, start, observation_scale=scale)
        if isinstance(action_space, gym.spaces.Box):
            return InputSpace(observed, action_space.shape, 0, observation_scale=scale)
        if isinstance(action_space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
            choices, first = _choices_of(action_space)
            return InputSpace(observed, action_space.shape, 0, 0, choices, first, scale)
        raise BadConfig(
            f"The action space is {action_space}, but the reward predictor needs Box, Discrete, "
            "MultiDiscrete or MultiBinary."
        )

    @property
    def num_features(self) -> int:
        """Numbers in one row."""
        actions = self.num_actions or sum(self.action_choices) or int(np.prod(self.action_shape))
        return int(np.prod(self.observation_shape)) + actions

    def rows(
        self,
        observations: Shaped[np.ndarray, "..."],
        actions: Shaped[np.ndarray, "..."],
    ) -> Float32[np.ndarray, "... features"]:
        """Observations flattened, then actions: one-hot when discrete, one after the other.

        Args:
            observations: [..., *observation_shape].
            actions: [..., *action_shape].

        Returns:
            [..., F] float32.

        Raises:
            BadConfig: the arrays do not have these shapes.
        """
        batch = self._batch_shape(observations, actions)
        rows = np.empty((*batch, self.num_features), np.float32)
        split = int(np.prod(self.observation_shape))
        rows[..., :split] = observations.reshape(*batch, -1)
        if self.observation_scale != 1.0:
            rows[..., :split] *= self.observation_scale
        if self.action_choices:
            rows[..., split:] = self._one_hots(actions.reshape(*batch, -1))
        elif self.num_actions:
            rows[..., split:] = np.eye(self.num_actions, dtype=np.float32)[
                actions - self.first_action
            ]
        else:
            rows[..., split:] = actions.reshape(*batch, -1)
        return rows

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
        """As plain values."""
        return asdict(self)

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
        )


def _choices_of(
    space: gym.spaces.MultiDiscrete | gym.spaces.MultiBinary,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Number of choices of each part of an action, and the number of the first."""
    if isinstance(space, gym.spaces.MultiBinary):
        num_parts = int(np.prod(space.shape))
        return (2,) * num_parts, (0,) * num_parts
    return tuple(space.nvec.ravel().tolist()), tuple(space.start.ravel().tolist())
