"""What the loop asks of an agent."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Shaped

from rl_teacher.envs.rollout import Rollout


@runtime_checkable
class Agent(Protocol):
    """A learner: acts, and learns from a rollout and the rewards it is told.

    The rewards it learns from are those given to `learn`, never the environment's own.
    """

    rollout_steps: int
    """Steps of each environment between two calls of `learn`."""

    def act(self, observations: Shaped[np.ndarray, "env ..."]) -> Shaped[np.ndarray, "env ..."]:
        """Actions for N environments, ready to be given to them."""
        ...

    def try_out(self, observations: Shaped[np.ndarray, "env ..."]) -> Shaped[np.ndarray, "env ..."]:
        """Actions like those of `act`, of a rollout that nothing is going to be learned from."""
        ...

    def observe(self, rollout: Rollout) -> None:
        """Learn only what observations look like, from a rollout of any policy."""
        ...

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Improve on one rollout, rewarded as told.

        Returns:
            Figures to report, by name.
        """
        ...

    def begin_anew(self) -> None:
        """Forget what was learned, but for what observations look like."""
        ...

    def begin_with(self, state: Mapping[str, np.ndarray]) -> None:
        """Begin as another agent of this kind is: its weights and normalisers, not its counters.

        Args:
            state: of that agent, which may have learned in any number of environments.

        Raises:
            BadConfig: it has networks of other sizes.
        """
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on exactly, as named arrays."""
        ...

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        ...
