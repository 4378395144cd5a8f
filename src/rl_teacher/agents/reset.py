"""One reset of the agent during training, which is undone if the new agent is worse.

What an agent learns from the first few labels it keeps, even after later labels have corrected the
predictor (Nikishin et al. 2022, "The primacy bias in deep reinforcement learning"). Therefore the
agent is reinitialised once, after a given number of labels. Some reinitialised agents fail, so the
earlier agent is kept: after the same number of steps, the latest predictor compares the most recent
steps of both, and training continues with the better one.
"""

import logging
import math
from collections import deque
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Shaped

from rl_teacher.agents.agent import RewardFunction
from rl_teacher.common.state_dict import StateDict, nest, part_of
from rl_teacher.envs.rollout import Rollout

MAX_SAMPLES = 2_048
"""Number of recent steps by which an agent is judged."""
STRIDE = 8
"""One step of so many of each environment is kept, since neighbouring steps are alike."""

logger = logging.getLogger(__name__)


@runtime_checkable
class SupportsReset(Protocol):
    """An agent that can be reinitialised; see `Agent`."""

    def reinitialise(self) -> None:
        """Replace networks and optimisers by new ones."""
        ...

    def state(self) -> StateDict:
        """Return its complete state."""
        ...


@runtime_checkable
class SupportsRestore(Protocol):
    """An agent that can return to an earlier checkpoint, as all built-in on-policy agents can.

    Off-policy agents have no need to: they relearn from their replay buffer.
    """

    def restore_checkpoint(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore an earlier checkpoint, keeping random numbers and schedules.

        Args:
            state: state of this agent at an earlier step.
        """
        ...


class RecentSteps:
    """A sample of the latest observations and actions of an agent."""

    def __init__(self) -> None:
        self._steps: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=MAX_SAMPLES)

    def observe(self, rollout: Rollout) -> None:
        """Keep the valid ones of every `STRIDE`-th step of all environments."""
        is_valid = rollout.is_valid[::STRIDE]
        observations, actions = (
            column[::STRIDE][is_valid] for column in (rollout.observations, rollout.actions)
        )
        self._steps.extend(zip(observations, actions, strict=True))

    def mean_reward(self, reward_fn: RewardFunction) -> float:
        """Compute the mean reward of the kept steps."""
        return float(reward_fn(*self._columns()).mean())

    def _columns(
        self,
    ) -> tuple[Shaped[np.ndarray, "step *observation"], Shaped[np.ndarray, "step *action"]]:
        observations, actions = zip(*self._steps, strict=True)
        return np.stack(observations), np.stack(actions)

    def state(self) -> StateDict:
        """Return everything needed to continue exactly."""
        if not self._steps:
            return {}
        observations, actions = self._columns()
        return {"observations": observations, "actions": actions}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self._steps.clear()
        if state:
            self._steps.extend(zip(state["observations"], state["actions"], strict=True))


class AgentReset:
    """Scheduled reinitialisation that later keeps the better of old and new agent."""

    def __init__(self, due_labels: float) -> None:
        """Schedule the reset.

        Args:
            due_labels: number of labels after which the agent is reset; infinity: never.
        """
        self._due_labels = due_labels
        self._recent = RecentSteps()
        self._recent_before_reset = RecentSteps()
        self._state_before_reset: StateDict = {}
        self._reset_step: int | None = None
        self._is_finished = math.isinf(due_labels)

    def observe(self, rollout: Rollout) -> None:
        """Record steps of the agent until the comparison is over."""
        if not self._is_finished:
            self._recent.observe(rollout)

    def apply_if_due(
        self,
        agent: SupportsReset,
        step: int,
        num_steps: int,
        num_labels: int,
        reward_fn: RewardFunction | None,
    ) -> None:
        """Reinitialise the agent, restore its state before the reset, or leave it as it is.

        Args:
            agent: changed in place.
            step: environment step of the run.
            num_steps: environment steps of the whole run.
            num_labels: labels so far.
            reward_fn: the latest predictor; None before its first fit.
        """
        if self._is_finished or reward_fn is None:
            return
        if self._reset_step is None:
            if num_labels < self._due_labels:
                return
            if 2 * step > num_steps:
                # The run would end before the new agent has trained for as many steps.
                logger.info("the agent is not reset, because half of the steps are over")
                self._finish()
                return
            logger.info("the agent is reset at step %s", f"{step:,}")
            self._reset_step = step
            if isinstance(agent, SupportsRestore):
                self._state_before_reset = {name: np.copy(a) for name, a in agent.state().items()}
                self._recent_before_reset, self._recent = self._recent, RecentSteps()
            else:
                self._finish()
            agent.reinitialise()
        elif step >= 2 * self._reset_step:
            reward_before = self._recent_before_reset.mean_reward(reward_fn)
            reward_after = self._recent.mean_reward(reward_fn)
            if isinstance(agent, SupportsRestore) and reward_before > reward_after:
                logger.info("the agent before the reset was better and is restored")
                agent.restore_checkpoint(self._state_before_reset)
            self._finish()

    def _finish(self) -> None:
        self._is_finished = True
        self._state_before_reset = {}
        self._recent_before_reset, self._recent = RecentSteps(), RecentSteps()

    def state(self) -> StateDict:
        """Return everything needed to continue exactly."""
        reset_step = -1 if self._reset_step is None else self._reset_step
        return nest(
            {
                "self": {
                    "reset_step": np.array(reset_step),
                    "is_finished": np.array(self._is_finished),
                },
                "agent": self._state_before_reset,
                "before_reset": self._recent_before_reset.state(),
                "recent": self._recent.state(),
            }
        )

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        reset_step = int(state["self/reset_step"])
        self._reset_step = None if reset_step < 0 else reset_step
        self._is_finished = bool(state["self/is_finished"])
        self._state_before_reset = part_of(state, "agent")
        self._recent_before_reset.load_state(part_of(state, "before_reset"))
        self._recent.load_state(part_of(state, "recent"))
