"""Service processes of training runs that end normally or are killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from rl_teacher.config.experiment import PageOptions
from rl_teacher.runs.folder import home
from rl_teacher.web import service_process
from rl_teacher.web.address import running_service, running_services
from rl_teacher.web.service_process import PageService

OPTIONS = PageOptions(port=0)
TIMEOUT_S = 30.0

RUN = """
import sys
from rl_teacher.web import service_process
from rl_teacher.config.experiment import PageOptions
service_process.END_AFTER_S = float(sys.argv[1])
service_process.END_TIMEOUT_S = 60.0
print("ready", flush=True)
sys.stdin.readline()
page = service_process.PageService(PageOptions(port=0))
print(page.link("mine", True), flush=True)
sys.stdin.read()
page.close()
"""


class Run:
    """Training run in a subprocess that only shows its page.

    Imports are done in advance, because on a busy machine they take longer than the service waits.
    """

    def __init__(self, end_after_s):
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(end_after_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._read_line() == "ready"
        self.link = ""

    def show_page(self):
        """Show the page and store its link."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"begin\n")
        self.process.stdin.flush()
        self.link = self._read_line()
        return self

    def _read_line(self):
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def end(self):
        """End the run normally and return its exit code."""
        self.process.communicate()
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.communicate()


def has_ended(service):
    """Wait until the service has stopped and return whether it has."""
    deadline = time.monotonic() + TIMEOUT_S
    while running_service() == service:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def service_of(run):
    service = running_service()
    assert service is not None
    assert run.link.startswith(service.url)
    return service


@pytest.fixture(autouse=True)
def _kill_remaining_service():
    yield
    service = running_service()
    if service is not None:
        os.kill(service.pid, signal.SIGKILL)


def test_run_stops_the_service_it_started():
    run = Run(end_after_s=1000).show_page()
    service = service_of(run)
    assert run.end() == 0
    assert running_service() is None
    assert list((home() / "services").iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(service.pid, 0)


@pytest.mark.slow
def test_service_of_killed_run_is_reused_by_next_run():
    again = Run(end_after_s=1000)
    killed = Run(end_after_s=2).show_page()
    service = service_of(killed)
    killed.kill()
    again.show_page()
    assert again.link == killed.link
    assert running_service() == service
    time.sleep(3)  # longer than its timeout without a run
    assert running_service() == service
    assert again.end() == 0
    assert has_ended(service)
    assert list((home() / "services").iterdir()) == []


def test_shared_service_outlives_the_run_that_started_it(monkeypatch):
    first = Run(end_after_s=0.5).show_page()
    service = service_of(first)
    second = PageService(OPTIONS)
    assert second.link("other", labels=False).startswith(service.url)
    assert first.end() == 0
    time.sleep(1)  # longer than its timeout without a run
    assert running_service() == service
    second.close()
    assert has_ended(service)


def test_runs_that_start_at_once_share_one_service(monkeypatch):
    # If the run that started the service ends first, the service ends by itself.
    monkeypatch.setattr(service_process, "END_AFTER_S", 0.5)
    pages = [PageService(OPTIONS), PageService(OPTIONS)]  # neither finds a service
    deadline = time.monotonic() + TIMEOUT_S
    while len(list(running_services())) < len(pages) and time.monotonic() < deadline:
        time.sleep(0.001)
    *_, service = running_services()
    links = {page.link("mine", labels=True) for page in pages}
    assert len(links) == 1
    assert links.pop().startswith(service.url)
    assert list(running_services()) == [service]
    for page in pages:
        page.close()
    assert has_ended(service)
    for page in pages:
        if page._process is not None:  # it ended by itself: read its exit code
            page._process.wait(TIMEOUT_S)


@pytest.mark.parametrize(("earlier", "kept"), [(999_999, 999_999), (1_000_000, 0)])
def test_errors_of_earlier_services_are_bounded(tmp_path, monkeypatch, earlier, kept):
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: command)
    errors = tmp_path / "errors.log"
    errors.write_bytes(b"x" * earlier)
    service_process.start_service(OPTIONS, errors)
    assert errors.stat().st_size == kept
