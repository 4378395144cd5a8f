"""One reset of the agent during training.

What an agent learns from the first few labels it keeps, even after later labels have corrected the
predictor (Nikishin et al. 2022, "The primacy bias in deep reinforcement learning"). Therefore the
agent is reinitialised once, after a given number of labels.
"""

import logging
from collections.abc import Mapping

import numpy as np

from rl_teacher.agents.agent import Agent
from rl_teacher.common.state_dict import StateDict

logger = logging.getLogger(__name__)


class AgentReset:
    """Scheduled reinitialisation of an agent."""

    def __init__(self, due_labels: float) -> None:
        """Schedule the reset.

        Args:
            due_labels: number of labels after which the agent is reset; infinity: never.
        """
        self._due_labels = due_labels
        self._is_over = False

    def apply_if_due(self, agent: Agent, step: int, num_steps: int, num_labels: int) -> None:
        """Reinitialise the agent, in place, if enough labels have been given.

        Args:
            agent: the agent.
            step: environment step of the run.
            num_steps: environment steps of the whole run.
            num_labels: labels so far.
        """
        if self._is_over or num_labels < self._due_labels:
            return
        self._is_over = True
        if 2 * step > num_steps:
            # Too few steps are left to learn again what the agent has learned.
            logger.info("the agent is not reset, because half of the steps are over")
            return
        logger.info("the agent is reset at step %s", f"{step:,}")
        agent.reinitialise()

    def state(self) -> StateDict:
        """Return everything needed to continue exactly."""
        return {"is_over": np.array(self._is_over)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state."""
        self._is_over = bool(state["is_over"])
