"""State that several processes share through a file."""

import signal
import subprocess
import sys
import threading

import pytest

from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.web.shared_state import SharedState, Take
from tests.web.conftest import assert_problem

KILLED_WHILE_WRITING = """
import os, signal, sys
from rl_teacher.web.shared_state import SharedState, Take
shared = SharedState(sys.argv[1], 2)
shared.add_stream("ann", 20)
shared._execute("BEGIN IMMEDIATE")
shared._execute("DELETE FROM streams")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.sqlite"


def take(shared, now_s=100.0):
    """Take one of 50 requests, of which one returns every second."""
    [wait_s] = shared.take([Take("requests", "ann", now_s, cost_s=1.0, room_s=49.0)])
    return wait_s


def test_racing_processes_share_a_bucket(path):
    accepted = []

    def race(shared):
        accepted.extend(take(shared) == 0 for _ in range(100))

    threads = [threading.Thread(target=race, args=(SharedState(path, n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) == 400
    assert accepted.count(True) == 50


def test_racing_processes_use_a_code_once(path):
    used = []

    def race(shared):
        used.extend(shared.use_code(f"code {n}", 100.0, 0.0) for n in range(50))

    threads = [threading.Thread(target=race, args=(SharedState(path, n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used.count(True) == 50


def test_restarted_process_forgets_only_its_own_streams(path):
    one, two = SharedState(path, 1), SharedState(path, 2)
    opened = [shared.add_stream("ann", 3) for shared in (one, two, two, one)]
    assert opened[0] is not None
    assert opened[3] is None
    again = SharedState(path, 2)
    assert [again.add_stream("ann", 3) is None for _ in range(3)] == [False, False, True]
    one.remove_stream(opened[0])
    assert again.add_stream("ann", 3) is not None


def test_process_killed_while_writing_blocks_no_other(path):
    shared = SharedState(path, 1)
    shared.add_stream("ann", 20)
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert shared.add_stream("ann", 3) is not None
    assert shared.add_stream("ann", 3) is None  # the stream of the killed one is still there


def test_requests_of_all_processes_are_counted(path):
    for number, status in ((1, 200), (2, 200), (2, 404)):
        shared = SharedState(path, number)
        shared.count_request(status, 0.25)
        shared.write_counts()
    assert SharedState(path, 3).requests() == [(200, 2, 0.5), (404, 1, 0.25)]


def test_requests_that_cannot_be_written_are_counted_later(path):
    shared = SharedState(path)
    shared.count_request(503, 0.25)
    shared._execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable):
        shared.write_counts()
    shared._execute("PRAGMA query_only = OFF")
    shared.count_request(503, 0.25)
    assert shared.requests() == [(503, 2, 0.5)]


def test_state_that_cannot_be_written_is_reported(app, program):
    shared = app.state.services.shared
    shared._execute("PRAGMA query_only = ON")
    assert "RL_TEACHER_HOME" in assert_problem(program.get("/api/v1/me"), 503)
    with pytest.raises(StoreUnavailable, match="readonly"):
        shared.requests()
    shared._execute("PRAGMA query_only = OFF")
    assert program.get("/api/v1/me").status_code == 200
