"""Child processes for measurements, so that none is warmed up by an earlier one."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peer_environments import peer_command
from rl_teacher.common import parallel
from rl_teacher.envs.interface import environment_seeds

ROOT = Path(__file__).parent.parent
# Threads of NumPy would compete with those of the physics; the command line sets the same.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class ChildFailed(Exception):
    """A process ended with an error; the message has the end of its output."""


@dataclass(frozen=True)
class Finished:
    """Result of a finished process.

    Attributes:
        figures: metrics: the last JSON object it printed.
        wall_s: seconds from launch to exit.
        peak_mb: peak memory in MB of 10^6 bytes.
    """

    figures: dict[str, Any]
    wall_s: float
    peak_mb: float


class Child:
    """Running process with its output in files."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.began_s = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, **environment},
            stdout=self._output,
            stderr=self._errors,
        )

    @property
    def is_running(self) -> bool:
        """Return True until the process ends; it is not reaped, so `wait` can read its memory."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self) -> tuple[str, float, float]:
        """Wait for the end; return output, wall seconds and peak memory in MB.

        Raises:
            ChildFailed: the process ended with an error.
        """
        _, status, usage = os.wait4(self.process.pid, 0)
        wall_s = time.perf_counter() - self.began_s
        self.process.returncode = os.waitstatus_to_exitcode(status)
        output, errors = (_content(file) for file in (self._output, self._errors))
        if self.process.returncode != 0:
            command = " ".join(map(str, self.process.args))[:300]  # pyright: ignore[reportArgumentType, reportCallIssue]
            tail = (output + errors)[-3000:]
            raise ChildFailed(f"{command}\nended with {self.process.returncode}:\n{tail}")
        return output, wall_s, usage.ru_maxrss * _MAXRSS_UNIT / 1e6

    def close(self) -> None:
        """Kill the process if it still runs, and close the files of its output."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        self._output.close()
        self._errors.close()


_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def _content(file: Any) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


@contextmanager
def child(command: Sequence[str], **environment: str) -> Iterator[Child]:
    """Start a process that is killed at the end of the block."""
    started = Child(command, environment)
    try:
        yield started
    finally:
        started.close()


def finish(command: Sequence[str], **environment: str) -> Finished:
    """Run a process and return its result."""
    with child(command, **environment) as started:
        output, wall_s, peak_mb = started.wait()
    return Finished(last_json(output), wall_s, peak_mb)


def last_json(output: str) -> dict[str, Any]:
    """Parse the last line of output that is a JSON object.

    Raises:
        ChildFailed: there is no such line.
    """
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise ChildFailed(f"no line of JSON in:\n{output[-1000:]}")
    return json.loads(lines[-1])


def run_ours(job: str, home: str | Path | None = None, **settings: Any) -> Finished:
    """Run a job of `benchmarks._ours` in a new process.

    Args:
        job: name of the job.
        home: RL_TEACHER_HOME; a temporary folder by default.
        settings: arguments of the job, sent as JSON.
    """
    command = [sys.executable, "-m", "benchmarks._ours", job, json.dumps(settings)]
    if home is not None:
        return finish(command, RL_TEACHER_HOME=str(home))
    with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as folder:
        return finish(command, RL_TEACHER_HOME=folder)


def run_peer(peer: str, script: str, **settings: Any) -> Finished:
    """Run a script of a peer in a new process.

    The script gets a seed derived from the given one, since Stable-Baselines3 seeds environment i
    with seed + i: runs of adjacent seeds would share streams.

    Raises:
        ChildFailed: the run failed, or the installation of the peer.
    """
    job = {**settings, "seed": environment_seeds(settings["seed"], 1)[0]}
    try:
        command = peer_command(peer, script)
    except subprocess.CalledProcessError as error:
        raise ChildFailed(f"{peer} could not be installed: {error}") from error
    return finish([*command, json.dumps(job)])


def in_parallel(
    work: Callable[[Any], Any], items: Iterable[Any], num_parallel: int
) -> Iterator[tuple[Any, Any]]:
    """Yield each item with its result, in order of completion.

    Raises:
        ChildFailed: some items failed. It is raised after all others are finished.
    """
    failures: list[str] = []
    for item, finished in parallel.in_parallel(work, items, num_parallel):
        try:
            result = finished.result()
        except ChildFailed as error:
            print(f"failed: {error}", flush=True)
            failures.append(str(error).splitlines()[0])
        else:
            yield item, result
    if failures:
        raise ChildFailed(f"{len(failures)} failed:\n" + "\n".join(failures))
