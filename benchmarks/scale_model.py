"""Discrete-event models of rollouts on a cluster and of the labelling service.

A process of a simulation is a generator. It yields a number to wait for that many seconds, or a
function that is given the process and lets it continue later: `resource.acquire`, `batches.add`.
"""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean, median
from typing import TypeAlias

import numpy as np

from rl_teacher.nn.numpy_networks import BLOCK_ROWS
from rl_teacher.web.batching import MAX_BATCH, MAX_PAUSE_S, PAUSE_FACTOR

Wanted: TypeAlias = "float | Callable[[Process], None]"
Process = Generator[Wanted, None, None]

MAX_FURTHER = 2.0
"""Above 1, requests that are processed together delay each other."""
NUM_FITS = 15
"""Corrections of costs until simulated loads are the measured ones."""
LOOK_UP_PARTS, LABELLING_PARTS = 4, 8
"""Parts of a batch of look-ups, and of claims or answers.

A worker thread waits for the database after each part, and then for the interpreter lock. The
numbers are not measured; see docs/scaling.md.
"""


class Simulation:
    """Clock, pending events and random numbers."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.rng = random.Random(0)
        self._events: list[tuple[float, int, Process]] = []
        self._numbers = itertools.count()

    def start(self, process: Process, delay_s: float = 0.0) -> None:
        """Let a new or waiting process continue after a delay."""
        # Events of equal time happen in the order of their creation.
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._numbers), process))

    def run(self, until_s: float = math.inf) -> None:
        """Process all events up to a time."""
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, process = heapq.heappop(self._events)
            wanted = next(process, None)
            if callable(wanted):
                wanted(process)
            elif wanted is not None:
                self.start(process, wanted)

    def use(self, seconds: float, *resources: "Resource") -> Process:
        """Acquire resources in the given order, and hold all of them for some seconds."""
        if seconds <= 0:
            return
        for resource in resources:
            yield resource.acquire
        yield seconds
        for resource in resources:
            resource.release(seconds)


class Resource:
    """Units that processes hold one at a time, in order of arrival.

    Attributes:
        busy_s: total time for which units were held.
    """

    def __init__(self, simulation: Simulation, num_units: int) -> None:
        self.busy_s = 0.0
        self._simulation = simulation
        self._num_free = num_units
        self._waiting: deque[Process] = deque()

    def acquire(self, process: Process) -> None:
        """Give a unit to a process, now or when one is free."""
        if self._num_free:
            self._num_free -= 1
            self._simulation.start(process)
        else:
            self._waiting.append(process)

    def release(self, held_s: float) -> None:
        """Return a unit, or pass it on to the process that has waited longest."""
        self.busy_s += held_s
        if self._waiting:
            self._simulation.start(self._waiting.popleft())
        else:
            self._num_free += 1


# --- rollouts ---


@dataclass(frozen=True)
class RolloutCosts:
    """Measured costs of synchronous collection.

    Attributes:
        vector_step_s: of a step of all environments of a worker, besides what follows.
        env_step_s: of each of these environments, physics included, on one core.
        policy_call_s: of a call of the policy, besides what follows.
        policy_row_s: of a row of its batch.
        noise_row_s: of the action noise of an environment of the run.
        put_s: of writing the policy to the object store.
        task_s: of the learner for each task, besides its bytes.
        latency_s: of a task that does nothing, besides `task_s`.
        send_byte_s: of a byte sent to a worker on another node.
        receive_byte_s: of a byte received from a worker on another node.
        write_byte_s: of a byte that a worker writes to the object store.
        join_step_s: of the learner for joining a step.
        update_step_s: of the learner for updating on a step.
        policy_bytes: of the policy.
        step_bytes: of a step.
        env_bytes: of the state of an environment.
        ray_cores: cores that Ray's own processes use on a node.
    """

    vector_step_s: float
    env_step_s: float
    policy_call_s: float
    policy_row_s: float
    noise_row_s: float
    put_s: float
    task_s: float
    latency_s: float
    send_byte_s: float
    receive_byte_s: float
    write_byte_s: float
    join_step_s: float
    update_step_s: float
    policy_bytes: float
    step_bytes: float
    env_bytes: float
    ray_cores: float

    def rollout_s(self, num_envs: int, shard_envs: int, num_steps: int, num_cores: int) -> float:
        """Compute the time of a worker for a rollout of its environments.

        Args:
            num_envs: environments of the run.
            shard_envs: environments of the worker.
            num_steps: steps per environment.
            num_cores: cores of the worker.
        """
        rows = min(num_envs, math.ceil(shard_envs / BLOCK_ROWS) * BLOCK_ROWS)
        policy_s = self.policy_call_s + rows * self.policy_row_s + num_envs * self.noise_row_s
        physics_s = self.vector_step_s + shard_envs / num_cores * self.env_step_s
        return num_steps * (physics_s + policy_s)


@dataclass(frozen=True)
class Cluster:
    """Workers of a run, and its rollouts.

    Attributes:
        num_workers: nodes with a rollout actor.
        num_envs: environments of the run.
        num_steps: steps per environment and rollout.
        num_cores: cores per worker.
        num_local: workers on the learner's node.
        is_in_process: the learner steps the environments itself, without a cluster.
    """

    num_workers: int
    num_envs: int
    num_steps: int
    num_cores: int = 1
    num_local: int = 0
    is_in_process: bool = False


@dataclass
class RolloutResult:
    """Simulated pace of synchronous collection.

    Attributes:
        steps_per_second: environment steps.
        bytes_per_second: bytes through the learner's link.
        busy: share of the time for which the learner, its link and a worker are busy.
    """

    steps_per_second: float
    bytes_per_second: float
    busy: dict[str, float]


def simulate_rollouts(cluster: Cluster, costs: RolloutCosts, num_updates: int = 3) -> RolloutResult:
    """Simulate broadcasts, steps, returns and updates; the learner has one link."""
    simulation = Simulation()
    learner, link = Resource(simulation, 1), Resource(simulation, 1)
    bounds = np.linspace(0, cluster.num_envs, cluster.num_workers + 1).round().astype(int)
    shards = np.diff(bounds).tolist()
    all_steps = cluster.num_envs * cluster.num_steps
    sent_bytes = worker_s = 0.0
    pending = 0
    waiting: list[Process] = []

    # Ray's processes share the cores of a node.
    slowdown = 1.0
    if not cluster.is_in_process:
        slowdown = 1 / (1 - costs.ray_cores / cluster.num_cores)

    def compute(seconds: float) -> Process:
        yield from simulation.use(seconds * slowdown, learner)

    def work(shard_envs: int, is_local: bool) -> Process:
        nonlocal pending, sent_bytes, worker_s
        state_bytes = shard_envs * costs.env_bytes
        down_bytes = costs.policy_bytes + state_bytes
        up_bytes = shard_envs * cluster.num_steps * costs.step_bytes + state_bytes
        if not is_local:
            yield from simulation.use(down_bytes * costs.send_byte_s, link)
            sent_bytes += down_bytes + up_bytes
        rollout_s = slowdown * costs.rollout_s(
            cluster.num_envs, shard_envs, cluster.num_steps, cluster.num_cores
        )
        worker_s += rollout_s
        yield costs.latency_s + rollout_s + up_bytes * costs.write_byte_s
        if not is_local:
            yield from simulation.use(up_bytes * costs.receive_byte_s, link)
        pending -= 1
        if not pending and waiting:
            simulation.start(waiting.pop())

    def learn() -> Process:
        nonlocal pending
        for _ in range(num_updates):
            if cluster.is_in_process:
                yield from compute(
                    costs.rollout_s(
                        cluster.num_envs, cluster.num_envs, cluster.num_steps, cluster.num_cores
                    )
                )
            else:
                yield from compute(costs.put_s)
                pending = cluster.num_workers
                for number, shard_envs in enumerate(shards):
                    yield from compute(costs.task_s)
                    simulation.start(work(shard_envs, number < cluster.num_local))
                if pending:
                    yield waiting.append
                yield from compute(all_steps * costs.join_step_s)
            yield from compute(all_steps * costs.update_step_s)

    simulation.start(learn())
    simulation.run()
    took_s = simulation.now_s
    busy_s = {
        "learner": learner.busy_s,
        "link": link.busy_s,
        "workers": worker_s / cluster.num_workers,
    }
    return RolloutResult(
        steps_per_second=num_updates * all_steps / took_s,
        bytes_per_second=sent_bytes / took_s,
        busy={name: seconds / took_s for name, seconds in busy_s.items()},
    )


# --- service ---


@dataclass(frozen=True)
class RequestCosts:
    """Costs of a request for the next comparison, or of an answer.

    Attributes:
        work_s: processor time of the service in a worker thread.
        database_s: processor time of the database server.
        wait_s: time without processor time: round trips, and writing to the disk.
    """

    work_s: float
    database_s: float
    wait_s: float


@dataclass(frozen=True)
class ServiceCosts:
    """Measured costs of the service.

    Attributes:
        client_s: processor time of the client for a request.
        loop_s: processor time of the event loop for a request before and after which it is idle.
        look_up: the look-up of a credential that is alone in its batch; each request needs one.
        claim: a request for the next comparison that is alone in its batch.
        answer: an answer that is alone in its batch.
        further: cost of each further request of a batch, as a share of the first one's; in the
            event loop, of each one that follows another without idle time.
        idle_service: cores that the service uses without requests.
        idle_database: cores that the database uses without requests.
        variation: coefficient of variation of the costs of a batch.
        has_one_writer: batches of a process are processed one after the other, as with SQLite.
    """

    client_s: float
    loop_s: float
    look_up: RequestCosts
    claim: RequestCosts
    answer: RequestCosts
    further: float
    idle_service: float = 0.0
    idle_database: float = 0.0
    variation: float = 0.0
    has_one_writer: bool = False


@dataclass(frozen=True)
class Load:
    """Labelers, and what serves them.

    Attributes:
        num_labelers: labelers.
        period_s: time between two answers of a labeler; 0: each answers as fast as possible.
        seconds: simulated time.
        num_processes: processes of the service.
        num_cores: cores of the machine of the service.
        database_cores: cores of the machine of the database; None: the same machine.
        has_clients: the clients run on the machine of the service.
        is_random: exponentially distributed times between answers in place of equal ones.
    """

    num_labelers: int
    period_s: float
    seconds: float = 10.0
    num_processes: int = 1
    num_cores: int = 2
    database_cores: int | None = None
    has_clients: bool = True
    is_random: bool = False


@dataclass
class ServiceResult:
    """Simulated load on the service.

    Attributes:
        answers_per_second: acknowledged answers.
        service_cores: processor time of the service per second.
        database_cores: processor time of the database per second.
        labelling_cores: the parts of both that are due to claims and answers.
        next_s: seconds of each request for the next comparison.
        answer_s: seconds of each answer.
    """

    answers_per_second: float
    service_cores: float
    database_cores: float
    labelling_cores: list[float] = field(default_factory=lambda: [0.0, 0.0])
    next_s: list[float] = field(default_factory=list)
    answer_s: list[float] = field(default_factory=list)

    @property
    def mean_s(self) -> float:
        """Mean time of a request."""
        return fmean(self.next_s + self.answer_s)


class Batches:
    """Requests that are processed together: those that arrived during the previous batch.

    After a batch, the next one waits for more requests, in proportion to the batch's duration.
    """

    def __init__(
        self,
        simulation: Simulation,
        process_batch: Callable[[int, bool], Process],
        max_batch: int = MAX_BATCH,
        max_pause_s: float = MAX_PAUSE_S,
    ) -> None:
        """Create a batcher.

        Args:
            simulation: the simulation.
            process_batch: processes so many requests; the second argument tells whether nothing was
                waiting before them.
            max_batch: requests of a batch.
            max_pause_s: maximum time from the end of a batch to the next; 0: the next one follows
                at once.
        """
        self._simulation = simulation
        self._process_batch, self._max_batch = process_batch, max_batch
        self._max_pause_s, self._next_s = max_pause_s, 0.0
        self._pending: deque[Process] = deque()
        self._is_busy = False

    def add(self, process: Process) -> None:
        """Let a process continue when its request was processed."""
        self._pending.append(process)
        if not self._is_busy:
            self._is_busy = True
            self._simulation.start(self._run())

    def _run(self) -> Process:
        was_idle = True
        while self._pending:
            yield max(0.0, self._next_s - self._simulation.now_s)
            began_s = self._simulation.now_s
            size = min(self._max_batch, len(self._pending))
            batch = [self._pending.popleft() for _ in range(size)]
            yield from self._process_batch(size, was_idle)
            was_idle = False
            took_s = self._simulation.now_s - began_s
            pause_s = min(PAUSE_FACTOR * took_s, self._max_pause_s)
            self._next_s = self._simulation.now_s + pause_s
            for process in batch:
                self._simulation.start(process)
        self._is_busy = False


def start_times(load: Load, number: int) -> Iterable[float]:
    """Return the times before which a labeler, by number, does not request the next comparison."""
    if load.is_random:
        return random_times(load.period_s, load.seconds, number)
    if not load.period_s:
        return itertools.repeat(0.0)
    first_s = number * load.period_s / load.num_labelers
    return np.arange(first_s, load.seconds, load.period_s).tolist()


def random_times(period_s: float, seconds: float, number: int) -> list[float]:
    """Return times from 0 to `seconds` with exponentially distributed differences.

    Args:
        period_s: mean difference.
        seconds: end.
        number: of the labeler; measured and simulated ones with one number have the same times.
    """
    rng, now_s = random.Random(number), 0.0
    times_s = []
    while (now_s := now_s + rng.expovariate(1 / period_s)) < seconds:
        times_s.append(now_s)
    return times_s


class ServiceProcess:
    """A process of the service: an event loop, and threads that process batches of requests."""

    def __init__(
        self,
        simulation: Simulation,
        load: Load,
        costs: ServiceCosts,
        cores: Resource,
        database: Resource,
        result: ServiceResult,
    ) -> None:
        """Create a process.

        Args:
            simulation: the simulation.
            load: labelers.
            costs: of requests.
            cores: of the machine of the service.
            database: cores of the machine of the database.
            result: receives the times of requests and the processor time.
        """
        self._simulation, self._load, self._costs = simulation, load, costs
        self._cores, self._database, self._result = cores, database, result
        self._interpreter_lock = Resource(simulation, 1)
        self._writers = Resource(simulation, 1 if costs.has_one_writer else 2)  # claims and answers
        self._event_loop = Batches(simulation, self._run_event_loop, max_pause_s=0.0)
        self._look_ups = Batches(simulation, self._look_up)
        self._batches = {
            "next": Batches(simulation, partial(self._label, costs.claim)),
            "answer": Batches(simulation, partial(self._label, costs.answer)),
        }

    def request(self, kind: str) -> Process:
        """Serve a request for the next comparison, `next`, or an `answer`."""
        began_s = self._simulation.now_s
        if self._load.has_clients:
            yield from self._simulation.use(self._costs.client_s, self._cores)
        # The event loop parses the request, and later writes the response.
        yield self._event_loop.add
        yield self._look_ups.add
        yield self._batches[kind].add
        yield self._event_loop.add
        times_s = self._result.next_s if kind == "next" else self._result.answer_s
        times_s.append(self._simulation.now_s - began_s)

    def _run_event_loop(self, size: int, was_idle: bool) -> Process:
        first = 1.0 if was_idle else self._costs.further
        factor = self._varied() * (first + (size - 1) * self._costs.further)
        loop_s = factor * self._costs.loop_s / 2
        self._result.service_cores += loop_s / self._load.seconds
        yield from self._simulation.use(loop_s, self._interpreter_lock, self._cores)

    def _look_up(self, size: int, _was_idle: bool) -> Process:
        yield from self._process(self._costs.look_up, size, LOOK_UP_PARTS)

    def _label(self, costs: RequestCosts, size: int, _was_idle: bool) -> Process:
        yield self._writers.acquire
        began_s = self._simulation.now_s
        work_s, database_s = yield from self._process(costs, size, LABELLING_PARTS)
        self._result.labelling_cores[0] += work_s / self._load.seconds
        self._result.labelling_cores[1] += database_s / self._load.seconds
        self._writers.release(self._simulation.now_s - began_s)

    def _process(
        self, costs: RequestCosts, size: int, num_parts: int
    ) -> Generator[Wanted, None, tuple[float, float]]:
        """Process a batch; return the processor time of the service and of the database."""
        factor = self._varied() * (1 + (size - 1) * self._costs.further)
        work_s, database_s = factor * costs.work_s, factor * costs.database_s
        self._result.service_cores += work_s / self._load.seconds
        self._result.database_cores += database_s / self._load.seconds
        for _ in range(num_parts):
            yield from self._simulation.use(work_s / num_parts, self._interpreter_lock, self._cores)
            yield from self._simulation.use(database_s / num_parts, self._database)
            if costs.wait_s:
                # Round trips do not depend on the number of rows.
                yield costs.wait_s / num_parts
        return work_s, database_s

    def _varied(self) -> float:
        """Return a random factor with a mean of 1, from a gamma distribution."""
        variance = self._costs.variation**2
        return self._simulation.rng.gammavariate(1 / variance, variance) if variance else 1.0


def simulate_service(load: Load, costs: ServiceCosts) -> ServiceResult:
    """Simulate labelers who fetch a comparison and answer it, again and again."""
    simulation = Simulation()
    cores = Resource(simulation, load.num_cores)
    database = cores
    if load.database_cores is not None:
        database = Resource(simulation, load.database_cores)
    result = ServiceResult(0.0, costs.idle_service, costs.idle_database)
    processes = [
        ServiceProcess(simulation, load, costs, cores, database, result)
        for _ in range(load.num_processes)
    ]

    def label(number: int) -> Process:
        process = processes[number % load.num_processes]
        for start_s in start_times(load, number):
            yield max(start_s - simulation.now_s, 0.0)
            yield from process.request("next")
            yield from process.request("answer")
            result.answers_per_second += 1 / load.seconds

    for number in range(load.num_labelers):
        simulation.start(label(number))
    simulation.run(load.seconds)
    return result


def fitted_costs(
    costs: ServiceCosts, load: Load, measured: ServiceResult, full: Load, saturated: float
) -> ServiceCosts:
    """Correct costs until simulated loads have the measured processor time and latency.

    Args:
        costs: first estimate.
        load: labelers who pause.
        measured: their processor time and latencies.
        full: labelers who answer as fast as possible.
        saturated: their answers per second.

    Returns:
        Costs with the measured processor time per answer and median latencies of `load`, and the
        pace of `full`, as far as costs of at least 0 can have them.
    """
    for _ in range(NUM_FITS):
        costs = replace(costs, further=fitted_further(costs, full, saturated))
        simulated = simulate_service(load, costs)
        work, database = cost_factors(measured, simulated)
        costs = replace(
            costs,
            claim=corrected(costs.claim, work, database, measured.next_s, simulated.next_s),
            answer=corrected(costs.answer, work, database, measured.answer_s, simulated.answer_s),
        )
    return costs


def corrected(
    request: RequestCosts,
    work: float,
    database: float,
    measured_s: list[float],
    simulated_s: list[float],
) -> RequestCosts:
    """Multiply processor times by factors, and move the waiting time towards the measured median.

    Longer batches make requests wait longer too, so it moves by half of the difference.
    """
    wait_s = request.wait_s + (median(measured_s) - median(simulated_s)) / 2
    return RequestCosts(work * request.work_s, database * request.database_s, max(wait_s, 0.0))


def cost_factors(measured: ServiceResult, simulated: ServiceResult) -> tuple[float, float]:
    """Return the factors by which claims and answers cost more than simulated.

    Returns:
        Factors of the processor time of the service and of the database, at least 0.
    """

    def factor(measured_cores: float, simulated_cores: float, labelling_cores: float) -> float:
        other_s = (simulated_cores - labelling_cores) / simulated.answers_per_second
        wanted_s = measured_cores / measured.answers_per_second - other_s
        return max(wanted_s, 0.0) / max(labelling_cores / simulated.answers_per_second, 1e-9)

    of_service, of_database = simulated.labelling_cores
    return (
        factor(measured.service_cores, simulated.service_cores, of_service),
        factor(measured.database_cores, simulated.database_cores, of_database),
    )


def fitted_further(costs: ServiceCosts, load: Load, answers_per_second: float) -> float:
    """Find the cost of further requests of a batch for which a simulated pace is the measured one.

    Args:
        costs: all other costs.
        load: labelers who answer as fast as possible.
        answers_per_second: the measured pace.

    Returns:
        From 0 to `MAX_FURTHER`; the nearest bound if none gives this pace.
    """
    low, high = 0.0, MAX_FURTHER
    for _ in range(10):
        further = (low + high) / 2
        simulated = simulate_service(load, replace(costs, further=further)).answers_per_second
        low, high = (low, further) if simulated < answers_per_second else (further, high)
    return (low + high) / 2
