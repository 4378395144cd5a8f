"""A collector whose environments are on the nodes of a cluster.

The environments are divided into consecutive shards, one for each rollout actor. The learner has
the state of all environments between two rollouts, so that it can repeat a rollout during which an
actor died, divide the environments otherwise when nodes join or leave, and write checkpoints that
do not differ from those of one process.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space

from rl_teacher.agents.actions import Masks
from rl_teacher.agents.collector import Act, RolloutSettings, assemble_rollout
from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.cluster.pool import ActorDied, WorkerPool
from rl_teacher.cluster.worker import RolloutTask, ShardRollout
from rl_teacher.common.array_pool import ArrayPool
from rl_teacher.common.errors import BadConfig, ClusterUnavailable
from rl_teacher.common.state_dict import StateDict, concatenated, part_of
from rl_teacher.envs.episode_replay import ReplayRecord, record_in
from rl_teacher.envs.interface import Shard
from rl_teacher.envs.rollout import Rollout

MAX_ATTEMPTS = 5
"""Attempts of a rollout during which actors die, after which it is given up."""


class RemoteEnvs(gym.vector.VectorEnv):
    """The spaces and the replay records of environments that other processes step."""

    def __init__(
        self, one: gym.vector.VectorEnv, num_envs: int, state: Callable[[], StateDict]
    ) -> None:
        """Describe N environments.

        Args:
            one: a vector of one environment of the same kind.
            num_envs: N.
            state: returns the state of the collector after the last rollout.
        """
        self.num_envs = num_envs
        self.single_observation_space = one.single_observation_space
        self.single_action_space = one.single_action_space
        self.observation_space = batch_space(one.single_observation_space, num_envs)
        self.action_space = batch_space(one.single_action_space, num_envs)
        self._one = one
        self._state = state

    def replay_record(self, episode: int) -> ReplayRecord:
        """Return the record of an episode; see `SupportsReplay`."""
        return record_in(part_of(self._state(), "envs"), episode)

    def close(self, **_: Any) -> None:
        """Free the environment that describes the others."""
        self._one.close()


class ClusterCollector:
    """Steps N environments on the nodes of a cluster and returns the rollouts of `Collector`.

    The numbers are those of one process with as many environments, for any number of nodes.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        num_envs: int,
        num_threads: int | None,
        on_wait: Callable[[str], None],
    ) -> None:
        """Start the actors and reset the environments.

        Args:
            settings: what is collected.
            num_envs: N.
            num_threads: CPUs of an actor; see `WorkerPool`.
            on_wait: called with a description while no actor is ready.

        Raises:
            ClusterUnavailable: no actor could be started.
        """
        self.num_envs = num_envs
        one = settings.make_vector(1, 1)
        self.venv: gym.vector.VectorEnv = RemoteEnvs(one, num_envs, self.state)
        self._workers = WorkerPool(settings, num_threads, on_wait)
        self._arrays = ArrayPool()
        self._shards: list[Shard] = []
        # State of all environments after the last rollout; None at the start of a run.
        self._state: StateDict | None = None
        self._version = 0
        self._collect("null_actions", 0)

    def random_actions(self, observations: np.ndarray, masks: Masks = None) -> np.ndarray:
        """Name the policy of `Collector.random_actions` for `collect`."""
        raise NotImplementedError

    def null_actions(self, observations: np.ndarray, masks: Masks = None) -> np.ndarray:
        """Name the policy of `Collector.null_actions` for `collect`."""
        raise NotImplementedError

    def collect(
        self, act: Act, num_steps: int, should_stop: Callable[[], bool] | None = None
    ) -> Rollout:
        """Take T steps in every environment.

        Args:
            act: `random_actions`, `null_actions`, or `act` or `predict` of an on-policy agent.
            num_steps: T.
            should_stop: called about ten times a second; True discards the rollout.

        Raises:
            RolloutInterrupted: `should_stop` returned True.
            ClusterUnavailable: the cluster is lost.
            BadObservation: an observation or reward is NaN or infinite.
            Diverged: the actions were, before that.
        """
        if act in (self.random_actions, self.null_actions):
            parts = self._collect(act.__name__, num_steps, should_stop=should_stop)
            return self._joined(parts)
        agent = acting_agent(act)
        learns = act == agent.act
        parts = self._collect("", num_steps, agent, should_stop, learns and agent.caches_features)
        features = [part.features for part in parts if part.features is not None]
        # All actors draw the same random numbers.
        agent.record(
            np.concatenate([part.policy_actions for part in parts], axis=1) if learns else None,
            np.concatenate(features, axis=1) if features else None,
            parts[0].generator_state,
        )
        return self._joined(parts)

    def _collect(
        self,
        actions: str,
        num_steps: int,
        agent: OnPolicyAgent | None = None,
        should_stop: Callable[[], bool] | None = None,
        returns_features: bool = False,
    ) -> list[ShardRollout]:
        """Let the actors step their shards, and keep the state after that."""
        reason: ActorDied | None = None
        for _ in range(MAX_ATTEMPTS):
            self._workers.refresh(should_stop)
            self._divide([worker.num_cpus for worker in self._workers.ready])
            version, self._version = self._version, self._version + 2
            tasks = [
                RolloutTask(
                    shard,
                    num_steps,
                    actions,
                    version,
                    None if agent is None else agent.generator_state,
                    returns_features,
                )
                for shard in self._shards
            ]
            policy = None if agent is None else agent.policy
            try:
                parts = self._workers.run(tasks, policy, self._state, should_stop)
            except ActorDied as error:
                reason = error
                continue
            # An actor that went on after an interruption has another version.
            self._version = version + 1
            self._state = concatenated([part.state for part in parts])
            self._state["self/rng"] = np.array(parts[0].state["self/rng"])
            return parts
        raise ClusterUnavailable(
            f"Actors ended during {MAX_ATTEMPTS} attempts of a rollout, the last one with: "
            f"{reason}. The last checkpoint was kept. Give the nodes more memory, or use fewer "
            "environments; then repeat the command."
        )

    def _divide(self, cpus: Sequence[int]) -> None:
        """Divide the environments among actors, in proportion to their CPUs."""
        shares = np.cumsum([0, *cpus])
        bounds = np.round(self.num_envs * shares / shares[-1]).astype(int).tolist()
        pairs = itertools.pairwise(bounds)
        self._shards = [Shard(start, stop, self.num_envs) for start, stop in pairs if start < stop]

    def _joined(self, parts: Sequence[ShardRollout]) -> Rollout:
        """Join the parts of a rollout, and check its numbers."""
        columns = {
            name: self._joined_arrays([part.columns[name] for part in parts])
            for name in parts[0].columns
        }
        finals = [
            (t, shard.start + env, observation)
            for shard, part in zip(self._shards, parts, strict=True)
            for t, env, observation in zip(*part.finals, strict=True)
        ]
        return assemble_rollout(columns, finals, self._arrays)

    def _joined_arrays(self, shards: Sequence[np.ndarray]) -> np.ndarray:
        time, _, *others = shards[0].shape
        joined = self._arrays.empty((time, self.num_envs, *others), shards[0].dtype)
        return np.concatenate(shards, axis=1, out=joined)

    def state(self) -> StateDict:
        """Return the state of a `Collector` of all environments, between two rollouts."""
        assert self._state is not None  # noqa: S101 - set by the constructor
        return dict(self._state)

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state of this class or of `Collector`."""
        self._version += 2
        self._state = dict(state)

    def close(self) -> None:
        """End the actors."""
        self._workers.close()
        self.venv.close()


def acting_agent(act: Act) -> OnPolicyAgent:
    """Return the agent whose method a policy is.

    Raises:
        BadConfig: its policy cannot act in other processes.
    """
    agent = getattr(act, "__self__", None)
    if not isinstance(agent, OnPolicyAgent):
        raise BadConfig(
            f"--cluster was given, and the agent is {type(agent).__name__}: only ppo, trpo, a2c "
            "and ga3c act on the nodes of a cluster. Choose one of them, or leave --cluster out."
        )
    return agent
