"""Faults at any moment: the same command continues, and no acknowledged label is lost or doubled.

Limits of the size of a file and of a database take no privileges: a write is cut off in the middle
by the operating system or by SQLite. A file system that is really full has to be mounted.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta
from uuid import uuid4

import httpx
import jaxtyping
import pytest

from rl_teacher.cli import main
from rl_teacher.report import plot
from rl_teacher.runs.doctor import examine
from rl_teacher.runs.folder import home, open_store
from rl_teacher.runs.history import PolicyHistory
from rl_teacher.runs.metrics_file import MetricsFile
from rl_teacher.store.checkpoints import CheckpointFiles
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.metrics import MetricsLog
from rl_teacher.store.records import Control
from rl_teacher.store.store import Store
from rl_teacher.store.waiting import DatabaseWait
from rl_teacher.web.address import access_token
from tests.robustness.processes import (
    PATIENCE_S,
    TEACH,
    TRAINER,
    answers,
    assert_acknowledged_labels_are_stored,
    await_,
    free_port,
    kept,
    labelling,
    largest_file,
    result,
    saved_step,
    wait_for_checkpoint,
)
from tests.store import postgres
from tests.store.comparisons import ask_and_show

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "_no_page")

COMMAND = [
    *("teach", "-p", "synth", "-e", "ShortReacher-v1", "-n", "one", "-t", "8192", "-l", "24"),
    *("-i", "40", "-c", "1", "--ppo.num-envs", "16", "--ppo.rollout-steps", "32"),
    *("--reward.hidden", "16", "--no-tensorboard", "--checkpoint-seconds", "0"),
]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Result of an uninterrupted run of `COMMAND`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RL_TEACHER_HOME", str(tmp_path_factory.mktemp("whole") / "home"))
        patched.setattr(jaxtyping.config, "jaxtyping_disable", True)
        patched.setattr(plot, "plot", lambda curves, path: path)
        assert main(COMMAND) == 0
        return result("one")


def assert_no_faults():
    assert [fault for check in examine() for fault in check.faults] == []


# --- runs of a synthetic teacher ---


def cut_off(size_bytes):
    """Return a fault: no file may exceed a size during the call."""

    def fail(_, call):
        with largest_file(size_bytes):
            return call()

    return fail


def cut_off_row(metrics, call):
    """Append a row of metrics, of which only 10 bytes can be written."""
    with largest_file(metrics.path.stat().st_size + 10):
        return call()


def append_until_full(log, call):
    """Append rows until the database, whose size is limited, is full."""
    with log._database.reading() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1")
    # What fits into the last page can still be written.
    for _ in range(100):
        call()


def make_read_only(name):
    """Return a fault: a folder of the home may not be written after the call."""

    def fail(_, call):
        path = call()
        for folder in home().glob(name):
            folder.chmod(0o500)
        return path

    return fail


def lock_database(_, call):
    """Hold the database locked, longer than the run waits for it."""
    path = call()
    locks.append(sqlite3.connect(home() / "labels.sqlite", isolation_level=None))
    locks[-1].execute("BEGIN IMMEDIATE")
    return path


locks = []

FAULTS = {
    "checkpoint cut off": (CheckpointFiles, "save", 4, cut_off(20_000)),
    "database full": (MetricsLog, "append", 4, append_until_full),
    "metrics cut off": (MetricsFile, "append", 4, cut_off_row),
    "segment cut off": (SegmentFiles, "save", 14, cut_off(200)),
    "policy cut off": (PolicyHistory, "add", 3, cut_off(200)),
    "run read-only": (CheckpointFiles, "save", 2, make_read_only("experiments/one")),
    "segments read-only": (CheckpointFiles, "save", 2, make_read_only("segments/*")),
    "database locked": (CheckpointFiles, "save", 4, lock_database),
}
"""Method, the number of its call that fails, and the fault."""
FAST = ("checkpoint cut off",)


def at_call(monkeypatch, owner, name, number, fail):
    """Replace the call of a method of this number by `fail(self, call)`."""
    method, calls = getattr(owner, name), itertools.count(1)

    def replaced(self, *args, **kwargs):
        if next(calls) < number:
            return method(self, *args, **kwargs)
        return fail(self, lambda: method(self, *args, **kwargs))

    monkeypatch.setattr(owner, name, replaced)


@pytest.mark.usefixtures("bound_by_permissions")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in FAST else [pytest.mark.slow]) for kind in FAULTS],
)
def test_run_with_a_fault_of_the_disk_ends_and_the_same_command_continues(
    kind, uninterrupted, monkeypatch
):
    with monkeypatch.context() as patched:
        # Every step has a row of metrics.
        patched.setattr("rl_teacher.session.REPORT_EVERY_S", 0.0)
        patched.setattr("rl_teacher.runs.opening.DatabaseWait", lambda: DatabaseWait(0.5, 0.1))
        patched.setitem(Store.open.__func__.__kwdefaults__, "busy_timeout_s", 0.1)
        at_call(patched, *FAULTS[kind])
        assert main(COMMAND) == 2
    while locks:
        locks.pop().close()
        # The lock of the experiment could not be released in the database.
        monkeypatch.setattr("rl_teacher.store.experiment_locks.STALE_AFTER", timedelta(0))
    for folder in (home() / "experiments/one", *(home() / "segments").glob("*")):
        folder.chmod(0o700)
    assert main(COMMAND) == 0
    assert result("one") == uninterrupted
    assert_no_faults()


def code_of_killed(before, delay_s):
    """Run `COMMAND` until some time after its next checkpoint; kill it if it has not ended."""
    command = [sys.executable, "-m", "rl_teacher", *COMMAND]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        await_(lambda: saved_step("one") > before or process.poll() is not None)
        time.sleep(delay_s)
        process.kill()
    return process.returncode


@pytest.mark.parametrize("num_kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_run_continues_at_once_and_equals_an_uninterrupted_one(num_kills, uninterrupted):
    rng = random.Random(num_kills)
    codes = [code_of_killed(saved_step("one"), rng.uniform(0.0, 0.1)) for _ in range(num_kills)]
    assert codes[0] == -signal.SIGKILL
    assert main(COMMAND) == 0
    assert result("one") == uninterrupted
    assert_no_faults()


# --- labelers ---


class LockedFile:
    """SQLite database that another process locks."""

    @contextlib.contextmanager
    def outage(self):
        lock = (
            "import sqlite3, sys; other = sqlite3.connect(sys.argv[1], isolation_level=None); "
            "other.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", lock, str(home() / "labels.sqlite")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            yield
            process.communicate()


class PostgreSQL:
    """PostgreSQL database whose server can be stopped and killed."""

    def __init__(self):
        self.server = postgres.RestartableServer()

    @contextlib.contextmanager
    def outage(self):
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()


@pytest.fixture
def database(request, make_database, monkeypatch):
    home().mkdir(mode=0o700)
    if request.param == "sqlite":
        make_database(home() / "labels.sqlite")
        yield LockedFile()
        return
    postgres.require_postgres()
    found = PostgreSQL()
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", found.server.server.new_database())
    yield found
    found.server.close()


@contextlib.contextmanager
def taught_by_labelers(allowed_codes=(0, -signal.SIGKILL)):
    """Run trainer, service and labelers; afterwards check that no label is lost or doubled."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = ["-m", "rl_teacher.cli", "serve", "--port", str(port), "--no-browser"]
    with (
        kept([sys.executable, *serve]) as service,
        kept([sys.executable, "-c", TRAINER, *TEACH.split()]) as trainer,
    ):
        await_(lambda: answers(url))
        with labelling(url) as labelers:
            wait_for_checkpoint("crash")
            with open_store() as store:
                experiment_id = store.experiments.get("crash").id
                store.experiments.set_control(experiment_id, Control(seconds_between=0.2))
            yield trainer, service, url
            wait_for_checkpoint("crash", after=saved_step("crash"))
    assert {*trainer.codes, *service.codes} <= {*allowed_codes}
    assert_acknowledged_labels_are_stored(labelers)
    assert_no_faults()


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_acknowledged_labels_survive_kills_of_every_process(database):
    rng = random.Random(0)
    with taught_by_labelers() as (trainer, service, url):
        kills = itertools.cycle([trainer.kill, service.kill, database.server.kill])
        for kill in itertools.islice(kills, 30):
            time.sleep(rng.uniform(0.0, 1.5))
            before = saved_step("crash")
            kill()
            await_(lambda: answers(url))
            wait_for_checkpoint("crash", before)


def request_of(url, credential, labels):
    """Return the bytes of a request that answers comparisons."""
    body = json.dumps({"labels": labels}).encode()
    head = (
        f"POST /api/v1/labels HTTP/1.1\r\nHost: {url.partition('//')[2]}\r\n"
        f"Authorization: Bearer {credential}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def response_of_killed(service, port, request, delay_s):
    """Send a request, kill the service some time later, and return what it has answered."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(10)
        connection.sendall(request)
        time.sleep(delay_s)
        service.kill()
        with contextlib.suppress(ConnectionResetError):
            return connection.recv(1 << 16)
    return b""


@pytest.mark.slow
def test_labels_survive_kills_that_land_inside_the_request_that_answers(make_database):
    """Each request is repeated: then it is acknowledged, and its label is stored once."""
    home().mkdir(mode=0o700)
    make_database(home() / "labels.sqlite")
    rng, port, num_inside, stored_early = random.Random(0), free_port(), 0, 0
    serve = ["-m", "rl_teacher.cli", "serve", "--port", str(port), "--no-browser"]
    with open_store() as store, kept([sys.executable, *serve]) as service:
        experiment_id = store.experiments.ensure("one", "E", {"name": "one"})
        url, credential = f"http://127.0.0.1:{port}", access_token(home())
        acknowledged = {}
        while num_inside < 10:
            [asked] = ask_and_show(store, experiment_id, f"clip {len(acknowledged)}")
            label = {"request_id": str(uuid4()), "comparison_id": asked, "answer": "left"}
            request = request_of(url, credential, [label])
            await_(lambda: answers(url))
            answered = response_of_killed(service, port, request, rng.uniform(0.0, 0.03))
            num_inside += answered == b""
            in_store = {str(each.request_id) for each in exported(store, experiment_id)}
            stored_early += answered == b"" and label["request_id"] in in_store
            assert answered == b"" or label["request_id"] in in_store
            await_(lambda: answers(url))
            headers = {"Authorization": f"Bearer {credential}"}
            repeated = httpx.post(f"{url}/api/v1/labels", json={"labels": [label]}, headers=headers)
            assert repeated.json()["accepted"] == [label["request_id"]]
            acknowledged[label["request_id"]] = asked
        stored = [
            (str(each.request_id), each.comparison_id) for each in exported(store, experiment_id)
        ]
    assert sorted(stored) == sorted(acknowledged.items())
    sys.stdout.write(f"KILLS {num_inside} of {len(acknowledged)}, stored {stored_early}\n")


def exported(store, experiment_id):
    return store.labels.export(experiment_id, limit=1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "database",
    ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)],
    indirect=True,
)
@pytest.mark.parametrize("seconds", [3, 60])
def test_run_and_labelers_wait_for_their_database_and_lose_nothing(database, seconds):
    with taught_by_labelers() as (trainer, service, _), database.outage():
        time.sleep(seconds)
    assert (sum(trainer.codes.values()), sum(service.codes.values())) == (1, 1)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """Mount a small file system, in which the home is; return its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        skip_or_fail = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        skip_or_fail("this user may not mount a file system; the tests above need no privileges")
    monkeypatch.setenv("RL_TEACHER_HOME", str(folder / "home"))
    # On another disk, so that a new process need not compile while the disk is full.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "xla"))
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def filled(folder):
    """Fill a file system within the context."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


@pytest.mark.slow
def test_run_and_labelers_continue_after_the_disk_was_full(disk):
    home().mkdir(mode=0o700)
    with taught_by_labelers(allowed_codes=(0, 2)) as (trainer, _, _), filled(disk):
        await_(lambda: trainer.codes[2], 3 * PATIENCE_S)
