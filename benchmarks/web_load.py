"""Load on the service: a hundred labelers, each of whom answers once a second."""

import asyncio
import contextlib
import gzip
import json
import multiprocessing
import os
import re
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import ChildFailed
from benchmarks.machine import cpu_seconds
from benchmarks.options import Options
from benchmarks.parts import keep
from benchmarks.records import Record, Records, latest_run
from benchmarks.tables import number, table
from rl_teacher.store.records import RenderedClip
from rl_teacher.store.store import Store
from rl_teacher.web.address import Address
from rl_teacher.web.serve import HEADER_TIMEOUT_S
from tests.browser.processes import Service
from tests.store import postgres

HOW = "python -m benchmarks.run web_load"

ENV_ID = "ShortHopper-v1"
NUM_LABELERS = 100
NUM_IDLE = 500
REPEATS = 5
OPEN_PER_STEP = 100
WARM_UP_S = 2.0


def in_ms(seconds: list[float], quantile: float) -> float:
    """Return a quantile of durations in milliseconds."""
    return round(1000 * float(np.quantile(seconds, quantile)), 2)


def quantiles(what: str, seconds: list[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the maximum."""
    places = {"p50": 0.5, "p99": 0.99, "worst": 1.0}
    return {f"{what}_{name}_ms": in_ms(seconds, place) for name, place in places.items()}


@dataclass
class Sent:
    """Requests of all labelers in one measurement.

    Attributes:
        request_ids: ids of all answers sent.
        acknowledged: ids of the answers that the service accepted.
        next_s: seconds of each request for the next comparison.
        answer_s: seconds until each answer was acknowledged.
        num_idle: number of times that there was nothing to answer.
        client_cpu_s: processor time of the client.
    """

    request_ids: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    next_s: list[float] = field(default_factory=list)
    answer_s: list[float] = field(default_factory=list)
    num_idle: int = 0
    client_cpu_s: float = 0.0


def run(options: Options, records: Records) -> None:
    """Measure a hundred labelers who answer one comparison per second, on both databases in turn.

    Idle connections are open meanwhile.

    Raises:
        ChildFailed: a service ended, or refused a request.
    """
    num_labelers, num_idle, seconds = (
        (10, 20, 3) if options.is_quick else (NUM_LABELERS, NUM_IDLE, 60)
    )
    for database in ("sqlite", "postgresql") * (1 if options.is_quick else REPEATS):
        missing = postgres.missing() if database == "postgresql" else None
        if missing:
            print(f"  labelers: {missing}", flush=True)
            continue
        with (
            tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as home,
            temporary_database(database),
        ):
            metrics = answer_together(Path(home), num_labelers, num_idle, seconds)
        metrics |= {"database": database, "seconds": seconds, "idle_connections": num_idle}
        keep(options, records, "labelers", **metrics)


@contextmanager
def temporary_database(name: str) -> Iterator[None]:
    """Provide an empty database for all processes started in the block."""
    with postgres.running() if name == "postgresql" else nullcontext() as server:
        before = os.environ.pop("RL_TEACHER_DATABASE_URL", None)
        if server is not None:
            os.environ["RL_TEACHER_DATABASE_URL"] = server.new_database()
        try:
            yield
        finally:
            os.environ.pop("RL_TEACHER_DATABASE_URL", None)
            if before is not None:
                os.environ["RL_TEACHER_DATABASE_URL"] = before


def answer_together(home: Path, num_labelers: int, num_idle: int, seconds: int) -> dict[str, Any]:
    """Create comparisons, start the service, let all labelers answer, and check what is stored."""
    url = os.environ.get("RL_TEACHER_DATABASE_URL") or str(home / "labels.sqlite")
    with Store.open(url) as store:
        experiment_id = create_comparisons(store, num_labelers * (seconds + 10))
        tokens = [add_labeler(store, f"labeler {each}") for each in range(num_labelers)]
        service = Service(home)
        try:
            before_s = cpu_seconds(service.process.pid)
            start_s = time.perf_counter()
            sent = run_labelers(service.address, tokens, seconds, num_idle)
            took_s = time.perf_counter() - start_s
            cpu_s = cpu_seconds(service.process.pid) - before_s
        finally:
            service.end()
        rows = []
        while page := store.labels.export(experiment_id, rows[-1].id if rows else 0, 10_000):
            rows += page
    stored = [str(row.request_id) for row in rows]
    held = [row for row in rows if row.lease == "held"]
    return {
        "labelers": num_labelers,
        "sent": len(sent.request_ids),
        "acknowledged": len(sent.acknowledged),
        "stored": len(stored),
        "lost": len(set(sent.acknowledged) - set(stored)),
        "doubled": len(stored) - len({row.comparison_id for row in rows}),
        "held": len(held),
        "idle": sent.num_idle,
        "service_cpu_ms": round(1000 * cpu_s / len(sent.next_s + sent.answer_s), 2),
        "client_cpu_percent": round(100 * sent.client_cpu_s / took_s),
        **quantiles("next", sent.next_s),
        **quantiles("answer", sent.answer_s),
    }


def create_comparisons(store: Store, count: int) -> int:
    """Create an experiment with so many comparisons that have rendered clips."""
    experiment_id = store.experiments.ensure("load", ENV_ID, {})
    hashes = [f"{each:064x}" for each in range(2 * count)]
    poses = {"env_id": ENV_ID, "num_steps": 30, "kind": "poses", "num_frames": 15, "fps": 12.5}
    store.clips.publish(
        {
            each: RenderedClip(**poses, media_key=f"clips/{each}.poses", scene_hash="0" * 64)
            for each in hashes
        }
    )
    for start in range(0, count, OPEN_PER_STEP):
        some = range(start, min(start + OPEN_PER_STEP, count))
        pairs = [(hashes[2 * each], hashes[2 * each + 1]) for each in some]
        store.comparisons.add(experiment_id, pairs, ENV_ID, 30, start)
    return experiment_id


def add_labeler(store: Store, name: str) -> str:
    """Add a labeler and return their token."""
    _, token = store.access.add_labeler(name)
    return token


# --- simulated labelers ---


def run_labelers(address: Address, tokens: list[str], seconds: int, num_idle: int) -> Sent:
    """Run all labelers in a process whose event loop has nothing else to do."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(run_clients, address, tokens, seconds, num_idle).result()


def run_clients(address: Address, tokens: list[str], seconds: int, num_idle: int) -> Sent:
    """Run all labelers, and count the processor time of this process."""
    before_s = time.process_time()
    sent = asyncio.run(run_connections(address, tokens, seconds, num_idle))
    sent.client_cpu_s = time.process_time() - before_s
    return sent


async def run_connections(address: Address, tokens: list[str], seconds: int, num_idle: int) -> Sent:
    """Run labelers with a connection each, with starts spread evenly over the first second."""
    sent = Sent()
    idle = [
        asyncio.create_task(stay_connected(address, HEADER_TIMEOUT_S * (place + 1) / num_idle))
        for place in range(num_idle)
    ]
    start_s = time.perf_counter() + WARM_UP_S
    async with asyncio.TaskGroup() as group:
        for place, token in enumerate(tokens):
            starts_s = [start_s + place / len(tokens) + turn for turn in range(seconds)]
            group.create_task(run_connection(address, token, sent, starts_s))
    for connection in idle:
        if connection.done():
            connection.result()
        connection.cancel()
    await asyncio.gather(*idle, return_exceptions=True)
    return sent


async def stay_connected(address: Address, first_s: float) -> None:
    """Keep a connection open after one request; connect again whenever the service closes it.

    Args:
        address: Address of the service.
        first_s: Time until the first connection is closed. If all were closed at once, the service
            would answer nothing but hundreds of new connections for a while.
    """
    request = f"GET /healthz HTTP/1.1\r\nHost: {address.host}\r\n\r\n".encode()
    timeout_s: float | None = first_s
    while True:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(request)
        with contextlib.suppress(ConnectionError, TimeoutError):
            await asyncio.wait_for(reader.read(), timeout_s)
        timeout_s = None
        writer.close()


async def run_connection(
    address: Address, token: str, sent: Sent, starts_s: Sequence[float]
) -> None:
    """Answer comparisons one after the other.

    Args:
        address: Address of the service.
        token: Credential of the labeler.
        sent: Receives what was sent.
        starts_s: Times of `time.perf_counter` before which each comparison is not requested.
    """
    reader, writer = await asyncio.open_connection(address.host, address.port)
    head = f"Host: {address.host}\r\nAuthorization: Bearer {token}\r\nAccept-Encoding: gzip\r\n"
    for due_s in starts_s:
        await asyncio.sleep(due_s - time.perf_counter())
        start_s = time.perf_counter()
        path = "/api/v1/experiments/load/comparisons/next?limit=1"
        writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        comparisons = json.loads(await read_response(reader))["comparisons"]
        sent.next_s.append(time.perf_counter() - start_s)
        if not comparisons:
            sent.num_idle += 1
            continue
        label = answer_to(comparisons[0])
        sent.request_ids.append(label["request_id"])
        body = json.dumps({"labels": [label]})
        start_s = time.perf_counter()
        writer.write(
            f"POST /api/v1/labels HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        sent.acknowledged += json.loads(await read_response(reader))["accepted"]
        sent.answer_s.append(time.perf_counter() - start_s)
    writer.close()


async def read_response(reader: asyncio.StreamReader) -> bytes:
    """Return the body of a response, with a tenth of the processor time that httpx takes.

    Raises:
        ChildFailed: the service refused the request.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"\r\ncontent-length: (\d+)\r\n", head, re.IGNORECASE)
    body = await reader.readexactly(int(found[1]) if found else 0)
    if head.split(maxsplit=2)[1] != b"200":
        raise ChildFailed(f"a request was refused: {head.decode()}{body.decode()}")
    return gzip.decompress(body) if b"\r\ncontent-encoding: gzip" in head.lower() else body


def answer_to(comparison: dict[str, Any]) -> dict[str, Any]:
    """Return the label that answers a leased comparison."""
    return {
        "request_id": str(uuid.uuid4()),
        "comparison_id": comparison["id"],
        "answer": "left",
        "lease": comparison["lease"],
    }


# --- report ---


COUNTS = ("sent", "acknowledged", "stored", "lost", "doubled")
TIMES = ("answer_p50_ms", "answer_p99_ms", "next_p50_ms", "next_p99_ms", "service_cpu_ms")
HEADINGS = (*COUNTS, "answer p50", "answer p99", "next p50", "next p99", "CPU a request")


def report(records: list[Record]) -> list[str]:
    """Build the report of the newest run."""
    newest = [record for record in records if record["part"] == "labelers"]
    newest = latest_run(newest)
    rows = [
        [
            record["database"],
            *(f"{record[name]:,}" for name in COUNTS),
            *(number(record[name]) for name in TIMES),
        ]
        for record in newest
    ]
    return [
        f"{newest[-1]['labelers']} labelers, each of whom answers a comparison a second for "
        f"{newest[-1]['seconds']} s, beside {newest[-1]['idle_connections']} idle connections; "
        "clients, service and database share the machine, and the databases are measured in turn. "
        "ms (to reach: p99 under 100 ms, none lost, none doubled):",
        "",
        *table(["", *HEADINGS], rows),
        "",
    ]
