"""Trainers, services and labelers for tests with faults."""

import contextlib
import random
import resource
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from uuid import uuid4

import httpx

from rl_teacher.clips.answer import Answer, mirror_answer
from rl_teacher.runs.folder import Experiment, home, open_store

PATIENCE_S = 60.0
NUM_LABELERS = 3

TRAINER = """
import importlib
import sys
from rl_teacher import cli, session

class NoPage:
    def __init__(self, options): pass
    def address(self): raise NotImplementedError
    def link(self, name, labels): return "page"
    def close(self): pass

session.MAX_SAVING_SHARE = 1.0
importlib.import_module("rl_teacher.teach").PageService = NoPage
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


def saved_step(name):
    """Return the step of the newest checkpoint of an experiment; -1 without one."""
    folder = home() / "experiments" / name / "checkpoints"
    steps = [int(path.name.split("-step-")[1].split("-")[0]) for path in folder.glob("*-step-*")]
    return max(steps, default=-1)


def wait_for_checkpoint(name, after=-1):
    await_(lambda: saved_step(name) > after)


def result(name):
    """Return the last metrics that do not depend on the clock, and the files of all policies."""
    experiment = Experiment.find(name)
    row = experiment.metrics()[-1]
    clock = {key for key in row if key == "steps_per_second" or key.endswith("_s")}
    folder = experiment.history.folder
    policies = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}
    return {key: row[key] for key in row.keys() - clock}, policies


@contextlib.contextmanager
def largest_file(size_bytes):
    """Let no file grow beyond a size within the context; a longer write is cut off there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Kept:
    """A process that is started again whenever it has ended, until it is stopped.

    Attributes:
        process: the present one.
        codes: exit codes of all that have ended.
    """

    def __init__(self, command):
        self._command = command
        self._is_stopping = False
        self.codes = Counter()
        self._start()
        self._thread = threading.Thread(target=self._keep)
        self._thread.start()

    def _start(self):
        self.process = subprocess.Popen(self._command)

    def _keep(self):
        while True:
            code = self.process.wait()
            self.codes[code] += 1
            if self._is_stopping:
                return
            self._start()

    def kill(self):
        killed = self.process
        killed.kill()
        await_(lambda: self.process is not killed)

    def stop(self):
        """End the process with SIGTERM."""
        self._is_stopping = True
        self.process.send_signal(signal.SIGTERM)
        self._thread.join(PATIENCE_S)


@contextlib.contextmanager
def kept(command):
    """Keep a process running within the context."""
    process = Kept(command)
    try:
        yield process
    finally:
        process.stop()


class Labeler(threading.Thread):
    """Labeler who answers through the API, and repeats what was not acknowledged."""

    def __init__(self, url, name, credential, seed):
        super().__init__()
        self.name, self._rng, self._url = name, random.Random(seed), url
        self._headers = {"Authorization": f"Bearer {credential}"}
        self.sent, self.acknowledged = set(), {}
        self.ended, self.error = threading.Event(), None

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
        labels = {
            str(uuid4()): {
                "comparison_id": each["id"],
                "answer": self._rng.choice(["left", "right", "equal"]),
                "lease": each["lease"],
                "left_hash": each["left"]["hash"],
                "response_ms": 2_000,
            }
            for each in response.json()["comparisons"]
        }
        if not labels:
            return
        self.sent |= labels.keys()
        body = {"labels": [{"request_id": key, **label} for key, label in labels.items()]}
        response = self._repeat(lambda: client.post("/api/v1/labels", json=body))
        assert response is not None
        assert response.status_code == 200, response.text
        self.acknowledged |= {key: labels[key] for key in response.json()["accepted"]}

    def _repeat(self, send, *, is_needed=True):
        """Send a request until the service answers; a label until it is accepted or rejected."""
        # Longer than the longest outage, which takes a minute.
        deadline_s = time.monotonic() + 3 * PATIENCE_S
        while is_needed or not self.ended.is_set():
            with contextlib.suppress(httpx.TransportError):
                response = send()
                if response.status_code not in (429, 503):
                    return response
            assert time.monotonic() < deadline_s, "the service does not answer"
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


@contextlib.contextmanager
def labelling(url):
    """Add labelers, and let them answer within the context; then check that none has failed."""
    with open_store() as store:
        labelers = [
            Labeler(url, name, store.access.add_labeler(name)[1], seed)
            for seed, name in enumerate(f"labeler {number}" for number in range(NUM_LABELERS))
        ]
    for labeler in labelers:
        labeler.start()
    try:
        yield labelers
    finally:
        for labeler in labelers:
            labeler.ended.set()
        for labeler in labelers:
            labeler.join()
    assert [labeler.error for labeler in labelers] == [None] * NUM_LABELERS


def assert_acknowledged_labels_are_stored(labelers):
    """Check that each acknowledged label is stored once as it was sent, and nothing else is."""
    with open_store() as store:
        experiment_id = store.experiments.get("crash").id
        stored = []
        while page := store.labels.export(experiment_id, stored[-1].id if stored else 0):
            stored += page
    by_request = {str(each.request_id): each for each in stored}
    assert len(by_request) == len(stored)
    assert by_request.keys() <= set().union(*(labeler.sent for labeler in labelers))
    assert sum(len(labeler.acknowledged) for labeler in labelers) > 0
    for labeler in labelers:
        for request_id, label in labeler.acknowledged.items():
            found = by_request[request_id]
            assert (found.comparison_id, found.labeler) == (label["comparison_id"], labeler.name)
            assert found.answer is not None
            assert mirror_answer(found.answer, swapped=found.is_swapped) == Answer(label["answer"])
