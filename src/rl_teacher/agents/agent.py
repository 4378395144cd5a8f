"""What the loop asks of an agent."""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Shaped

from rl_teacher.agents.actions import Masks
from rl_teacher.envs.rollout import Rollout

RewardsOf = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""What steps are worth by now: (observations [..., *O], actions [..., *A]) -> [...] float32."""


@runtime_checkable
class Agent(Protocol):
    """A learner: acts, and learns from a rollout and the rewards it is told.

    The rewards it learns from are those given to `learn`, never the environment's own.
    """

    rollout_steps: int
    """Steps of each environment between two calls of `learn`."""

    def act(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """Actions for N environments, ready to be given to them.

        Args:
            observations: [N, ...]
            masks: [N, A] which of the discrete actions each environment allows; None: all.
        """
        ...

    def try_out(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """Actions like those of `act`, of a rollout that nothing is going to be learned from."""
        ...

    def act_best(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """The actions it thinks best, without exploration: for watching it."""
        ...

    def observe(self, rollout: Rollout) -> None:
        """Learn what can be learned without rewards, from a rollout of any policy."""
        ...

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Improve on one rollout, rewarded as told.

        Returns:
            Metrics to report, by name.
        """
        ...

    def relabel_buffer(self, rewards_of: RewardsOf) -> None:
        """The predictor was fitted: what is remembered is worth something else by now."""
        ...

    def reinitialise(self) -> None:
        """Forget what was learned, but for what observations look like."""
        ...

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
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


@runtime_checkable
class Explorer(Protocol):
    """An agent with its own way to act before the first labels; others act at random."""

    def explore(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """Actions that lead where it has not been; what comes of them is given to `observe`."""
        ...
