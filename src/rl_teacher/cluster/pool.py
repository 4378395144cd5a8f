"""The rollout actors of a run: they follow the nodes of the cluster.

A node that joins gets actors, which are used once they answer; the actors of a node that dies are
forgotten. An actor whose process dies is restarted by Ray.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rl_teacher.agents.collector import RolloutInterrupted, RolloutSettings
from rl_teacher.agents.numpy_policy import NumpyPolicy
from rl_teacher.cluster.connection import import_ray
from rl_teacher.cluster.worker import RolloutTask, RolloutWorker, ShardRollout
from rl_teacher.common.errors import ClusterUnavailable
from rl_teacher.common.runtime import XLA_FLAGS
from rl_teacher.common.state_dict import StateDict

POLL_S = 0.1
"""Time between two looks for a stop request."""
START_TIMEOUT_S = 120.0
"""Time in which the first actor must answer."""
OTHERS_TIMEOUT_S = 10.0
"""Time in which the other ones must answer; later ones are used from then on."""

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


class ActorDied(Exception):
    """An actor ended during a rollout, which has to be repeated."""


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
        self._wait_for_start()

    @property
    def ready(self) -> list[Worker]:
        """The actors that can be given tasks, in an order that does not change."""
        workers = [self._workers[key] for key in sorted(self._workers)]
        return [worker for worker in workers if worker.answer is None and not worker.fault]

    def refresh(self, should_stop: Callable[[], bool] | None = None) -> None:
        """Follow the nodes, see `_follow_nodes`, and wait until an actor is ready.

        Raises:
            RolloutInterrupted: `should_stop` returned True.
        """
        self._follow_nodes()
        while not self.ready:
            if should_stop is not None and should_stop():
                raise RolloutInterrupted
            self._on_wait("waiting for a node of the cluster")
            time.sleep(POLL_S)
            self._follow_nodes()

    def _follow_nodes(self) -> None:
        """Start actors on new nodes, forget those of dead ones, and read their signs of life."""
        wanted = self._wanted()
        for key in self._workers.keys() - wanted.keys():
            del self._workers[key]
        for key in wanted.keys() - self._workers.keys():
            self._workers[key] = self._start(key[0], wanted[key])
        for worker in self._workers.values():
            self._read_answer(worker)

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
        return Worker(actor, num_cpus, actor.ping.remote())

    def _read_answer(self, worker: Worker) -> None:
        """Make an actor ready if it has answered."""
        if worker.answer is None or worker.fault:
            return
        answered, _ = self._ray.wait([worker.answer], timeout=0)
        if not answered:
            return
        try:
            self._ray.get(worker.answer)
            worker.answer = None
        except self._ray.exceptions.ActorUnavailableError:
            # It restarts.
            worker.answer = worker.actor.ping.remote()
        except self._ray.exceptions.RayError as error:
            worker.fault = " ".join(str(error).split())[-600:]
            logger.warning("A node of the cluster is not used: %s.", worker.fault)

    def _wait_for_start(self) -> None:
        began_s = time.monotonic()
        self._follow_nodes()
        while any(worker.answer and not worker.fault for worker in self._workers.values()):
            time_s = time.monotonic() - began_s
            if time_s > START_TIMEOUT_S or (self.ready and time_s > OTHERS_TIMEOUT_S):
                break
            time.sleep(POLL_S / 2)
            self._follow_nodes()
        if not self.ready:
            faults = [worker.fault for worker in self._workers.values() if worker.fault]
            reason = faults[0] if faults else "no node has enough free CPUs (see ray status)"
            raise ClusterUnavailable(
                f"No node of the cluster can be used: {reason}. Add nodes, end other jobs, or use "
                "fewer CPUs of each node with -w."
            )

    # --- tasks ---

    def run(
        self,
        tasks: Sequence[RolloutTask],
        policy: NumpyPolicy | None,
        state: StateDict | None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[ShardRollout]:
        """Execute tasks.

        Args:
            tasks: one for each actor in `ready`, or fewer.
            policy: the agent's policy, which is sent to each node once.
            state: state of all environments before the rollout; None at the start of a run.
            should_stop: called repeatedly; True discards the results.

        Returns:
            The results in the order of the tasks.

        Raises:
            RolloutInterrupted: `should_stop` returned True.
            ActorDied: the process or the node of an actor ended.
            Exception: a task raised it.
        """
        ray = self._ray
        policy_ref = None if policy is None else ray.put(policy)
        # In a list, a reference is not followed before an actor asks for its value.
        state_refs = [] if state is None else [ray.put(state)]
        workers = self.ready[: len(tasks)]
        calls = [
            worker.actor.collect.remote(task, policy_ref, state_refs)
            for worker, task in zip(workers, tasks, strict=True)
        ]
        pending = calls
        while pending:
            if should_stop is not None and should_stop():
                raise RolloutInterrupted
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=POLL_S)
        results = []
        for worker, call in zip(workers, calls, strict=True):
            try:
                results.append(ray.get(call))
            except ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from error
            except ray.exceptions.RayError as error:
                worker.answer = worker.actor.ping.remote()
                raise ActorDied(" ".join(str(error).split())[:400]) from error
        return results

    def close(self) -> None:
        """End the actors."""
        for worker in self._workers.values():
            self._ray.kill(worker.actor)
        self._workers = {}
