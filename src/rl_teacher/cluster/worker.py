"""The rollout actor: it steps a shard of a run's environments on its node."""

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import gymnasium
import mujoco
import numpy as np

from rl_teacher.agents.collector import Collector, RolloutSettings
from rl_teacher.agents.shards import ActingPolicy, ShardPolicy
from rl_teacher.cluster.frame_stacks import FrameStacks
from rl_teacher.common.runtime import keep_freed_memory
from rl_teacher.common.state_dict import StateDict, array_to_rng, rng_to_array
from rl_teacher.envs.interface import Shard
from rl_teacher.nn.encoders import image_layout_of


@dataclass(frozen=True)
class RolloutTask:
    """One shard's part of a rollout.

    Attributes:
        shard: the environments.
        num_steps: T.
        actions: how actions are chosen: by the policy, or by a method of `Collector`.
        state: state of the shard's collector before the rollout; None at the start of a run.
        version: number of that state. An actor that has it already does not load it.
        next_version: number of the state after the rollout.
        generator_state: state of the agent's generator; None without a policy.
        returns_features: whether the agent uses the image features in its update.
    """

    shard: Shard
    num_steps: int
    actions: str
    state: StateDict | None
    version: int
    next_version: int
    generator_state: np.ndarray | None = None
    returns_features: bool = False


@dataclass(frozen=True)
class ShardRollout:
    """Result of a task, sent back as one object.

    Attributes:
        columns: see `Collector.collect_columns`, without observations.
        observations: [T + 1, S, ...].
        finals: [E] time step, [E] environment, counted from the shard's first, and [E, ...] last
            observation of each finished episode.
        policy_actions: [T, S, ...] policy actions before scaling and clipping; empty without a
            policy.
        features: [T, S, F] image features; None if they are not needed.
        generator_state: state of the agent's generator after the rollout.
        state: state of the shard's collector after the rollout.
    """

    columns: dict[str, np.ndarray]
    observations: np.ndarray | FrameStacks
    finals: tuple[np.ndarray, np.ndarray, np.ndarray]
    policy_actions: np.ndarray
    features: np.ndarray | None
    generator_state: np.ndarray
    state: StateDict


def versions() -> dict[str, str]:
    """Return the versions on which the numbers of a rollout depend."""
    return {
        "rl-teacher": metadata.version("rl-teacher"),
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "Gymnasium": gymnasium.__version__,
        "MuJoCo": mujoco.__version__,
        "JAX": metadata.version("jaxlib"),
        "ALE": metadata.version("ale-py"),
    }


class RolloutWorker:
    """An actor without state of its own: every task comes with the state that it starts from.

    It keeps its environments between tasks, since creating them and replaying their episodes takes
    time.
    """

    def __init__(self, settings: RolloutSettings, num_threads: int) -> None:
        keep_freed_memory()
        self._settings = settings
        self._num_threads = num_threads
        self._shard: Shard | None = None
        self._collector: Any = None
        self._version = -1

    def versions(self) -> dict[str, str]:
        """Return the versions on this node; also a sign of life."""
        return versions()

    def process_id(self) -> int:
        """Return the id of the actor's process."""
        return os.getpid()

    def collect(self, task: RolloutTask, policy: ActingPolicy | None) -> ShardRollout:
        """Take T steps in the environments of a shard.

        Args:
            task: the task.
            policy: the agent's policy; None if `task.actions` names another one.
        """
        collector, shard_policy = self._collector_at(task), None
        rng = np.random.default_rng()
        if policy is not None and task.generator_state is not None:
            array_to_rng(rng, task.generator_state)
            shard_policy = ShardPolicy(policy, rng, task.shard)
        act = shard_policy or getattr(collector, task.actions)
        # Unknown until the rollout is complete.
        self._version = -1
        columns, finals = collector.collect_columns(act, task.num_steps)
        self._version = task.next_version
        observations, num_channels = columns.pop("observations"), self._frame_channels(collector)
        times, envs, last = zip(*finals, strict=True) if finals else ((), (), ())
        returned = shard_policy if task.returns_features else None
        return ShardRollout(
            columns,
            FrameStacks.of(observations, num_channels) if num_channels else observations,
            (np.array(times, int), np.array(envs, int), np.array(last)),
            np.array([] if shard_policy is None else shard_policy.actions),
            None if returned is None else np.stack(returned.features),
            rng_to_array(rng),
            collector.state(),
        )

    def _collector_at(self, task: RolloutTask) -> Collector:
        """Return a collector in the state that a task starts from."""
        if self._shard != task.shard:
            self._close()
            self._collector = self._settings.make_collector(task.shard, self._num_threads)
            self._shard = task.shard
        elif task.state is None:
            self._collector = self._settings.make_collector(task.shard, self._num_threads)
        if task.state is not None and self._version != task.version:
            self._collector.load_state(task.state)
        return self._collector

    def _frame_channels(self, collector: Collector) -> int:
        """Return the channels of a frame of stacked images; 0 if observations are not stacked."""
        layout = image_layout_of(collector.venv.single_observation_space)
        num_stacked = self._settings.frames.stacked
        return layout.num_channels // num_stacked if layout and num_stacked > 1 else 0

    def _close(self) -> None:
        if self._collector is not None:
            self._collector.venv.close()
            self._version = -1


def copied_state(rollout: ShardRollout) -> StateDict:
    """Return a copy of the state, which does not keep the whole rollout in the object store."""
    return {name: np.array(array) for name, array in rollout.state.items()}
