"""Work done in fresh processes, so that nothing measured has been warmed by what came before."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peer_environments import peer_command

ROOT = Path(__file__).parent.parent
UNFINISHED = Path(__file__).parent / ".unfinished"
# Note: NumPy's threads and the physics' would fight for the cores; the command line says the same.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class ChildFailed(Exception):
    """A process ended with an error; the text has the end of what it printed."""


@dataclass(frozen=True)
class Finished:
    """A process that is done.

    Attributes:
        figures: the JSON object it printed last.
        wall_s: from its launch to its end.
        peak_mb: the most memory it held, in MB of 10^6 bytes.
    """

    figures: dict[str, Any]
    wall_s: float
    peak_mb: float


class Child:
    """A process under way, with its output in files."""

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
        """Whether it has not ended yet. Note: does not wait, so that `wait` can ask for memory."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self) -> tuple[str, float, float]:
        """What it printed, its wall seconds, and its peak memory in MB.

        Raises:
            ChildFailed: it ended with an error.
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

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()


_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def _content(file: Any) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


@contextmanager
def child(command: Sequence[str], **environment: str) -> Iterator[Child]:
    """A process that does not outlive the block."""
    started = Child(command, environment)
    try:
        yield started
    finally:
        started.kill()


def finish(command: Sequence[str], **environment: str) -> Finished:
    """Run a process to its end."""
    with child(command, **environment) as started:
        output, wall_s, peak_mb = started.wait()
    return Finished(last_json(output), wall_s, peak_mb)


def last_json(output: str) -> dict[str, Any]:
    """The last line that is a JSON object."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise ChildFailed(f"no line of JSON in:\n{output[-1000:]}")
    return json.loads(lines[-1])


def run_ours(job: str, home: str | Path | None = None, **settings: Any) -> Finished:
    """A job of `benchmarks._ours` in a fresh process.

    Args:
        job: its name.
        home: RL_TEACHER_HOME; an empty folder, gone afterwards, without it.
        settings: what the job is told, as JSON.
    """
    command = [sys.executable, "-m", "benchmarks._ours", job, json.dumps(settings)]
    if home is not None:
        return finish(command, RL_TEACHER_HOME=str(home))
    with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as folder:
        return finish(command, RL_TEACHER_HOME=folder)


def continue_ours(name: str, job: str, **settings: Any) -> Finished:
    """The same of a job that takes hours: stopped, and asked for again, it goes on.

    Args:
        name: under which its experiment is kept until it is done.
        job: likewise.
        settings: likewise.
    """
    home = UNFINISHED / name
    home.mkdir(parents=True, exist_ok=True)
    finished = run_ours(job, home, **settings)
    shutil.rmtree(home)
    return finished


def run_peer(peer: str, script: str, **settings: Any) -> Finished:
    """A script of a peer in a fresh process."""
    return finish([*peer_command(peer, script), json.dumps(settings)])


def in_parallel(
    work: Callable[[Any], Any], items: Iterable[Any], num_parallel: int
) -> Iterator[tuple[Any, Any]]:
    """Each item with what came of it, as they get done; failures come last, all in one.

    Raises:
        ChildFailed: some failed; the others were done all the same.
    """
    failures: list[str] = []
    with ThreadPoolExecutor(num_parallel) as pool:
        futures = {pool.submit(work, item): item for item in items}
        try:
            for future in as_completed(futures):
                try:
                    yield futures[future], future.result()
                except ChildFailed as error:
                    print(f"failed: {error}", flush=True)
                    failures.append(str(error).splitlines()[0])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        raise ChildFailed(f"{len(failures)} failed:\n" + "\n".join(failures))
