"""Costs of requests to the labelling service, and its load with simulated labelers.

Clients, service and database share the machine.
"""

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from sqlalchemy import text

from benchmarks.machine import cpu_seconds
from benchmarks.scale_model import (
    Load,
    RequestCosts,
    ServiceCosts,
    ServiceResult,
    fitted_costs,
    random_times,
)
from benchmarks.web_load import (
    Sent,
    add_labeler,
    create_comparisons,
    in_ms,
    read_response,
    run_connection,
    temporary_database,
)
from rl_teacher.store.database import sqlite_files
from rl_teacher.store.store import Store
from rl_teacher.web.address import Address
from tests.browser.processes import Service
from tests.store import postgres

CALIBRATION = 50
"""Labelers of the load from which costs are found."""
LOADS = (100, 150, 200)
"""Labelers of the loads that are compared with the simulation."""
PERIOD_S = 2.0
"""Mean time between two answers of a labeler."""
ROUNDS = 3
"""Times that every load is measured; the median latency of one varies by a quarter."""
SIMULATED_S = 5
"""Simulated time of labelers without pauses."""
NUM_PARALLEL = 64
"""Connections of the saturated service; with fewer, its pace depends on pauses more than costs."""
NUM_UNPAUSED = 8
"""Labelers without pauses whose load is compared with the simulation."""
PAUSE_S = 0.02
"""Time between two requests that are processed one at a time."""
VARIATION = 0.5
"""Coefficient of variation of the costs of a batch.

Chosen by comparison with measurements that are not recorded: with 0, the simulated 99th percentile
was too small by up to a half; with 0.8, it was too large by up to two fifths.
"""
TURNS = 20
"""Answers of a labeler at a time; the service limits the rate of a labeler."""

REQUESTS = ("look_up", "claim", "answer")
"""Parts of the costs that are `RequestCosts`."""

Metrics = dict[str, Any]


@dataclass(frozen=True)
class Used:
    """Resources used by a load.

    Attributes:
        seconds: wall time.
        client_s: processor time of the client.
        service_s: processor time of the service.
        database_s: processor time of the database server; 0 for SQLite.
    """

    seconds: float
    client_s: float
    service_s: float
    database_s: float


Outcome = tuple[Sent, Used]


class MeasuredService:
    """A service with labelers, and the processor time that it uses.

    Attributes:
        store: labels.
        tokens: credentials of the labelers.
        empty_bytes: size of the database without comparisons.
        asked_bytes: size of the database without answers.
    """

    def __init__(
        self, home: Path, server: postgres.Server | None, num_labelers: int, num_comparisons: int
    ) -> None:
        """Create comparisons and labelers, and start the service."""
        url = os.environ.get("RL_TEACHER_DATABASE_URL") or str(home / "labels.sqlite")
        self._server, self._file = server, home / "labels.sqlite"
        self.store = Store.open(url)
        self.empty_bytes = self.size_bytes()
        create_comparisons(self.store, num_comparisons)
        self.asked_bytes = self.size_bytes()
        self.tokens = [add_labeler(self.store, f"labeler {n}") for n in range(num_labelers)]
        self._service = Service(home)
        self._client = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def size_bytes(self) -> int:
        """Return the size of the database."""
        if self._server is None:
            return sum(path.stat().st_size for path in sqlite_files(self._file) if path.exists())
        return self.store.database.scalar(text("SELECT pg_database_size(current_database())"))

    def num_transactions(self) -> int:
        """Return the transactions of PostgreSQL so far; 0 for SQLite."""
        if self._server is None:
            return 0
        # The statistics of other connections are published after at most a second.
        time.sleep(1.5)
        count = text("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
        return self.store.database.scalar(count)

    def close(self) -> None:
        """Stop the service and the client."""
        self._client.shutdown()
        self._service.end()
        self.store.close()

    def run(self, drive: Callable[..., Any], *arguments: Any) -> Outcome:
        """Run clients in the process of the client.

        Args:
            drive: coroutine of a module: (address, tokens, *arguments) -> `Sent`.
            arguments: further arguments.
        """
        before = self._cpu_s()
        call = self._client.submit(driven, drive, self._service.address, self.tokens, *arguments)
        sent, seconds, client_s = call.result()
        after = self._cpu_s()
        service_s, database_s = (late - early for late, early in zip(after, before, strict=True))
        return sent, Used(seconds, client_s, service_s, database_s)

    def _cpu_s(self) -> tuple[float, float]:
        """Return the processor time of the service and of the database server so far."""
        pid = self._service.process.pid
        service_s = sum(map(cpu_seconds, [pid, *postgres.children_of(pid)]))
        if self._server is None:
            return service_s, 0.0
        pid = int((self._server.folder / "data" / "postmaster.pid").read_text().split()[0])
        database_s = 0.0
        for each in [pid, *postgres.children_of(pid)]:
            # A process of the server may end meanwhile.
            with suppress(OSError):
                database_s += cpu_seconds(each)
        return service_s, database_s


def driven(drive: Callable[..., Awaitable[Sent]], *arguments: Any) -> tuple[Sent, float, float]:
    """Run a coroutine; return its result, its wall time and its processor time."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    sent = asyncio.run(drive(*arguments))  # pyright: ignore[reportArgumentType]
    return sent, time.perf_counter() - began_s, time.process_time() - began_cpu_s


async def saturate(
    address: Address, tokens: Sequence[str], num_parallel: int, num_labelers: int
) -> Sent:
    """Let a few labelers at a time answer as fast as they can."""
    sent, waiting = Sent(), list(tokens[:num_labelers])

    async def work() -> None:
        while waiting:
            await run_connection(address, waiting.pop(), sent, [0.0] * TURNS)

    async with asyncio.TaskGroup() as group:
        for _ in range(num_parallel):
            group.create_task(work())
    return sent


async def ask_alone(address: Address, tokens: Sequence[str], path: str, num_labelers: int) -> Sent:
    """Send requests so slowly that each is alone in its batch."""
    sent = Sent()
    for token in tokens[:num_labelers]:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        head = f"Host: {address.host}\r\nAuthorization: Bearer {token}\r\n"
        for _ in range(TURNS):
            await asyncio.sleep(PAUSE_S)
            began_s = time.perf_counter()
            writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
            await read_response(reader)
            sent.next_s.append(time.perf_counter() - began_s)
        writer.close()
    return sent


async def answer_randomly(
    address: Address, tokens: Sequence[str], num_labelers: int, period_s: float, seconds: int
) -> Sent:
    """Let labelers answer at random times, on average once per period."""
    sent, start_s = Sent(), time.perf_counter() + 0.1
    async with asyncio.TaskGroup() as group:
        for number, token in enumerate(tokens[:num_labelers]):
            starts_s = [start_s + each for each in random_times(period_s, seconds, number)]
            group.create_task(run_connection(address, token, sent, starts_s))
    return sent


async def wait(_address: Address, _tokens: Sequence[str], seconds: float) -> Sent:
    """Send nothing."""
    await asyncio.sleep(seconds)
    return Sent()


def measure(database: str, seconds: int, num_labelers: int) -> Metrics:
    """Measure the costs of requests, and the load of labelers.

    Args:
        database: `sqlite` or `postgresql`.
        seconds: time of each load.
        num_labelers: labelers of the measurements without pauses.

    Returns:
        `costs`, named as in `ServiceCosts`; `saturated` answers per second; `transactions` of an
        answer with its claim in PostgreSQL; `loads`; and the bytes of comparisons and labels.
    """
    num_comparisons = (max(LOADS) + 3 * ROUNDS * num_labelers) * TURNS
    num_comparisons += ROUNDS * seconds * sum((CALIBRATION, *LOADS))
    with (
        temporary_database(database) as server,
        tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as home,
    ):
        service = MeasuredService(
            Path(home), server, max(*LOADS, 2 * num_labelers), num_comparisons
        )
        try:
            metrics = measured(service, seconds, num_labelers)
            answered_bytes = service.size_bytes()
        finally:
            service.close()
    num_answers = metrics.pop("num_answers")
    metrics["comparison_bytes"] = (service.asked_bytes - service.empty_bytes) / num_comparisons
    metrics["label_bytes"] = (answered_bytes - service.asked_bytes) / num_answers
    return metrics


def measured(service: MeasuredService, seconds: int, num_labelers: int) -> Metrics:
    """Measure a service; see `measure`."""
    # All labelers answer before, so that no load measures their first requests.
    warm, _ = service.run(saturate, NUM_UNPAUSED, max(LOADS))
    _, idle = service.run(wait, 3.0)
    public = service.run(ask_alone, "/healthz", num_labelers)
    own = service.run(ask_alone, "/api/v1/me", num_labelers)
    rounds, num_transactions = [], 0
    for _ in range(ROUNDS):
        before = service.num_transactions()
        calibration = service.run(answer_randomly, CALIBRATION, PERIOD_S, seconds)
        num_transactions += service.num_transactions() - before
        full = service.run(saturate, NUM_PARALLEL, 2 * num_labelers)
        paused = [service.run(answer_randomly, each, PERIOD_S, seconds) for each in LOADS]
        # Fewer than those from whose pace a cost is found.
        unpaused = service.run(saturate, NUM_UNPAUSED, num_labelers)
        rounds.append((calibration, full, *paused, unpaused))
    calibration, full, *paused, unpaused = map(pooled, zip(*rounds, strict=True))
    pace = len(full[0].answer_s) / full[1].seconds
    loads = [
        metrics_of(number, PERIOD_S, seconds, outcome)
        for number, outcome in zip(LOADS, paused, strict=True)
    ]
    loads.append(metrics_of(NUM_UNPAUSED, 0.0, SIMULATED_S, unpaused))
    sent = [warm, *(each for each, _ in (calibration, full, *paused, unpaused))]
    return {
        "costs": costs_of(idle, public, own, calibration, seconds, pace),
        "saturated": pace,
        "transactions": num_transactions / len(calibration[0].answer_s),
        "loads": loads,
        "num_answers": sum(len(each.acknowledged) for each in sent),
    }


def pooled(outcomes: Sequence[Outcome]) -> Outcome:
    """Combine the requests of several runs of one load, and the resources that they used."""
    sents, useds = zip(*outcomes, strict=True)
    sent = Sent(num_idle=sum(each.num_idle for each in sents))
    for each in sents:
        sent.acknowledged += each.acknowledged
        sent.next_s += each.next_s
        sent.answer_s += each.answer_s
    return sent, Used(*(sum(values) for values in zip(*map(astuple, useds), strict=True)))


def metrics_of(num_labelers: int, period_s: float, seconds: int, outcome: Outcome) -> Metrics:
    """Return the load of labelers, and what it has used."""
    sent, used = outcome
    times_s = sent.next_s + sent.answer_s
    return {
        "labelers": num_labelers,
        "period_s": period_s,
        "seconds": seconds,
        "answers_per_second": len(sent.acknowledged) / used.seconds,
        "service_cores": used.service_s / used.seconds,
        "database_cores": used.database_s / used.seconds,
        "idle": sent.num_idle,
        "mean_ms": 1000 * fmean(times_s),
        "median_ms": 1000 * median(times_s),
        "p99_ms": in_ms(times_s, 0.99),
    }


def costs_of(
    idle: Used,
    public: Outcome,
    own: Outcome,
    calibration: Outcome,
    seconds: int,
    saturated: float,
) -> Metrics:
    """Find the costs for which simulated loads are the measured ones.

    Args:
        idle: a time without requests.
        public: requests that need neither a credential nor a worker thread.
        own: requests that need the look-up of a credential.
        calibration: next comparisons and answers of `CALIBRATION` labelers.
        seconds: time of the calibration.
        saturated: answers per second of `NUM_PARALLEL` clients.
    """
    sent, used = calibration
    num_cores = os.cpu_count() or 1
    idle_service, idle_database = (
        each / idle.seconds for each in (idle.service_s, idle.database_s)
    )

    def cost_of_one(outcome: Outcome) -> tuple[float, float, float]:
        """Return processor time of service and database, and the median latency."""
        requests, used = outcome
        service_s = used.service_s - idle_service * used.seconds
        database_s = used.database_s - idle_database * used.seconds
        num_requests = len(requests.next_s)
        return service_s / num_requests, database_s / num_requests, median(requests.next_s)

    loop_s, _, public_s = cost_of_one(public)
    service_s, database_s, own_s = cost_of_one(own)
    work_s, database_s = max(service_s - loop_s, 0.0), max(database_s, 0.0)
    look_up = RequestCosts(work_s, database_s, max(own_s - public_s - work_s - database_s, 0.0))
    client_s = used.client_s / (len(sent.next_s) + len(sent.answer_s))
    measured = ServiceResult(
        len(sent.answer_s) / used.seconds,
        used.service_s / used.seconds,
        used.database_s / used.seconds,
        next_s=sent.next_s,
        answer_s=sent.answer_s,
    )
    # SQLite works within the service, and so takes no processor time of its own.
    is_sqlite = used.database_s == 0
    # Only the sum of claims and answers is measured: divided in proportion to their latency.
    claim, answer = (
        RequestCosts(each, 0.0 if is_sqlite else each, 0.0)
        for each in (median(sent.next_s), median(sent.answer_s))
    )
    costs = ServiceCosts(
        client_s,
        loop_s,
        look_up,
        claim,
        answer,
        further=0.5,
        idle_service=idle_service,
        idle_database=idle_database,
        variation=VARIATION,
        has_one_writer=is_sqlite,
    )
    load = Load(CALIBRATION, PERIOD_S, seconds=float(seconds), num_cores=num_cores, is_random=True)
    full = Load(NUM_PARALLEL, 0.0, seconds=SIMULATED_S, num_cores=num_cores)
    return asdict(fitted_costs(costs, load, measured, full, saturated))


def restored(costs: Metrics) -> ServiceCosts:
    """Return recorded costs."""
    parts = {name: RequestCosts(**costs[name]) for name in REQUESTS}
    return ServiceCosts(**{**costs, **parts})
