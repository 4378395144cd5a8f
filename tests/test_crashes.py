"""Trainer, service and database are killed at random moments while labelers stream labels in."""

import contextlib
import itertools
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import httpx
import pytest

from benchmarks.machine import cpu_seconds
from rl_teacher.clips.answer import Answer, mirror_answer
from rl_teacher.runs.doctor import examine
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.store.records import Control, ExportedLabel
from tests.store import postgres
from tests.test_teach import curve, policies, saved_step, start, wait_for_checkpoint

pytestmark = pytest.mark.postgres

PATIENCE_S = 60.0
LABELER_PATIENCE_S = 3 * PATIENCE_S
"""Longer than the longest outage, which takes a minute."""
RESUMED_WITHIN_S = 10.0
"""CPU time: wall-clock time depends on the other processes of a shared machine."""
NUM_LABELERS = 3

TRAINER = """
import sys
from importlib import import_module
from rl_teacher import cli, session

class NoPage:
    def __init__(self, options): pass
    def address(self): raise NotImplementedError
    def link(self, name, labels): return "page"
    def close(self): pass

resume = session.PreferenceSession.resume

def resume_and_say(self, parts=None):
    is_resumed = resume(self, parts)
    print("resumed", flush=True)
    return is_resumed

session.PreferenceSession.resume = resume_and_say
session.MAX_SAVING_SHARE = 1.0
import_module("rl_teacher.preparation").PageService = NoPage
sys.exit(cli.main(sys.argv[1:]))
"""
TEACH = (
    "teach -p human -e ShortReacher-v1 -n crash -L 8 -t 100000000 -i 40 -c 1 --ppo.num-envs 8 "
    "--ppo.rollout-steps 64 --reward.hidden 16 16 --no-browser --no-tensorboard -w 1 --pace steps "
    "--checkpoint-seconds 0.5"
)


def await_(condition, timeout_s=PATIENCE_S):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "not in time"
        time.sleep(0.02)


class Kept:
    """A process that is started again whenever it has ended, until it is stopped."""

    def __init__(self, command, word=None):
        self._command, self._word = command, word
        self._is_stopping = self.is_stopped = False
        self._errors = (home() / "errors.txt").open("ab")
        self.ready_s, self.ready_cpu_s = [], []
        self.codes = Counter()
        self.is_ready = threading.Event()
        self.is_sound = True
        self._start()
        self._thread = threading.Thread(target=self._keep)
        self._thread.start()

    def _start(self):
        self.is_ready.clear()
        self._began_s = time.monotonic()
        # A file, because children of a killed process would keep a pipe open.
        self._output = (home() / f"output-{uuid4().hex}.txt").open("w+b")
        self.process = subprocess.Popen(self._command, stdout=self._output, stderr=self._errors)

    def _keep(self):
        while True:
            path = Path(self._output.name)
            while self.process.poll() is None:
                is_said = self._word is not None and self._word in path.read_text()
                if is_said and not self.is_ready.is_set():
                    self.ready_s.append(time.monotonic() - self._began_s)
                    self.ready_cpu_s.append(cpu_seconds(self.process.pid))
                    self.is_ready.set()
                time.sleep(0.02)
            self._output.close()
            code = self.process.wait()
            self.codes[code] += 1
            # It outlasts kills of the database.
            self.is_sound = code == -signal.SIGKILL
            if self._is_stopping or not self.is_sound:
                return
            self._start()

    def await_ready(self):
        def is_ready():
            assert self.is_sound, f"exit codes {self.codes}; see errors.txt"
            return self.is_ready.is_set()

        await_(is_ready)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        # It starts again at once.
        killed = self.process
        await_(lambda: self.process is not killed or not self.is_sound)

    def stop(self):
        """End the process with SIGTERM, and return its exit code."""
        self._is_stopping = True
        self.process.send_signal(signal.SIGTERM)
        self._thread.join(PATIENCE_S)
        self._errors.close()
        self.is_stopped = True
        return self.process.returncode


class Acknowledged(NamedTuple):
    comparison_id: int
    labeler: str
    answer: str


class Labeler(threading.Thread):
    """Labeler who answers through the API, and repeats what was not acknowledged."""

    def __init__(self, url, name, credential, seed):
        super().__init__()
        self.name = name
        self._rng = random.Random(seed)
        self._url, self._headers = url, {"Authorization": f"Bearer {credential}"}
        self.sent, self.acknowledged, self.rejected = set(), {}, Counter()
        self.num_repeated = 0
        self.ended = threading.Event()
        self.error = None

    def run(self):
        try:
            with httpx.Client(
                base_url=self._url, headers=self._headers, timeout=5.0, trust_env=False
            ) as client:
                while not self.ended.wait(self._rng.uniform(0.0, 0.4)):
                    self._label(client)
        except BaseException as error:
            self.error = error

    def _label(self, client):
        path = "/api/v1/experiments/crash/comparisons/next"
        response = self._repeat(lambda: client.get(path, params={"limit": 2}), is_needed=False)
        if response is None or response.status_code != 200:
            return
        labels = [
            {
                "request_id": str(uuid4()),
                "comparison_id": each["id"],
                "answer": self._rng.choice(["left", "right", "equal"]),
                "lease": each["lease"],
                "left_hash": each["left"]["hash"],
                "response_ms": 2_000,
            }
            for each in response.json()["comparisons"]
        ]
        if not labels:
            return
        self.sent |= {each["request_id"] for each in labels}
        response = self._repeat(lambda: client.post("/api/v1/labels", json={"labels": labels}))
        assert response is not None
        assert response.status_code == 200, response.text
        receipt = response.json()
        for each in labels:
            if each["request_id"] in receipt["accepted"]:
                self.acknowledged[each["request_id"]] = Acknowledged(
                    each["comparison_id"], self.name, each["answer"]
                )
        for each in receipt["rejected"]:
            self.rejected[each["problem"]["type"]] += 1

    def _repeat(self, send, *, is_needed=True):
        """Send a request until the service answers; a label until it is accepted or rejected."""
        deadline_s = time.monotonic() + LABELER_PATIENCE_S
        while is_needed or not self.ended.is_set():
            with contextlib.suppress(httpx.TransportError):
                response = send()
                if response.status_code not in (429, 503):
                    return response
            assert time.monotonic() < deadline_s, "the service does not answer"
            self.num_repeated += is_needed
            time.sleep(0.1)
        return None


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def answers(url):
    try:
        return httpx.get(f"{url}/healthz", timeout=1.0, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def database(monkeypatch):
    postgres.require_postgres()
    found = postgres.RestartableServer()
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", found.server.new_database())
    home().mkdir(mode=0o700, parents=True)
    yield found
    found.close()


def set_up_labelers():
    """Add the labelers; return their names and credentials."""
    with open_store() as store:
        return [
            (name, store.access.add_labeler(name)[1])
            for name in (f"labeler {number}" for number in range(NUM_LABELERS))
        ]


@contextlib.contextmanager
def kept(command, **options):
    """Keep a process running within the context."""
    process = Kept(command, **options)
    try:
        yield process
    finally:
        if process.is_sound and not process.is_stopped:
            process.stop()


@contextlib.contextmanager
def labelling(url, credentials):
    """Let all labelers answer within the context; afterwards nothing is being sent any more."""
    labelers = [
        Labeler(url, name, credential, seed) for seed, (name, credential) in enumerate(credentials)
    ]
    for each in labelers:
        each.start()
    try:
        yield labelers
    finally:
        for each in labelers:
            each.ended.set()
        for each in labelers:
            each.join()


def kill_in_turn(targets, num_kills, await_all):
    """Kill one process after another, each at a random moment after all were ready.

    Returns:
        The seconds until all were ready again, by the name of the process.
    """
    rng = random.Random(num_kills)
    recovery_s = {name: [] for name in targets}
    for name, _ in zip(itertools.cycle(targets), range(num_kills), strict=False):
        time.sleep(rng.uniform(0.0, 1.5))
        began_s = time.monotonic()
        targets[name]()
        await_all()
        recovery_s[name].append(time.monotonic() - began_s)
    return recovery_s


@pytest.mark.parametrize("num_kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_acknowledged_labels_survive_kills_of_every_process(database, num_kills, record_property):
    credentials = set_up_labelers()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = f"-m rl_teacher.cli serve --port {port} --no-browser".split()
    teach = ["-c", TRAINER, *TEACH.split()]
    with (
        kept([sys.executable, *serve]) as service,
        kept([sys.executable, *teach], word="resumed") as trainer,
    ):

        def await_all():
            trainer.await_ready()
            await_(lambda: answers(url))

        await_all()
        with open_store() as store:
            experiment_id = store.experiments.get("crash").id
            store.experiments.set_control(experiment_id, Control(seconds_between=0.2))
        with labelling(url, credentials) as labelers:
            wait_for_checkpoint("crash")
            targets = {
                "trainer": trainer.kill,
                "service": service.kill,
                "PostgreSQL": database.kill,
            }
            recovery_s = kill_in_turn(targets, num_kills, await_all)
            wait_for_checkpoint("crash", after=saved_step("crash"))
        assert [each.error for each in labelers] == [None] * NUM_LABELERS
        assert (trainer.stop(), service.stop()) == (0, 0)

    with open_store() as store:
        stored: list[ExportedLabel] = []
        while page := store.labels.export(experiment_id, stored[-1].id if stored else 0):
            stored += page
    counts = {
        "kills": {name: len(seconds) for name, seconds in recovery_s.items()},
        "recovery s": {
            name: sorted(round(each, 1) for each in seconds) for name, seconds in recovery_s.items()
        },
        "acknowledged": sum(len(each.acknowledged) for each in labelers),
        "stored": len(stored),
        "doubled": len(stored) - len({each.request_id for each in stored}),
        "repeated requests": sum(each.num_repeated for each in labelers),
        "rejected": dict(sum((each.rejected for each in labelers), Counter())),
        "resumed after s": sorted(round(each, 1) for each in trainer.ready_s),
        "resumed after CPU s": sorted(round(each, 1) for each in trainer.ready_cpu_s),
        "exit codes": [dict(trainer.codes), dict(service.codes)],
    }
    for name, value in counts.items():
        record_property(name, value)
        print(f"{name}: {value}")  # noqa: T201 - shown with -rP
    assert_acknowledged_labels_are_stored(labelers, stored)
    assert counts["acknowledged"] >= num_kills
    assert Experiment.find("crash").load_checkpoint() is not None
    assert [fault for check in examine() for fault in check.faults] == []
    assert max(trainer.ready_cpu_s) < RESUMED_WITHIN_S, counts


def assert_acknowledged_labels_are_stored(labelers, stored):
    """Check that each acknowledged label is stored once as it was sent, and nothing else is."""
    by_request = {str(each.request_id): each for each in stored}
    assert len(by_request) == len(stored)
    assert by_request.keys() <= set().union(*(each.sent for each in labelers))
    for labeler in labelers:
        for request_id, label in labeler.acknowledged.items():
            found = by_request[request_id]
            assert (found.comparison_id, found.labeler) == (label.comparison_id, label.labeler)
            assert found.answer is not None
            assert mirror_answer(found.answer, swapped=found.is_swapped) == Answer(label.answer)


@pytest.mark.slow
def test_synthetic_run_equals_uninterrupted_one_after_kills(database):
    num_timesteps = 16_000
    assert start("whole", num_timesteps).wait(timeout=600) == 0
    process = start("killed", num_timesteps)
    wait_for_checkpoint("killed")
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    before = saved_step("killed")
    process = start("killed", num_timesteps)
    wait_for_checkpoint("killed", before)
    assert process.poll() is None, "the run ended before the database was killed"
    database.kill()
    assert process.wait(timeout=600) == 0
    assert curve("killed") == curve("whole")
    assert policies("killed") == policies("whole")
