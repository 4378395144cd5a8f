"""The rollout actors of a run: they follow the nodes of the cluster.

A node that joins gets actors, which are used once they answer; the actors of a node that dies are
forgotten. An actor whose process dies is restarted by Ray.
"""

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rl_teacher.agents.collector import RolloutInterrupted, RolloutSettings
from rl_teacher.agents.shards import ActingPolicy
from rl_teacher.cluster.connection import ClusterLost, LivenessCheck, import_ray
from rl_teacher.cluster.worker import (
    RolloutTask,
    RolloutWorker,
    ShardRollout,
    versions,
)
from rl_teacher.common.errors import ClusterUnavailable
from rl_teacher.common.runtime import XLA_FLAGS

REFRESH_S = 1.0
"""Time between two looks at the nodes."""
POLL_S = 0.1
"""Time between two looks for a stop request."""
START_TIMEOUT_S = 120.0
"""Time in which the first actor must answer."""
OTHERS_TIMEOUT_S = 10.0
"""Time in which the other ones must answer after it; later ones are used from then on."""
LATE_FACTOR, MIN_LATE_S = 2.0, 1.0
"""A task is late when it takes this many times as long as the others, and this time more. It is
then given to another actor as well."""
MAX_ATTEMPTS = 5
"""Attempts at a task, each of which ended with the actor's death."""

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Worker:
    """An actor as the learner sees it.

    Attributes:
        actor: handle of the actor.
        num_cpus: CPUs that it occupies.
        answer: pending sign of life; None if it has answered, and is ready.
        fault: why it cannot be used; empty if it can.
    """

    actor: Any
    num_cpus: int
    answer: Any
    fault: str = ""

    @property
    def is_ready(self) -> bool:
        """True if it accepts tasks."""
        return self.answer is None and not self.fault


class WorkerPool:
    """The actors of one run."""

    def __init__(
        self,
        settings: RolloutSettings,
        num_threads: int | None,
        on_wait: Callable[[str], None],
    ) -> None:
        """Start an actor on each node and wait until one answers, and the others too if they can.

        Args:
            settings: what the actors collect.
            num_threads: CPUs of an actor; by default all of its node. Environments that do not
                step in threads have an actor for each CPU.
            on_wait: called with a description while no actor is ready.

        Raises:
            ClusterUnavailable: no actor could be started.
        """
        self._ray = import_ray()
        self._settings = settings
        self._num_threads = num_threads
        self._is_threaded = settings.env_info.backend in ("batch", "atari")
        self._on_wait = on_wait
        self._workers: dict[tuple[str, int], Worker] = {}
        self._liveness = LivenessCheck(self._ray)
        self._wait_for_start()

    @property
    def ready(self) -> list[Worker]:
        """The actors that can be given tasks, in an order that does not change."""
        return [self._workers[key] for key in sorted(self._workers) if self._workers[key].is_ready]

    def refresh(self) -> None:
        """Follow the nodes: start actors on new ones, forget those of dead ones.

        Raises:
            ClusterLost: the learner's node or the head node has ended.
        """
        self._refreshed_s = time.monotonic()
        self._liveness.check_own_node()
        if not self._liveness.is_head_alive():
            # Ray's calls would block.
            return
        wanted = self._wanted()
        for key in self._workers.keys() - wanted.keys():
            del self._workers[key]
        for key in wanted.keys() - self._workers.keys():
            self._workers[key] = self._start(key[0], wanted[key])
        for worker in self._workers.values():
            self._read_answer(worker)

    def refresh_if_due(self) -> None:
        """Follow the nodes, at most every `REFRESH_S` seconds."""
        if time.monotonic() - self._refreshed_s > REFRESH_S:
            self.refresh()

    def _wanted(self) -> dict[tuple[str, int], int]:
        """Return the CPUs of each wanted actor, by node and number on the node."""
        wanted = {}
        for node in self._ray.nodes():
            num_cpus = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
            if num_cpus and self._is_threaded:
                wanted[node["NodeID"], 0] = min(num_cpus, self._num_threads or num_cpus)
            else:
                wanted |= {(node["NodeID"], number): 1 for number in range(num_cpus)}
        return wanted

    def _start(self, node_id: str, num_cpus: int) -> Worker:
        from ray.util.scheduling_strategies import (  # noqa: PLC0415 - slow
            NodeAffinitySchedulingStrategy,
        )

        options = {
            "num_cpus": num_cpus,
            "max_restarts": -1,
            # A task starts from the state that the learner has, which repeats it elsewhere.
            "max_task_retries": 0,
            # SPREAD would also put one actor on each node, but does not guarantee it.
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
            # As in the learner: results depend on how a matrix product is divided.
            "runtime_env": {
                "env_vars": {
                    "OPENBLAS_NUM_THREADS": "1",
                    "XLA_FLAGS": os.environ.get("XLA_FLAGS", XLA_FLAGS),
                }
            },
        }
        actor = self._ray.remote(RolloutWorker).options(**options).remote(self._settings, num_cpus)
        return Worker(actor, num_cpus, actor.versions.remote())

    def _read_answer(self, worker: Worker) -> None:
        """Make an actor ready if it has answered."""
        if worker.answer is None or worker.fault:
            return
        answered, _ = self._ray.wait([worker.answer], timeout=0)
        if not answered:
            return
        try:
            found = self._ray.get(worker.answer)
        except self._ray.exceptions.ActorUnavailableError:
            # It restarts.
            worker.answer = worker.actor.versions.remote()
            return
        except self._ray.exceptions.RayError as error:
            worker.fault = " ".join(str(error).split())[-600:]
            logger.warning("An actor could not be started: %s", worker.fault)
            return
        worker.answer = None
        own = versions()
        if found != own:
            different = [f"{name} {found[name]}" for name in own if found[name] != own[name]]
            needed = [f"{name} {own[name]}" for name in own if found[name] != own[name]]
            worker.fault = (
                f"a node has {', '.join(different)}, and the learner {', '.join(needed)}. Install "
                "the same versions on all nodes"
            )
            logger.warning("A node is not used: %s.", worker.fault)

    def _wait_for_start(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        self.refresh()
        while any(each.answer is not None and not each.fault for each in self._workers.values()):
            if self.ready:
                deadline_s = min(deadline_s, time.monotonic() + OTHERS_TIMEOUT_S)
            if time.monotonic() > deadline_s:
                break
            time.sleep(POLL_S / 2)
            self.refresh()
        if self.ready:
            return
        faults = [each.fault for each in self._workers.values() if each.fault]
        if faults:
            raise ClusterUnavailable(f"No node of the cluster can be used: {faults[0]}.")
        reason = "its nodes have no CPUs (ray start --num-cpus)"
        if self._workers:
            reason = (
                f"no node had enough free CPUs for {START_TIMEOUT_S:.0f} s: other jobs use them "
                "(ray status)"
            )
        raise ClusterUnavailable(
            f"The cluster cannot be used: {reason}. Add nodes, end other jobs, or use fewer CPUs "
            "of each node with -w."
        )

    # --- tasks ---

    def run(
        self,
        tasks: Sequence[RolloutTask],
        policy: ActingPolicy | None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[ShardRollout]:
        """Execute tasks; those of actors that die or are late are repeated by others.

        Args:
            tasks: one for each actor in `ready`, or fewer.
            policy: the agent's policy, which is sent to each node once.
            should_stop: called repeatedly; True discards the results.

        Returns:
            The results in the order of the tasks.

        Raises:
            RolloutInterrupted: `should_stop` returned True.
            ClusterLost: the learner's node or the head node has ended.
            ClusterUnavailable: a task ends all actors that try it.
            Exception: a task raised it.
        """
        ray = self._ray
        self._liveness.check_own_node()
        shared = None if policy is None else ray.put(policy)
        results: dict[int, ShardRollout] = {}
        pending: dict[Any, tuple[int, Worker]] = {}
        waiting, attempts = list(range(len(tasks))), [0] * len(tasks)
        began_s = time.monotonic()
        late_s = math.inf
        while len(results) < len(tasks):
            if should_stop is not None and should_stop():
                raise RolloutInterrupted
            busy = [worker for _, worker in pending.values()]
            idle = [worker for worker in self.ready if worker not in busy]
            if time.monotonic() - began_s > late_s:
                # Their actors may hang, or be on a node whose death is not noticed yet.
                waiting += [number for number, _ in pending.values()]
                late_s = math.inf
            for worker in idle[: len(waiting)]:
                number = waiting.pop(0)
                call = worker.actor.collect.remote(tasks[number], shared)
                pending[call] = number, worker
            if pending:
                done, _ = ray.wait(list(pending), timeout=POLL_S)
            else:
                self._on_wait("waiting for a node of the cluster")
                time.sleep(POLL_S)
                done = []
            self._liveness.check_own_node()
            for call in done:
                number, worker = pending.pop(call)
                try:
                    # The numbers of another attempt are the same.
                    results[number] = ray.get(call)
                except ray.exceptions.RayTaskError as error:
                    raise (error.cause or error) from error
                except ray.exceptions.RayError as error:
                    attempts[number] += 1
                    self._check_attempts(attempts[number], error)
                    worker.answer = worker.actor.versions.remote()
                    waiting.append(number)
            if done and results:
                late_s = LATE_FACTOR * (time.monotonic() - began_s) + MIN_LATE_S
            waiting = [number for number in waiting if number not in results]
            if waiting and not pending:
                self.refresh()
            self.refresh_if_due()
        for _, worker in pending.values():
            # Used again once its late task has ended.
            worker.answer = worker.actor.versions.remote()
        return [results[number] for number in range(len(tasks))]

    def close(self) -> None:
        """End the actors."""
        with contextlib.suppress(ClusterLost):
            self._liveness.check_own_node()
            for worker in self._workers.values():
                self._ray.kill(worker.actor)
        self._workers = {}

    def _check_attempts(self, num_attempts: int, error: Exception) -> None:
        if num_attempts >= MAX_ATTEMPTS:
            raise ClusterUnavailable(
                f"A rollout ended {num_attempts} actors that tried it, the last one with: "
                f"{' '.join(str(error).split())[:400]}. The last checkpoint was kept. Give the "
                "nodes more memory, or use fewer environments; then repeat the command."
            ) from error
