"""Subprocesses of the command line: the service and training runs."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rl_teacher.store.database import default_url
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web.address import Address, access_token, await_service, label_path

RL_TEACHER = (sys.executable, "-m", "rl_teacher.cli")
END_TIMEOUT_S = 60.0
LAUNCH_TIMEOUT_S = 120.0
LOOK_EVERY_S = 0.02


class Running:
    """Running `rl-teacher` command.

    Attributes:
        home: RL_TEACHER_HOME of the process.
        output: File with its standard output and error.
        process: The process.
    """

    def __init__(self, home: Path, name: str, *arguments: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home, self.output = home, home / f"{name}.txt"
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*RL_TEACHER, *arguments],
                env=os.environ | {"RL_TEACHER_HOME": str(home), "COLUMNS": "100"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Return whether the process is running."""
        return self.process.poll() is None

    def printed(self) -> str:
        """Return the output so far."""
        return self.output.read_text(errors="replace")

    def printed_link(self) -> str:
        """Wait until the link to the page is printed and return it, with the token."""
        deadline = time.monotonic() + LAUNCH_TIMEOUT_S
        while time.monotonic() < deadline and self.is_running:
            found = re.search(r"page: (http\S+)", self.printed())
            if found:
                separator = "&" if "?" in found.group(1) else "?"
                return f"{found.group(1)}{separator}token={access_token(self.home)}"
            time.sleep(LOOK_EVERY_S)
        raise TimeoutError(f"no link was printed:\n{self.printed()[-2000:]}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait, and return the exit code."""
        if self.is_running:
            self.process.send_signal(number)
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Service(Running):
    """`rl-teacher serve`.

    Attributes:
        address: Address of the service.
    """

    def __init__(self, home: Path, port: int = 0) -> None:
        super().__init__(home, "service", "serve", "--no-browser", "--port", str(port))
        with as_home(home):
            self.address: Address = await_service(self.process)
            self.token = access_token(home)

    def link(self, path: str = "/") -> str:
        """Return the link to a path, with the token."""
        return f"{self.address.url}{path}{'&' if '?' in path else '?'}token={self.token}"

    def label_link(self, name: str) -> str:
        """Return the link to the labelling page of an experiment."""
        return self.link(label_path(name))


@contextmanager
def as_home(home: Path) -> Iterator[None]:
    """Set RL_TEACHER_HOME of this process within the context."""
    before = os.environ.get("RL_TEACHER_HOME")
    os.environ["RL_TEACHER_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["RL_TEACHER_HOME"]
        else:
            os.environ["RL_TEACHER_HOME"] = before


def open_store(home: Path) -> Store:
    """Open the store of a home."""
    return Store.open(default_url(home))


def media_of(home: Path) -> MediaFiles:
    """Return the media files of a home."""
    return MediaFiles(home / "media")
