"""A replay buffer of Stable-Baselines3: what is in it, and what that is worth by now."""

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
ROWS_AT_ONCE = 65_536
"""Steps that are given to a predictor at once, so that a large buffer needs no larger memory."""


def relabel(
    buffer: "ReplayBuffer",
    action_space: gym.Space,
    reward_fn: RewardFunction,
    first_action: int = 0,
) -> None:
    """Say anew what every step in a buffer is worth.

    Source: PEBBLE (Lee et al. 2021), section 4.2.

    Args:
        buffer: of plain observations.
        action_space: of the environment; Box actions are kept scaled to -1..1.
        reward_fn: [t, N, ...] observations and actions of the environment -> [t, N].
        first_action: the environment's number of what is kept as discrete action 0.
    """
    rows = max(ROWS_AT_ONCE // buffer.n_envs, 1)
    for begin in range(0, buffer.size(), rows):
        part = slice(begin, min(begin + rows, buffer.size()))
        actions = actions_as_acted(buffer.actions[part], action_space)
        if first_action:
            actions = actions + first_action
        buffer.rewards[part] = reward_fn(buffer.observations[part], actions)


def actions_as_acted(actions: np.ndarray, space: gym.Space) -> np.ndarray:
    """[t, N, ...] actions as the environment was given them, from how a buffer keeps them."""
    shaped = actions.reshape(*actions.shape[:2], *(space.shape or ()))
    if isinstance(space, gym.spaces.Box):
        return (space.low + 0.5 * (shaped + 1.0) * (space.high - space.low)).astype(np.float32)
    return shaped


def buffer_state(buffer: "ReplayBuffer") -> StateDict:
    """What was lived, as arrays."""
    lived = {name: getattr(buffer, name)[: buffer.size()].copy() for name in COLUMNS}
    return {**lived, "place": np.asarray([buffer.pos, buffer.full])}


def load_buffer(buffer: "ReplayBuffer", state: Mapping[str, np.ndarray]) -> None:
    """Put back what was lived."""
    for name in COLUMNS:
        column: Any = getattr(buffer, name)
        column[: len(state[name])] = state[name]
    place, is_full = state["place"]
    buffer.pos, buffer.full = int(place), bool(is_full)


@dataclass(frozen=True)
class Rows:
    """Steps as a buffer takes them in: one of every environment at a time.

    Attributes:
        observations: [T, N, ...]
        next_observations: [T, N, ...] before any reset.
        actions: [T, N, ...] as the buffer keeps them.
        rewards: [T, N]
        dones: [T, N] the episode ended, for whatever reason.
        timeouts: [T, N] a time limit ended it.
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
    def of(rollout: Rollout, rewards: np.ndarray, actions: np.ndarray) -> "Rows":
        """The steps of a rollout.

        Args:
            rollout: as it was lived.
            rewards: [T, N] as told.
            actions: [T, N, ...] as the buffer keeps them.
        """
        return Rows(
            observations=rollout.observations,
            next_observations=rollout.next_observations,
            actions=actions,
            rewards=rewards,
            dones=rollout.ended,
            timeouts=rollout.truncated & ~rollout.terminated,
            is_valid=rollout.is_valid,
        )

    def add_to(self, buffer: "ReplayBuffer") -> None:
        """Have a buffer remember them.

        Note: a buffer takes one step of every environment. Where an environment only reset itself,
        its step before, which the buffer has, stands in: nothing new is learned from that.
        """
        for t, is_valid in enumerate(self.is_valid):
            if not is_valid.all() and buffer.size() == 0:
                continue
            values = [self._stood_in(buffer, name, t) for name in COLUMNS]
            seen, following, actions, rewards, dones, timeouts = values
            infos = [{"TimeLimit.truncated": bool(is_timeout)} for is_timeout in timeouts]
            buffer.add(seen, following, actions, rewards, dones, infos)

    def _stood_in(self, buffer: "ReplayBuffer", name: str, t: int) -> np.ndarray:
        """[N, ...] one column of step t."""
        lived = getattr(self, name)[t]
        if self.is_valid[t].all():
            return lived
        before = getattr(buffer, name)[buffer.pos - 1].reshape(lived.shape)
        is_valid = self.is_valid[t].reshape(-1, *[1] * (lived.ndim - 1))
        return np.where(is_valid, lived, before)
