"""Tests with real processes that race for one database or are killed while writing."""

import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.store.checkpoints import CheckpointFiles
from rl_teacher.store.lock import FolderLock, SharedLock, is_locked
from rl_teacher.store.store import Store
from tests.store.comparisons import counts

PREAMBLE = """
import hashlib, sys
from pathlib import Path
import numpy as np
from rl_teacher.clips.answer import Answer
from rl_teacher.store.store import Store
from rl_teacher.store.checkpoints import Checkpoint, CheckpointFiles
from rl_teacher.store.lock import FolderLock

def clip(name):
    return hashlib.sha256(str(name).encode()).hexdigest()

def say(text):
    print(text, flush=True)

folder = Path(sys.argv[1])
"""


def start(program, place, *args):
    """Start a program with a folder or a database URL as argument."""
    source = PREAMBLE + textwrap.dedent(program)
    return subprocess.Popen(
        [sys.executable, "-c", source, str(place), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_line(process):
    assert process.stdout is not None
    return process.stdout.readline()


def kill_after(process, num_lines, then_s):
    """Kill a process shortly after its n-th line and return all complete lines."""
    lines = [read_line(process) for _ in range(num_lines)]
    time.sleep(then_s)
    process.send_signal(signal.SIGKILL)
    rest, error = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL, error
    written = "".join(lines) + rest
    return written[: written.rfind("\n")].splitlines()


def finish(process):
    output, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    return output.split()


LABEL_FOR_EVER = """
with Store.open(sys.argv[1], is_synced=sys.argv[2] == "synced") as store:
    experiment_id = store.experiments.ensure("x", "E", {})
    for number in range(10**9):
        pairs = [(clip(f"{number} left"), clip(f"{number} right"))]
        [comparison_id] = store.comparisons.add(experiment_id, pairs, "E", 30, number)
        answer = list(Answer)[number % 4]
        store.labels.add(comparison_id, answer, "oracle")
        say(f"{comparison_id} {answer}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["synced", "unsynced"])
def test_acknowledged_labels_survive_sigkill(url, durability):
    acknowledged = kill_after(start(LABEL_FOR_EVER, url, durability), 50, then_s=0.0037)
    expected = {int(line.split()[0]): Answer(line.split()[1]) for line in acknowledged}
    with Store.open(url) as store:
        assert store.labels.answers(expected) == expected
    assert len(expected) >= 50


CHECKPOINT_FOR_EVER = """
files = CheckpointFiles(folder)
for step in range(1, 10**9):
    arrays = {"weights": np.full((250, 1000), step, np.float32)}
    files.save(Checkpoint(step, arrays, {"step again": step}))
    say(step)
"""


@pytest.mark.slow
@pytest.mark.parametrize("then_s", [0.004, 0.009])
def test_sigkill_while_writing_keeps_last_checkpoint(tmp_path, then_s):
    saved = kill_after(start(CHECKPOINT_FOR_EVER, tmp_path), 10, then_s)
    checkpoint = CheckpointFiles(tmp_path).load()
    assert checkpoint is not None
    assert checkpoint.step >= int(saved[-1])
    assert checkpoint.meta == {"step again": checkpoint.step}
    assert np.all(checkpoint.arrays["weights"] == checkpoint.step)


ASK_THE_SAME = """
with Store.open(sys.argv[1]) as store:
    experiment_id = store.experiments.ensure("x", "E", {})
    for number in range(40):
        pairs = [(clip(number + side), clip(number + side + 1)) for side in (0, 1)]
        ids = store.comparisons.add(experiment_id, pairs, "E", 30, number)
        store.labels.add(ids[0], Answer.LEFT, sys.argv[2])
        say(ids[0])
"""


@pytest.mark.slow
def test_racing_processes_agree_on_ids_and_keep_all_labels(url):
    """The processes also race to create the database and its tables."""
    racers = [start(ASK_THE_SAME, url, f"racer {number}") for number in range(3)]
    ids = [finish(racer) for racer in racers]
    assert ids[0] == ids[1] == ids[2]
    with Store.open(url) as store:
        experiment_id = store.experiments.ensure("x", "E", {})
        assert counts(store, experiment_id)[0] == 41
        with store.database.reading() as connection:
            count = connection.exec_driver_sql("SELECT count(*) FROM labels").scalar()
    assert count == 3 * 40


HOLD_THE_LOCK = """
lock = FolderLock(folder / "lock")
say(lock.acquire())
lock.sign()
say("signed")
import time
time.sleep(60)
"""


def test_killed_process_releases_lock(tmp_path):
    holder = start(HOLD_THE_LOCK, tmp_path)
    assert read_line(holder) == "True\n"
    assert read_line(holder) == "signed\n"
    lock = FolderLock(tmp_path / "lock")
    assert is_locked(lock.path)
    assert not lock.acquire(timeout_s=0.0)
    assert lock.holder == f"process {holder.pid}"
    holder.kill()
    holder.communicate()
    assert not is_locked(lock.path)
    assert lock.acquire()
    lock.release()


def test_shared_locks_exclude_exclusive_lock(tmp_path):
    one, two = SharedLock(tmp_path / "lock"), SharedLock(tmp_path / "lock")
    alone = FolderLock(tmp_path / "lock")
    assert one.acquire()
    assert two.acquire()
    one.release()
    assert not alone.acquire(timeout_s=0.0)
    two.release()
    assert alone.acquire(timeout_s=0.0)
    assert not one.acquire(timeout_s=0.0)
    alone.release()
    assert one.acquire(timeout_s=0.0)
    one.release()
