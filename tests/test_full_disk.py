"""A disk that is full, or becomes full: nothing acknowledged is lost, and runs continue.

Limits of the size of a file and of a database take no privileges: a write is cut off in the middle
by the operating system or by SQLite. A file system that is really full has to be mounted.
"""

import contextlib
import errno
import os
import resource
import subprocess
import sys

import jaxtyping
import pytest

from rl_teacher.cli import main
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.report import plot
from rl_teacher.runs.doctor import examine
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.runs.history import PolicyHistory
from rl_teacher.runs.metrics_file import MetricsFile
from rl_teacher.store.checkpoints import CheckpointFiles
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.metrics import MetricsLog
from tests.test_crashes import (
    TEACH,
    TRAINER,
    answers,
    assert_acknowledged_labels_are_stored,
    await_,
    free_port,
    kept,
    labelling,
    set_up_labelers,
)
from tests.test_teach import curve, policies, saved_step, wait_for_checkpoint

pytestmark = pytest.mark.usefixtures("_shapes_unchecked", "_no_page")

COMMAND = [
    *("teach", "-p", "synth", "-e", "ShortReacher-v1", "-n", "one", "-t", "8192", "-l", "24"),
    *("-i", "40", "-c", "1", "--ppo.num-envs", "16", "--ppo.rollout-steps", "32"),
    *("--reward.hidden", "16", "--no-tensorboard", "--checkpoint-seconds", "0"),
]


@contextlib.contextmanager
def trained_home(folder, command):
    """Train in a home folder of its own, for all tests of a module; it is the home within."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RL_TEACHER_HOME", str(folder))
        patched.setattr(jaxtyping.config, "jaxtyping_disable", True)
        patched.setattr(plot, "plot", lambda curves, path: path)
        assert main(command) == 0
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Curve and policies of an uninterrupted run of `COMMAND`."""
    with trained_home(tmp_path_factory.mktemp("uninterrupted") / "home", COMMAND):
        return curve("one"), policies("one")


@contextlib.contextmanager
def largest_file(size_bytes):
    """Let no file grow beyond a size within the context; a longer write is cut off there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def at_call(monkeypatch, owner, name, number, fail):
    """Replace the call of a method of this number by `fail(self, call)`."""
    method, calls = getattr(owner, name), []

    def replaced(self, *args, **kwargs):
        calls.append(self)
        if len(calls) < number:
            return method(self, *args, **kwargs)
        return fail(self, lambda: method(self, *args, **kwargs))

    monkeypatch.setattr(owner, name, replaced)


def cut_off(size_bytes):
    """Return a replacement that makes a call while no file may exceed a size."""

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


def fail_to_write(_, __):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FULL = {
    "checkpoint": (CheckpointFiles, "save", 4, cut_off(20_000)),
    "metrics": (MetricsFile, "append", 4, cut_off_row),
    "segment": (SegmentFiles, "save", 14, cut_off(200)),
    "policy": (PolicyHistory, "add", 3, cut_off(200)),
    "predictor": (RewardPredictor, "save", 1, cut_off(200)),
    "plot": (plot, "plot", 1, fail_to_write),
    "database": (MetricsLog, "append", 4, append_until_full),
}
FAST = ("checkpoint", "database")
"""Kinds of files that the fast suite tests."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in FAST else [pytest.mark.slow]) for kind in FULL],
)
def test_run_whose_file_cannot_be_written_ends_and_the_same_command_continues(
    kind, uninterrupted, monkeypatch, capsys
):
    with monkeypatch.context() as patched:
        # Every step has a row of metrics.
        patched.setattr("rl_teacher.session.REPORT_EVERY_S", 0.0)
        at_call(patched, *FULL[kind])
        assert main(COMMAND) == 2
    error = capsys.readouterr().err
    assert "disk is full" in error or "exceed the largest size that is allowed" in error
    checkpoint = Experiment.find("one").load_checkpoint()
    if checkpoint is not None:
        assert f"The last checkpoint is of step {checkpoint.step:,}." in error
    assert main(COMMAND) == 0
    assert (curve("one"), policies("one")) == uninterrupted
    assert [fault for check in examine() for fault in check.faults] == []


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
    credentials = set_up_labelers()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = f"-m rl_teacher.cli serve --port {port} --no-browser".split()
    teach = [sys.executable, "-c", TRAINER, *TEACH.split()]
    with kept([sys.executable, *serve]) as service:
        await_(lambda: answers(url))
        with labelling(url, credentials) as labelers:
            with subprocess.Popen(teach, stderr=subprocess.PIPE, text=True) as trainer:
                wait_for_checkpoint("crash")
                with filled(disk):
                    _, error = trainer.communicate(timeout=60)
                    assert trainer.returncode == 2
                    assert "the disk is full" in error
            with subprocess.Popen(teach) as trainer:
                wait_for_checkpoint("crash", after=saved_step("crash"))
                trainer.terminate()
                assert trainer.wait(60) == 0
        assert [each.error for each in labelers] == [None] * len(labelers)
        assert service.stop() == 0
    with open_store() as store:
        stored = [*store.labels.export(store.experiments.get("crash").id)]
    assert_acknowledged_labels_are_stored(labelers, stored)
    assert [fault for check in examine() for fault in check.faults] == []
