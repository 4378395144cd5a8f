"""Filling, relabelling and saving of a replay buffer of Stable-Baselines3."""

from collections.abc import Mapping
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
        actions = buffer.actions[part]
        actions = actions.reshape(*actions.shape[:2], *(action_space.shape or ()))
        if isinstance(action_space, gym.spaces.Box):
            low, high = action_space.low, action_space.high
            actions = (low + 0.5 * (actions + 1.0) * (high - low)).astype(np.float32)
        elif first_action:
            actions = actions + first_action
        buffer.rewards[part] = reward_fn(buffer.observations[part], actions)


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


def add_rollout(
    buffer: "ReplayBuffer", rollout: Rollout, rewards: np.ndarray, actions: np.ndarray
) -> None:
    """Add the steps of a rollout to a buffer.

    A buffer takes one step of every environment at a time. Where an environment only reset itself,
    its previous step is stored a second time, which teaches nothing new.

    Args:
        buffer: a buffer without dictionary observations.
        rollout: the rollout.
        rewards: [T, N] rewards instead of those of the environment.
        actions: [T, N, ...] as the buffer stores them.
    """
    shape = *rollout.ended.shape, *buffer.obs_shape
    columns = (
        *(rollout.observations.reshape(shape), rollout.next_observations.reshape(shape)),
        *(actions, rewards, rollout.ended, rollout.truncated & ~rollout.terminated),
    )
    for t, is_valid in enumerate(rollout.is_valid):
        step = {name: column[t] for name, column in zip(COLUMNS, columns, strict=True)}
        if not is_valid.all():
            if buffer.size() == 0:
                continue
            for name, given in step.items():
                before = getattr(buffer, name)[buffer.pos - 1].reshape(given.shape)
                step[name] = np.where(is_valid.reshape(-1, *[1] * (given.ndim - 1)), given, before)
        *arrays, timeouts = step.values()
        buffer.add(*arrays, [{"TimeLimit.truncated": bool(is_cut)} for is_cut in timeouts])  # pyright: ignore[reportCallIssue]
