"""The rollout actor: it steps some of a run's environments on its node.

N: environments of the run, S: environments of the actor's shard.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_teacher.agents.actions import EnvArray, Masks
from rl_teacher.agents.collector import Collector, RolloutSettings
from rl_teacher.agents.numpy_policy import NumpyPolicy
from rl_teacher.cluster.connection import import_ray
from rl_teacher.common.runtime import keep_freed_memory
from rl_teacher.common.state_dict import StateDict, array_to_rng, rng_to_array
from rl_teacher.envs.interface import Shard


@dataclass(frozen=True)
class RolloutTask:
    """One shard's part of a rollout.

    Attributes:
        shard: the environments.
        num_steps: T.
        actions: method of `Collector` that chooses the actions if there is no policy.
        version: number of the state before the rollout. An actor that has it does not load it.
        generator_state: state of the agent's generator; None without a policy.
        returns_features: whether the agent uses the image features in its update.
    """

    shard: Shard
    num_steps: int
    actions: str
    version: int
    generator_state: np.ndarray | None = None
    returns_features: bool = False


@dataclass(frozen=True)
class ShardRollout:
    """Result of a task, sent back as one object.

    Attributes:
        columns: see `Collector.collect_columns`.
        finals: [E] time step, [E] environment, counted from the shard's first, and [E, ...] last
            observation of each finished episode.
        policy_actions: [T, S, ...] policy actions before scaling and clipping; empty without a
            policy.
        features: [T, S, F] image features; None if they are not needed.
        generator_state: state of the agent's generator after the rollout.
        state: state of the shard's collector after the rollout.
    """

    columns: dict[str, np.ndarray]
    finals: tuple[np.ndarray, np.ndarray, np.ndarray]
    policy_actions: np.ndarray
    features: np.ndarray | None
    generator_state: np.ndarray
    state: StateDict


class ShardPolicy:
    """The policy of an agent, acting in a shard of its environments.

    Each actor computes the policy and draws the random numbers of all environments, whose
    observations are zeros where they belong to others. The rounding of a matrix product depends on
    its number of rows, so the results are those of one process.

    Attributes:
        actions: [S, ...] policy actions of every step, before scaling and clipping.
        features: [S, F] features of every step.
    """

    def __init__(self, policy: NumpyPolicy, rng: np.random.Generator, shard: Shard) -> None:
        self._policy, self._rng, self._shard = policy, rng, shard
        self.actions: list[np.ndarray] = []
        self.features: list[np.ndarray] = []

    def __call__(self, observations: EnvArray, masks: Masks = None) -> EnvArray:
        """Sample environment actions; see `OnPolicyAgent.act`."""
        rows = self._shard.rows
        features = self._policy.encoder.features(self._among_all(observations))
        all_masks = None if masks is None else self._among_all(masks)
        actions = self._policy.policy_actions(features, self._rng, all_masks)[rows]
        self.features.append(features[rows])
        self.actions.append(actions)
        return self._policy.head.to_environment(actions)

    def _among_all(self, own: np.ndarray) -> np.ndarray:
        """Return [N, ...] the rows of the shard, and zeros for other environments."""
        rows = np.zeros((self._shard.num_envs, *own.shape[1:]), own.dtype)
        rows[self._shard.rows] = own
        return rows


class RolloutWorker:
    """An actor without state of its own: every task comes with the state that it starts from.

    It keeps its environments between tasks, since creating them and replaying their episodes takes
    time.
    """

    def __init__(self, settings: RolloutSettings, num_threads: int) -> None:
        keep_freed_memory()
        self._settings = settings
        self._num_threads = num_threads
        self._collector: Collector | None = None
        self._held: tuple[Shard, int] | None = None

    def ping(self) -> None:
        """Answer, as a sign of life."""

    def collect(
        self, task: RolloutTask, policy: NumpyPolicy | None, state: list[Any]
    ) -> ShardRollout:
        """Take T steps in the environments of a shard.

        Args:
            task: the task.
            policy: the agent's policy; None if `task.actions` names another one.
            state: reference to the state of all environments before the rollout; empty at the start
                of a run.
        """
        collector = self._collector_at(task, state)
        rng, shard_policy = np.random.default_rng(), None
        if policy is not None and task.generator_state is not None:
            array_to_rng(rng, task.generator_state)
            shard_policy = ShardPolicy(policy, rng, task.shard)
        act = shard_policy or getattr(collector, task.actions)
        # Unknown until the rollout is complete.
        self._held = None
        columns, finals = collector.collect_columns(act, task.num_steps)
        self._held = task.shard, task.version + 1
        times, envs, last = zip(*finals, strict=True) if finals else ((), (), ())
        return ShardRollout(
            columns,
            (np.array(times, int), np.array(envs, int), np.array(last)),
            np.array(shard_policy.actions if shard_policy else []),
            np.stack(shard_policy.features) if shard_policy and task.returns_features else None,
            rng_to_array(rng),
            collector.state(),
        )

    def _collector_at(self, task: RolloutTask, state: list[Any]) -> Collector:
        """Return a collector in the state that a task starts from."""
        if self._collector is not None and self._held == (task.shard, task.version):
            return self._collector
        if self._collector is not None:
            self._collector.close()
        self._collector = self._settings.make_collector(
            len(task.shard), self._num_threads, task.shard
        )
        if state:
            self._collector.load_state(import_ray().get(state[0]))
        return self._collector
