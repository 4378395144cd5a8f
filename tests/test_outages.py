"""Trainer and service outlast a database that is locked or restarts while labelers answer."""

import contextlib
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.runs.doctor import examine
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import Store
from rl_teacher.store.waiting import DatabaseWait
from tests.store import postgres
from tests.test_crashes import (
    answers,
    assert_acknowledged_labels_are_stored,
    await_,
    free_port,
    kept,
    labelling,
    set_up_labelers,
)
from tests.test_person_teaches import CONFIG, running

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "_no_page")

HUMAN = replace(CONFIG, name="crash", num_timesteps=2048)
WAITING = "waiting for the database since "

LOCK = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


class LockedFile:
    """SQLite database that another process locks."""

    @contextlib.contextmanager
    def outage(self):
        """Lock the database within the context."""
        command = [sys.executable, "-c", LOCK, str(home() / "labels.sqlite")]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            yield
            process.communicate()


class StoppedServer:
    """PostgreSQL database whose server is stopped."""

    def __init__(self, server):
        self._server = server

    @contextlib.contextmanager
    def outage(self):
        """Stop the server within the context."""
        self._server.stop()
        try:
            yield
        finally:
            self._server.start()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request, make_database, monkeypatch):
    home().mkdir(mode=0o700)
    if request.param == "sqlite":
        make_database(home() / "labels.sqlite")
        yield LockedFile()
        return
    postgres.require_postgres()
    server = postgres.RestartableServer()
    monkeypatch.setenv("RL_TEACHER_DATABASE_URL", server.server.new_database())
    yield StoppedServer(server)
    server.close()


@pytest.fixture
def shown(monkeypatch):
    """Return the list of statuses that the terminal shows."""
    lines = []
    monkeypatch.setattr(
        "rl_teacher.report.progress.Progress.status", lambda _, text: lines.append(text)
    )
    return lines


def num_answered():
    # The short timeout of the test is valid here too: a busy database is asked again.
    with contextlib.suppress(StoreUnavailable), open_store() as store:
        return sum(each.answered for each in store.experiments.all())
    return 0


@pytest.mark.parametrize(
    ("database", "seconds"),
    [
        pytest.param("sqlite", 3, marks=pytest.mark.slow),
        pytest.param("postgres", 3, marks=pytest.mark.postgres),
        pytest.param("sqlite", 60, marks=pytest.mark.slow),
        pytest.param("postgres", 60, marks=[pytest.mark.slow, pytest.mark.postgres]),
    ],
    indirect=["database"],
)
def test_run_waits_for_its_database_and_loses_nothing(database, shown, seconds, monkeypatch):
    if seconds < 60:
        # Bound when the method was defined.
        monkeypatch.setitem(Store.open.__func__.__kwdefaults__, "busy_timeout_s", 0.2)
    credentials = set_up_labelers()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = f"-m rl_teacher.cli serve --port {port} --no-browser".split()
    with kept([sys.executable, *serve]) as service:
        await_(lambda: answers(url))
        with running(HUMAN) as run, labelling(url, credentials) as labelers:
            # Early, so that a short run has not ended by then on a slow machine.
            await_(lambda: num_answered() >= 1)
            with database.outage():
                began_s = time.monotonic()
                assert_labels_are_refused(url, credentials)
                await_(lambda: shown[-1].startswith(WAITING))
                time.sleep(max(0.0, seconds - (time.monotonic() - began_s)))
            await_(lambda: run.outcome is not None)
        assert [each.error for each in labelers] == [None] * len(labelers)
        assert not service.codes
        assert service.stop() == 0
    assert run.outcome.is_finished
    assert_nothing_is_lost_or_doubled(labelers)


def assert_labels_are_refused(url, credentials):
    """Check that a request is answered with 503 and the time after which to repeat it."""
    (_, credential), *_ = credentials
    headers = {"Authorization": f"Bearer {credential}"}
    path = f"{url}/api/v1/experiments/crash/comparisons/next"
    response = httpx.get(path, headers=headers, timeout=30.0, trust_env=False)
    assert response.status_code == 503, response.text
    assert int(response.headers["Retry-After"]) > 0
    assert response.json()["title"] == "Storage not available"


def assert_nothing_is_lost_or_doubled(labelers):
    with open_store() as store:
        view = store.experiments.get("crash")
        stored = [*store.labels.export(view.id)]
        rows = [each.row for each in store.metrics.after(view.id)]
    assert_acknowledged_labels_are_stored(labelers, stored)
    assert rows == Experiment.find("crash").metrics()
    assert len({row["wall_s"] for row in rows}) == len(rows)
    assert rows[-1]["labels_answered"] == view.answered == HUMAN.n_labels
    assert [fault for check in examine() for fault in check.faults] == []


def test_run_whose_database_does_not_come_back_ends_and_continues(
    make_database, capsys, monkeypatch
):
    make_database(home() / "labels.sqlite")
    monkeypatch.setattr("rl_teacher.session.DatabaseWait", lambda: DatabaseWait(0.5, 0.1))
    monkeypatch.setitem(Store.open.__func__.__kwdefaults__, "busy_timeout_s", 0.1)
    command = ["teach", "-p", "synth", "-e", "ShortReacher-v1", "-n", "one", "-t", "8192"]
    small = ["-l", "20", "-i", "40", "-c", "1", "--ppo.num-envs", "16", "--ppo.rollout-steps", "32"]
    command += [*small, "--reward.hidden", "16", "--no-tensorboard", "--checkpoint-seconds", "0"]
    save, other = Experiment.save_checkpoint, []

    def save_and_lock(self, step, arrays, meta):
        save(self, step, arrays, meta)
        if step >= 2048 and not other:
            other.append(sqlite3.connect(home() / "labels.sqlite", isolation_level=None))
            other[0].execute("BEGIN IMMEDIATE")

    monkeypatch.setattr(Experiment, "save_checkpoint", save_and_lock)
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "another process has held it locked" in error
    assert "has waited for 1 s; the same command continues it." in error
    assert "The last checkpoint is of step" in error
    other[0].close()
    # The lock of the experiment could not be released in the database.
    monkeypatch.setattr("rl_teacher.store.experiment_locks.STALE_AFTER", timedelta(0))
    assert main(command) == 0


def jumping_clock():
    """Return a time that is an hour early, right or an hour late, in turn."""
    return datetime.now(UTC) + timedelta(hours=int(time.monotonic() * 4) % 3 - 1)


def label_claimed_comparisons(store, ended):
    """Answer what is claimed until the run has ended; return the answers by comparison."""
    given = {}
    while not ended():
        for view in store.experiments.all():
            for each in store.leases.claim(view.id, "Ada", 2):
                label = NewLabel(each.comparison.id, Answer.LEFT, "Ada", lease=each.lease)
                assert store.labels.add_many([label]) == {}
                given[each.comparison.id] = Answer.LEFT
        time.sleep(0.05)
    return given


def test_run_and_labeler_continue_while_the_clock_jumps(make_database, monkeypatch):
    make_database(home() / "labels.sqlite")
    monkeypatch.setitem(Store.open.__func__.__kwdefaults__, "now", jumping_clock)
    with open_store() as store, running(HUMAN) as run:
        given = label_claimed_comparisons(
            store, lambda: run.outcome is not None or run.error is not None
        )
    assert run.outcome.is_finished
    with open_store() as store:
        assert len(given) == HUMAN.n_labels
        assert store.labels.answers(given) == given
        rows = [each.row for each in store.metrics.after(1)]
    walls = [row["wall_s"] for row in rows]
    assert walls == sorted(walls)
    assert all(value >= 0 for row in rows for key, value in row.items() if key.endswith("_s"))
