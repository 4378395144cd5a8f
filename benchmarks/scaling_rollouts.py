"""Costs of collecting rollouts, and the pace on small clusters: a job in its own process.

The learner is pinned to one core, as is each node of its clusters; the first node shares the core
of the learner.
"""

import os
import pickle
import time
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks._ours import pinned_nodes
from benchmarks.machine import cpu_seconds
from rl_teacher.agents.collector import (
    ArrayPool,
    Collector,
    RolloutSettings,
    assemble_rollout,
)
from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.registry import make_agent
from rl_teacher.agents.shards import ActingPolicy, ShardPolicy
from rl_teacher.cluster.collector import ClusterCollector
from rl_teacher.cluster.connection import connected
from rl_teacher.cluster.worker import RolloutTask, RolloutWorker, ShardRollout
from rl_teacher.common import runtime
from rl_teacher.common.state_dict import rng_to_array
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.envs.interface import Shard
from rl_teacher.envs.registry import get_env_info, make_vector
from rl_teacher.nn.numpy_networks import BLOCK_ROWS
from tests.store.postgres import children_of

Metrics = dict[str, Any]

SENT_BYTES = 8_000_000
"""Size of the array that measures the time of a byte."""
IDLE_S = 2.0
MANY_ENVS = 8_192
"""Environments of a run of which a worker has few."""


def measure(config: TeachConfig, num_rounds: int) -> Metrics:
    """Measure costs and paces.

    Args:
        config: environment, number of environments, and steps of a rollout.
        num_rounds: rollouts and updates of each measurement.

    Returns:
        `costs`, named as in `RolloutCosts`, and `paces` in steps/s by number of nodes; 0 nodes:
        without a cluster.
    """
    runtime.prepare()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    venv = make_vector(config.env_id, config.ppo.num_envs, 1)
    collector = Collector(venv, seed=0, stagger=settings_of(config).stagger)
    agent = make_agent(config, venv)
    assert isinstance(agent, OnPolicyAgent)  # noqa: S101 - the default agent is one
    pace, update_s = paced(collector, agent, config, num_rounds)
    paces = {0: pace}
    policy = agent.acting_policy()
    costs = policy_costs(policy) | worker_costs(config, policy, num_rounds)
    costs["update_step_s"] = update_s
    # The rest of a step of the environments, without the policy.
    num_envs = config.ppo.num_envs
    costs["vector_step_s"] -= costs["policy_call_s"] + num_envs * (
        costs["policy_row_s"] + costs["noise_row_s"]
    )
    for num_nodes in range(1, min(len(cores), 2) + 1):
        with pinned_nodes(cores[:num_nodes]) as address, connected(address):
            costs["ray_cores"] = cores_of_ray() / num_nodes
            costs |= transfer_costs(policy, 5 * num_rounds)
            paces[num_nodes] = cluster_pace(config, num_rounds)
    # A byte is written to the object store of the other node, too.
    costs["receive_byte_s"] = costs.get("receive_byte_s", 0.0) - costs["write_byte_s"]
    return {"costs": costs, "paces": paces}


def settings_of(config: TeachConfig) -> RolloutSettings:
    """Return the settings of the actors of a run."""
    info = get_env_info(config.env_id)
    return RolloutSettings(info, 0, info.max_episode_steps or 0, False, 0, config.frames)


def seconds_of(
    work: Callable[[], Any], num_rounds: int, clock_s: Callable[[], float] = time.process_time
) -> float:
    """Return the median duration of a call, by default in processor time of this process.

    The first call is not counted.
    """
    times_s = []
    for _ in range(num_rounds + 1):
        began_s = clock_s()
        work()
        times_s.append(clock_s() - began_s)
    return median(times_s[1:])


def paced(
    collector: Any, agent: OnPolicyAgent, config: TeachConfig, num_rounds: int
) -> tuple[float, float]:
    """Collect and learn.

    Returns:
        Median steps/s, and the median processor time of an update per step.
    """
    num_steps = collector.num_envs * config.ppo.rollout_steps
    all_s, update_s = [], []
    for _ in range(num_rounds + 2):
        began_s = time.perf_counter()
        rollout = collector.collect(agent.act, config.ppo.rollout_steps)
        collected_s = time.process_time()
        agent.learn(rollout, rollout.rewards)
        all_s.append(time.perf_counter() - began_s)
        update_s.append(time.process_time() - collected_s)
    # The first rounds include compilation.
    return num_steps / median(all_s[2:]), median(update_s[2:]) / num_steps


# --- without a cluster ---


def policy_costs(policy: ActingPolicy) -> Metrics:
    """Measure a call of the policy, its rows, and the noise of environments of other workers."""

    def call_s(shard_envs: int, num_envs: int) -> float:
        rng = np.random.default_rng(0)
        acting = ShardPolicy(policy, rng, Shard(0, shard_envs, num_envs))
        observations = rng.standard_normal((shard_envs, policy.encoder.num_features))
        return seconds_of(lambda: acting(observations.astype(np.float32)), 500)

    few_s, block_s = call_s(BLOCK_ROWS // 4, BLOCK_ROWS // 4), call_s(BLOCK_ROWS, BLOCK_ROWS)
    noise_s = (call_s(BLOCK_ROWS, MANY_ENVS) - block_s) / (MANY_ENVS - BLOCK_ROWS)
    row_s = (block_s - few_s) / (BLOCK_ROWS - BLOCK_ROWS // 4) - noise_s
    return {
        "policy_call_s": block_s - BLOCK_ROWS * (row_s + noise_s),
        "policy_row_s": row_s,
        "noise_row_s": noise_s,
        "policy_bytes": len(pickle.dumps(policy)),
    }


def worker_costs(config: TeachConfig, policy: ActingPolicy, num_rounds: int) -> Metrics:
    """Measure the steps of rollout actors with all environments and with half of them, in turn.

    `vector_step_s` still includes the policy.
    """
    num_envs, num_steps = config.ppo.num_envs, config.ppo.rollout_steps
    middle = num_envs // 2
    bounds = [(0, num_envs), (0, middle), (middle, num_envs)]
    actors = [LocalActor(config, Shard(*each, num_envs)) for each in bounds]
    for _ in range(num_rounds + 1):
        for actor in actors:
            actor.collect(policy)
    all_s, *halves_s = (median(actor.seconds[1:]) for actor in actors)
    whole, *parts = (actor.result for actor in actors)
    env_step_s = (all_s - fmean(halves_s)) / middle / num_steps
    state_bytes = len(pickle.dumps(whole.state))
    rollout_bytes = len(pickle.dumps(whole)) - state_bytes
    return {
        "env_step_s": env_step_s,
        "vector_step_s": all_s / num_steps - num_envs * env_step_s,
        "step_bytes": rollout_bytes / num_steps / num_envs,
        "env_bytes": state_bytes / num_envs,
        "join_step_s": seconds_of(lambda: joined(parts), num_rounds) / num_steps / num_envs,
    }


class LocalActor:
    """A rollout actor in this process.

    Attributes:
        seconds: processor time of each rollout.
        result: the last rollout.
    """

    def __init__(self, config: TeachConfig, shard: Shard) -> None:
        self._worker = RolloutWorker(settings_of(config), 1)
        self._shard, self._num_steps = shard, config.ppo.rollout_steps
        self._generator_state = rng_to_array(np.random.default_rng(0))
        self.seconds: list[float] = []
        self.result: Any = None

    def collect(self, policy: ActingPolicy) -> None:
        """Take the steps of a rollout."""
        number = len(self.seconds)
        state = self.result.state if number else None
        task = RolloutTask(
            *(self._shard, self._num_steps, "", state, number, number + 1), self._generator_state
        )
        began_s = time.process_time()
        self.result = self._worker.collect(task, policy)
        self.seconds.append(time.process_time() - began_s)


def joined(parts: Sequence[ShardRollout]) -> None:
    """Join the parts of a rollout as the learner does."""
    columns = {
        name: np.concatenate([part.columns[name] for part in parts], axis=1)
        for name in parts[0].columns
    }
    columns["observations"] = np.concatenate(
        [np.asarray(part.observations) for part in parts], axis=1
    )
    finals, first_env = [], 0
    for part in parts:
        times, envs, observations = part.finals
        numbers = (envs + first_env).tolist()
        finals += zip(times.tolist(), numbers, observations, strict=True)
        first_env += part.columns["rewards"].shape[1]
    np.concatenate([part.policy_actions for part in parts], axis=1)
    assemble_rollout(columns, finals, ArrayPool())


# --- on a cluster ---


def cores_of_ray() -> float:
    """Return the cores that the processes of the nodes use while there is nothing to do."""
    time.sleep(IDLE_S)
    pids = descendants_of(os.getpid())
    before_s = sum(map(cpu_seconds, pids))
    time.sleep(IDLE_S)
    return (sum(map(cpu_seconds, pids)) - before_s) / IDLE_S


def descendants_of(pid: int) -> list[int]:
    """Return the ids of the processes that a process and its children have started."""
    children = children_of(pid)
    return children + [each for child in children for each in descendants_of(child)]


def cluster_pace(config: TeachConfig, num_rounds: int) -> float:
    """Return the steps/s of rollouts on the cluster that this process is connected to."""
    collector = ClusterCollector(settings_of(config), config.ppo.num_envs, None, lambda _: None)
    try:
        agent = make_agent(config, collector.venv)
        assert isinstance(agent, OnPolicyAgent)  # noqa: S101 - the default agent is one
        return paced(collector, agent, config, num_rounds)[0]
    finally:
        collector.close()


class Echo:
    """An actor that returns arrays."""

    def __init__(self) -> None:
        self._array = np.ones(SENT_BYTES, np.uint8)

    def reply(self, _: object, num_bytes: int) -> np.ndarray:
        """Return so many bytes."""
        return self._array[:num_bytes]


def transfer_costs(policy: ActingPolicy, num_rounds: int) -> Metrics:
    """Measure tasks and bytes on a cluster of one node; only bytes between its nodes on one of two.

    A byte that is sent to another node is read there from its object store.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    own = ray.get_runtime_context().get_node_id()
    node_ids = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    others = [each for each in node_ids if each != own]
    strategy = NodeAffinitySchedulingStrategy(others[0] if others else own, soft=False)
    actor: Any = ray.remote(Echo).options(num_cpus=0, scheduling_strategy=strategy).remote()
    array = np.ones(SENT_BYTES, np.uint8)

    def exchanged_s(sent: Any, num_bytes: int) -> float:
        def exchange() -> None:
            call = actor.reply.remote(ray.put(sent), num_bytes)
            ray.wait([call], timeout=10)
            ray.get(call)

        return wall_s(exchange)

    def wall_s(work: Callable[[], Any]) -> float:
        return seconds_of(work, num_rounds, time.perf_counter)

    put_array_s, put_s = (wall_s(lambda sent=sent: ray.put(sent)) for sent in (array, policy))
    task_s = wall_s(lambda: actor.reply.remote(0, 0))
    alone_s = exchanged_s(policy, 0)
    sending_s = exchanged_s(array, 0) - alone_s - (put_array_s - put_s)
    receiving_s = exchanged_s(policy, SENT_BYTES) - alone_s
    ray.kill(actor)
    if others:
        return {
            "send_byte_s": sending_s / SENT_BYTES,
            "receive_byte_s": receiving_s / SENT_BYTES,
        }
    return {
        "put_s": put_s,
        "task_s": task_s,
        "latency_s": alone_s - task_s - put_s,
        "write_byte_s": receiving_s / SENT_BYTES,
    }
