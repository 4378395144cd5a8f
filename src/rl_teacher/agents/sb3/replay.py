"""Filling, relabelling and saving of a replay buffer of Stable-Baselines3."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from rl_teacher.agents.agent import RewardFunction
from rl_teacher.common.state_dict import StateDict
from rl_teacher.envs.rollout import Rollout

if TYPE_CHECKING:
    from stable_baselines3.common.buffers import ReplayBuffer

COLUMNS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
CHUNK = 65_536
"""Steps that are relabelled at a time, which bounds the memory."""


def relabel(
    buffer: "ReplayBuffer",
    action_space: gym.Space,
    reward_fn: RewardFunction,
    first_action: int = 0,
) -> None:
    """Recompute all rewards in a buffer (PEBBLE, Lee et al. 2021, section 4.2).

    Args:
        buffer: a buffer without dictionary observations.
        action_space: action space of the environment; Box actions are stored scaled to [-1, 1].
        reward_fn: [t, N, ...] observations and environment actions -> [t, N].
        first_action: number of the environment's first discrete action, which is stored as 0.
    """
    rows = max(CHUNK // buffer.n_envs, 1)
    for begin in range(0, buffer.size(), rows):
        part = slice(begin, min(begin + rows, buffer.size()))
        actions = environment_actions(buffer.actions[part], action_space)
        if first_action:
            actions = actions + first_action
        buffer.rewards[part] = reward_fn(buffer.observations[part], actions)


def environment_actions(actions: np.ndarray, space: gym.Space) -> np.ndarray:
    """Convert stored actions to [t, N, ...] environment actions."""
    shaped = actions.reshape(*actions.shape[:2], *(space.shape or ()))
    if isinstance(space, gym.spaces.Box):
        return (space.low + 0.5 * (shaped + 1.0) * (space.high - space.low)).astype(np.float32)
    return shaped


def buffer_state(buffer: "ReplayBuffer") -> StateDict:
    """Return the stored steps as arrays."""
    columns = {name: getattr(buffer, name)[: buffer.size()].copy() for name in COLUMNS}
    return {**columns, "position": np.asarray([buffer.pos, buffer.full])}


def load_buffer(buffer: "ReplayBuffer", state: Mapping[str, np.ndarray]) -> None:
    """Restore the stored steps."""
    for name in COLUMNS:
        column: Any = getattr(buffer, name)
        column[: len(state[name])] = state[name]
    position, is_full = state["position"]
    buffer.pos, buffer.full = int(position), bool(is_full)


@dataclass(frozen=True)
class BufferRows:
    """Steps in the form in which a buffer stores them.

    Attributes:
        observations: [T, N, ...]
        next_observations: [T, N, ...] before any reset.
        actions: [T, N, ...] as the buffer stores them.
        rewards: [T, N]
        dones: [T, N] the episode terminated or was truncated.
        timeouts: [T, N] the episode was truncated.
        is_valid: [T, N] False where an environment only reset itself.
    """

    observations: np.ndarray
    next_observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    dones: np.ndarray
    timeouts: np.ndarray
    is_valid: np.ndarray

    @staticmethod
    def of(rollout: Rollout, rewards: np.ndarray, actions: np.ndarray) -> "BufferRows":
        """Convert a rollout.

        Args:
            rollout: the rollout.
            rewards: [T, N] rewards instead of those of the environment.
            actions: [T, N, ...] as the buffer stores them.
        """
        return BufferRows(
            observations=rollout.observations,
            next_observations=rollout.next_observations,
            actions=actions,
            rewards=rewards,
            dones=rollout.ended,
            timeouts=rollout.truncated & ~rollout.terminated,
            is_valid=rollout.is_valid,
        )

    def add_to(self, buffer: "ReplayBuffer") -> None:
        """Add the steps to a buffer.

        A buffer takes one step of every environment at a time. Where an environment only reset
        itself, its previous step is stored a second time, which teaches nothing new.
        """
        for t, is_valid in enumerate(self.is_valid):
            if not is_valid.all() and buffer.size() == 0:
                continue
            values = [self._column(buffer, name, t) for name in COLUMNS]
            observations, next_observations, actions, rewards, dones, timeouts = values
            infos = [{"TimeLimit.truncated": bool(is_timeout)} for is_timeout in timeouts]
            buffer.add(observations, next_observations, actions, rewards, dones, infos)

    def _column(self, buffer: "ReplayBuffer", name: str, t: int) -> np.ndarray:
        """Return [N, ...] one column of step t, with previous values at invalid steps."""
        column = getattr(self, name)[t]
        if self.is_valid[t].all():
            return column
        before = getattr(buffer, name)[buffer.pos - 1].reshape(column.shape)
        is_valid = self.is_valid[t].reshape(-1, *[1] * (column.ndim - 1))
        return np.where(is_valid, column, before)
