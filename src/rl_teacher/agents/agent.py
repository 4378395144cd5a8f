"""The interface between the training loop and an agent.

N: environments, A: discrete actions.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from rl_teacher.agents.actions import EnvArray, Masks
from rl_teacher.common.errors import BadConfig, Diverged
from rl_teacher.common.state_dict import StateDict
from rl_teacher.envs.rollout import Rollout

RewardFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Current rewards of steps: (observations [..., *O], actions [..., *A]) -> [...] float32."""

LEARNING_RATE_ARGUMENT = "learning_rate in --other.arguments"
"""The learning rate of agents of other libraries as a setting, for messages."""


@runtime_checkable
class Agent(Protocol):
    """A learner that acts in N environments and learns from the rewards it is given.

    It learns from the rewards passed to `learn`, never from those of the environment. Three methods
    are optional:

    * `explore(observations, masks)` returns actions of unsupervised exploration before the first
      labels; other agents act at random then. The rollout is passed to `observe`.
    * `extend(total_steps)` changes the number of environment steps of the whole run, on which an
      annealed learning rate depends.
    * `numpy_policy()` exports the policy as a `NumpyPolicy`.
    """

    rollout_steps: int
    """Steps of each environment between two calls of `learn`."""

    def act(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Return exploratory actions, and record them for `learn`.

        Args:
            observations: [N, ...]
            masks: [N, A] discrete actions that are allowed; None: all.
        """
        ...

    def predict(
        self, observations: EnvArray, masks: Masks = None, *, deterministic: bool = False
    ) -> EnvArray:
        """Return actions for evaluation, which `learn` does not use.

        Args:
            observations: [N, ...]
            masks: [N, A] discrete actions that are allowed; None: all.
            deterministic: take the most likely action instead of a sample.
        """
        ...

    def observe(self, rollout: Rollout) -> None:
        """Learn from a rollout of any policy without rewards, such as observation statistics."""
        ...

    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Update on the rollout collected with `act`.

        Args:
            rollout: T steps of N environments.
            rewards: [T, N] predicted rewards.

        Returns:
            Metrics by name.
        """
        ...

    def relabel_buffer(self, reward_fn: RewardFunction) -> None:
        """Recompute the rewards of stored transitions after a fit of the predictor."""
        ...

    def reinitialise(self) -> None:
        """Replace networks and optimisers by new ones; keep the observation statistics."""
        ...

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over networks and normalisers of another agent, but not its counters.

        Args:
            state: state of an agent of this kind, trained with any number of environments.

        Raises:
            BadConfig: its networks have other sizes.
        """
        ...

    def state(self) -> StateDict:
        """Return everything needed to continue exactly, as named arrays."""
        ...

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        ...


def check_shapes(
    own: Mapping[str, np.ndarray], saved: Mapping[str, np.ndarray], advice: str
) -> None:
    """Check that the arrays of a saved agent have the names and shapes that this agent needs.

    Raises:
        BadConfig: they do not; the text ends with the advice.
    """
    wrong = [
        f"{name} is {saved[name].shape if name in saved else 'missing'} instead of "
        f"{own[name].shape if name in own else 'absent'}"
        for name in sorted({*own, *saved})
        if name not in own or name not in saved or own[name].shape != saved[name].shape
    ]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise BadConfig(
            f"The saved agent does not fit this one: {'; '.join(wrong[:3])}{more}. {advice}"
        )


def agent_diverged(reason: str, setting: str) -> Diverged:
    """Return the error for an agent with numbers that are NaN or infinite.

    Args:
        reason: which numbers they are.
        setting: the setting to lower.
    """
    return Diverged(
        f"The agent diverged: {reason}. The last checkpoint was kept. Lower {setting}, and start "
        "again under another name (-n), or with --force-new."
    )


def learning_rate_setting(agent: Any) -> str:
    """Return the learning rate of a built-in agent as a command-line setting."""
    return f"--{type(agent).__name__.lower()}.learning-rate (now {agent.config.learning_rate:g})"


def check_weights(weights: Mapping[str, np.ndarray], setting: str) -> None:
    """Check that weights are finite, before they replace an earlier checkpoint.

    Raises:
        Diverged: they are not.
    """
    for name, array in weights.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise agent_diverged(f"its weights {name} are not finite", setting)
