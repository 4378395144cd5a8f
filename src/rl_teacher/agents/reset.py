"""The agent begins anew once, and the one that it was may come back.

What the first few labels mislead an agent to, it keeps, though the rest correct the predictor
(Nikishin et al., "The primacy bias in deep reinforcement learning", 2022). So it begins anew when
enough labels have come. Some that begin anew come to nothing, though; so the earlier agent is kept,
and when the new one has had as many steps as that one had, the newest predictor judges what both
did last, and the better one goes on.
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

SAMPLES = 2_048
"""Of the latest steps of an agent, by which it is judged."""
ONE_OF = 8
"""Steps, one of which is kept: neighbours are alike."""

logger = logging.getLogger(__name__)


@runtime_checkable
class SupportsReset(Protocol):
    """What an agent must be able to do for this; see `Agent`."""

    def reinitialise(self) -> None:
        """Forget what was learned."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Everything it is."""
        ...


@runtime_checkable
class SupportsRestore(Protocol):
    """An agent that can be what it was; one that remembers what it lived needs no way back."""

    def restore_checkpoint(self, state: Mapping[str, np.ndarray]) -> None:
        """Know what it knew, in the run as it is by now.

        Args:
            state: its own of an earlier step.
        """
        ...


class LatestSteps:
    """What an agent saw and did in its latest steps, some of them."""

    def __init__(self) -> None:
        self._steps: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=SAMPLES)

    def observe(self, rollout: Rollout) -> None:
        """Keep one of `ONE_OF` steps."""
        picked = np.unravel_index(
            np.flatnonzero(rollout.is_valid)[::ONE_OF], rollout.is_valid.shape
        )
        self._steps.extend(zip(rollout.observations[picked], rollout.actions[picked], strict=True))

    def mean_reward(self, reward_fn: RewardFunction) -> float:
        """What a step was worth, on average."""
        return float(reward_fn(*self._columns()).mean())

    def _columns(
        self,
    ) -> tuple[Shaped[np.ndarray, "step *observation"], Shaped[np.ndarray, "step *action"]]:
        observations, actions = zip(*self._steps, strict=True)
        return np.stack(observations), np.stack(actions)

    def state(self) -> StateDict:
        """Everything needed to go on exactly."""
        if not self._steps:
            return {}
        observations, actions = self._columns()
        return {"observations": observations, "actions": actions}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        self._steps.clear()
        if state:
            self._steps.extend(zip(state["observations"], state["actions"], strict=True))


class AgentReset:
    """When it is due, the agent begins anew; later the better of the two goes on."""

    def __init__(self, due_labels: float) -> None:
        """Wait for so many labels; infinity: for ever."""
        self._due_labels = due_labels
        self._latest = LatestSteps()
        self._earlier = LatestSteps()
        self._earlier_agent: StateDict = {}
        self._left_at: int | None = None
        self._is_over = math.isinf(due_labels)

    def observe(self, rollout: Rollout) -> None:
        """Watch the agent, as long as it may be judged."""
        if not self._is_over:
            self._latest.observe(rollout)

    def apply_if_due(
        self, agent: SupportsReset, step: int, num_labels: int, reward_fn: RewardFunction | None
    ) -> None:
        """Let the agent begin anew, or be again what it was, or leave it as it is.

        Args:
            agent: which is changed in its place.
            step: of the run.
            num_labels: that have come.
            reward_fn: the newest predictor.
        """
        if self._is_over or reward_fn is None:
            return
        if self._left_at is None:
            if num_labels >= self._due_labels:
                self._leave(agent, step)
        elif step >= 2 * self._left_at:
            earlier, latest = (
                each.mean_reward(reward_fn) for each in (self._earlier, self._latest)
            )
            if isinstance(agent, SupportsRestore) and earlier > latest:
                logger.info("the agent that began anew was worse, and is again what it was")
                agent.restore_checkpoint(self._earlier_agent)
            self._end()

    def _leave(self, agent: SupportsReset, step: int) -> None:
        logger.info("the agent begins anew at step %s", f"{step:,}")
        self._left_at = step
        if isinstance(agent, SupportsRestore):
            self._earlier_agent = {name: np.copy(each) for name, each in agent.state().items()}
            self._earlier, self._latest = self._latest, LatestSteps()
        else:
            self._end()
        agent.reinitialise()

    def _end(self) -> None:
        self._is_over = True
        self._earlier_agent = {}
        self._earlier, self._latest = LatestSteps(), LatestSteps()

    def state(self) -> StateDict:
        """Everything needed to go on exactly."""
        left_at = -1 if self._left_at is None else self._left_at
        return nest(
            {
                "self": {"left_at": np.array(left_at), "is_over": np.array(self._is_over)},
                "agent": self._earlier_agent,
                "earlier": self._earlier.state(),
                "latest": self._latest.state(),
            }
        )

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        left_at = int(state["self/left_at"])
        self._left_at = None if left_at < 0 else left_at
        self._is_over = bool(state["self/is_over"])
        self._earlier_agent = part_of(state, "agent")
        self._earlier.load_state(part_of(state, "earlier"))
        self._latest.load_state(part_of(state, "latest"))
