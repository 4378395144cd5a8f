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
        num_actions: number of discrete actions, or 0 when actions are continuous.
        first_action: the number of the first discrete action.
    """

    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    num_actions: int
    first_action: int = 0

    @staticmethod
    def of(observation_space: gym.Space, action_space: gym.Space) -> "InputSpace":
        """The shapes of an environment's spaces.

        Raises:
            BadConfig: the observations are no Box, or the actions neither Box nor Discrete.
        """
        if not isinstance(observation_space, gym.spaces.Box):
            raise BadConfig(
                f"The observation space is {observation_space}, but the reward predictor needs a "
                "Box. Flatten it first, for example with gymnasium.wrappers.FlattenObservation."
            )
        if isinstance(action_space, gym.spaces.Discrete):
            return InputSpace(
                observation_space.shape, (), int(action_space.n), int(action_space.start)
            )
        if isinstance(action_space, gym.spaces.Box):
            return InputSpace(observation_space.shape, action_space.shape, 0)
        raise BadConfig(
            f"The action space is {action_space}, but the reward predictor needs Box or Discrete."
        )

    @property
    def num_features(self) -> int:
        """Numbers in one row."""
        actions = self.num_actions or int(np.prod(self.action_shape))
        return int(np.prod(self.observation_shape)) + actions

    def rows(
        self,
        observations: Shaped[np.ndarray, "..."],
        actions: Shaped[np.ndarray, "..."],
    ) -> Float32[np.ndarray, "... features"]:
        """Observations flattened, then actions: one-hot when discrete.

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
        if self.num_actions:
            rows[..., split:] = np.eye(self.num_actions, dtype=np.float32)[
                actions - self.first_action
            ]
        else:
            rows[..., split:] = actions.reshape(*batch, -1)
        return rows

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
        )
