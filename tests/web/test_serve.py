"""Service in a subprocess with sockets and signals."""

import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from rl_teacher.common.errors import BadInput
from rl_teacher.store.database import default_url
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web import service_log
from rl_teacher.web.address import (
    access_token,
    await_service,
    link,
    running_service,
    service_proof,
)
from rl_teacher.web.serve import listening
from rl_teacher.web.service_process import open_in_browser
from tests.store.comparisons import counts
from tests.web.conftest import Trainer, label

CODE = """
import logging, sys
from rl_teacher.web import serve
from rl_teacher.config.experiment import PageOptions
logging.basicConfig(level=logging.DEBUG)
serve.HEADER_TIMEOUT_S = 1
sys.exit(serve.serve(PageOptions(port=0, no_browser=True)))
"""


class Running:
    """Running service and its output."""

    def __init__(self, home, code=CODE):
        self.home = home
        self.output, self.log = home / "output.txt", home / "log.txt"
        with self.output.open("wb") as output, self.log.open("wb") as log:
            environment = os.environ | {"RL_TEACHER_HOME": str(home)}
            command = [sys.executable, "-c", code]
            self.process = subprocess.Popen(command, stdout=output, stderr=log, env=environment)
        self.address = await_service(self.process)
        self.token = access_token(home)
        headers = {"Authorization": f"Bearer {self.token}"}
        self.client = httpx.Client(base_url=self.address.url, headers=headers, trust_env=False)

    def requests(self):
        """Return the request log."""
        return (self.home / "logs" / "service.log").read_text()

    def stop(self, number=signal.SIGTERM):
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def close(self):
        self.client.close()
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)


@pytest.fixture
def home(home):
    home.mkdir()
    return home


@pytest.fixture
def trainer(home):
    with Store.open(default_url(home)) as store:
        yield Trainer(store, MediaFiles(home / "media"))


@pytest.fixture
def service(home):
    running = Running(home)
    yield running
    running.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Service that several tests share; none of them may stop it."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TEACHER_HOME", str(home))
        running = Running(home)
    yield running
    running.close()


@contextlib.contextmanager
def raw_connection(service):
    place = (service.address.host, service.address.port)
    with socket.create_connection(place, timeout=30) as connection:
        yield connection


def test_open_streams_count_until_they_end(shared):
    url = "/api/v1/events"
    with contextlib.ExitStack() as opened:
        for _ in range(20):
            assert opened.enter_context(shared.client.stream("GET", url)).status_code == 200
        assert shared.client.get(url).status_code == 429
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        with shared.client.stream("GET", url) as response:
            if response.status_code == 200:
                return
        time.sleep(0.05)
    pytest.fail("closed streams still count")


def raw_response(service, request):
    """Send raw bytes and return the first bytes of the response."""
    with raw_connection(service) as connection:
        connection.sendall(request)
        return connection.recv(4096)


class EventReader:
    """Background reader of server-sent events."""

    def __init__(self, service, path="/api/v1/events?experiment=hopper"):
        self.events = []
        self.ended = threading.Event()
        self._arrived = threading.Condition()
        self._service, self._path = service, path
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        kind = None
        with (
            contextlib.suppress(httpx.HTTPError),
            self._service.client.stream("GET", self._path, timeout=30) as response,
        ):
            assert response.headers["content-type"].startswith("text/event-stream")
            assert response.headers["cache-control"] == "no-cache"
            for line in response.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    with self._arrived:
                        self.events.append((kind, json.loads(line.removeprefix("data: "))))
                        self._arrived.notify_all()
        self.ended.set()

    def wait_for(self, is_it):
        """Wait for the first event that matches and return it."""

        def found():
            return next((event for event in self.events if is_it(*event)), None)

        with self._arrived:
            event = self._arrived.wait_for(found, timeout=20)
            assert event is not None, self.events
            return event


class TestStarting:
    def test_service_prints_link_and_publishes_address(self, shared, monkeypatch):
        monkeypatch.setenv("RL_TEACHER_HOME", str(shared.home))
        assert running_service() == shared.address
        assert shared.address.pid == shared.process.pid
        assert link(shared.address) in shared.output.read_text()
        nonce = "0123456789abcdef" * 2
        health = shared.client.get("/healthz", params={"nonce": nonce}).json()
        assert health["instance"] == shared.address.instance
        proof = service_proof(shared.token, shared.address.instance, nonce)
        assert health["proof"] == proof

    @pytest.mark.parametrize(
        ("host", "port", "expected"),
        [
            ("127.0.0.1", 65_536, "65535"),
            ("127.0.0.1", -1, "-1"),
            ("192.0.2.1", 8765, "--host 127.0.0.1"),
            ("no such host", 8765, "no such host"),
            ("x" * 300, 8765, "--host"),
        ],
    )
    def test_unavailable_address_is_reported(self, host, port, expected):
        with pytest.raises(BadInput, match=expected), listening(host, port):
            pytest.fail("it listens")

    def test_browser_is_not_opened_without_display(self, monkeypatch):
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.delenv("DISPLAY", raising=False)
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        assert open_in_browser("http://127.0.0.1:1/") is False


class TestStopping:
    @pytest.mark.parametrize(
        "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
    )
    def test_signal_stops_service_with_open_streams(self, service, trainer, home, number):
        listeners = [EventReader(service) for _ in range(3)] + [
            EventReader(service, "/api/v1/events")
        ]
        for listener in listeners:
            listener.wait_for(lambda kind, _: kind == "experiment")
        assert service.stop(number) == 0
        assert all(listener.ended.wait(10) for listener in listeners)
        assert "Cancel" not in service.log.read_text()
        # It has removed the file with its address.
        assert list((home / "services").iterdir()) == []

    def test_killed_service_is_not_found_and_the_next_one_keeps_labels_and_token(
        self, service, trainer, home
    ):
        one, two = trainer.ask(2)
        given = label(one)
        service.client.post("/api/v1/labels", json={"labels": [given]})
        service.stop(signal.SIGKILL)
        assert len(list((home / "services").iterdir())) == 1
        assert running_service() is None
        again = Running(home)
        assert again.token == service.token
        receipt = again.client.post("/api/v1/labels", json={"labels": [given, label(two)]}).json()
        assert len(receipt["accepted"]) == 2
        assert counts(trainer.store, trainer.id)[1] == 2
        again.close()


class TestEvents:
    def test_events_report_changes_by_run_and_other_pages(self, service, trainer):
        listener = EventReader(service)
        listener.wait_for(lambda kind, _: kind == "experiment")
        [comparison_id] = trainer.ask()
        listener.wait_for(lambda _, data: data.get("progress", {}).get("waiting") == 1)
        service.client.post("/api/v1/labels", json={"labels": [label(comparison_id)]})
        listener.wait_for(lambda _, data: data.get("progress", {}).get("mine") == 1)
        trainer.store.metrics.append(trainer.id, 64, {"true_return": 2.5})
        listener.wait_for(lambda _, data: data.get("sparkline") == [2.5])
        episode = {"clip": trainer.add_clip("latest"), "step": 64}
        trainer.store.experiments.set_latest_episode(trainer.id, episode)
        listener.wait_for(lambda _, data: data.get("latest_episode") is not None)


class TestSecrets:
    def test_log_contains_neither_token_nor_line_breaks_of_paths(self, service, trainer):
        token, client = service.token, service.client
        with httpx.Client(base_url=service.address.url, trust_env=False) as browser:
            assert browser.get(f"/?token={token}").status_code == 303
            assert browser.get(f"/e/x/label?a=1&token={token}").status_code == 303
            assert browser.get("/api/v1/experiments").status_code == 200
            browser.get(f"/api/v1/experiments?token={token}")
            browser.get(f"/?token={token}x")
            browser.get(f"/e/x%3Ftoken={token}")
            browser.get(f"/e/x%3ftoken={token}", headers={"Referer": f"http://x/?token={token}"})
            browser.post("/api/v1/labels", json={"labels": [label(1)]})
        client.get("/api/v1/experiments/none")
        client.post("/api/v1/labels", content=b"{")
        raw_response(service, f"GET /?token={token} HTTP/9.9\r\n\r\n".encode())
        raw_response(service, f"GET /?token={token} HTTP/1.1\r\nBad header: x\r\n\r\n".encode())
        raw_response(service, f"Authorization: Bearer {token}\r\n\r\n".encode())
        client.get("/e/x%0AINFO:forged")
        service.stop()
        for log in (service.log.read_text(), service.requests()):
            assert "GET /e/x/label 303" in log
            assert token not in log
            # The line break is escaped.
            assert "INFO:forged" in log
            assert "\nINFO:forged" not in log
        assert token not in service.output.read_text().replace(link(service.address), "")


class TestRequestLog:
    def test_request_log_has_one_line_per_request_without_query_also_after_restart(
        self, service, home
    ):
        service.client.get("/healthz?verbose=1")
        service.client.get("/api/v1/experiments/none")
        service.client.post("/api/v1/labels", json={"labels": []})
        service.stop()
        when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO"
        lines = [line for line in service.requests().splitlines() if "/api/" in line or "?" in line]
        expected = ["GET /api/v1/experiments/none 404", "POST /api/v1/labels 200"]
        assert len(lines) == len(expected)
        for line, request in zip(lines, expected, strict=True):
            assert re.fullmatch(rf"{when} {re.escape(request)} \d+ ms", line)
        assert "GET /healthz 200" in service.requests()
        before = service.requests()
        again = Running(home)
        again.client.get("/api/v1/experiments/two")
        again.stop()
        again.close()
        assert again.requests().startswith(before)
        assert "/two 404" in again.requests()

    def test_request_log_rotates_and_keeps_a_few_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(service_log, "MAX_LOG_BYTES", 1_000)
        with service_log.request_log(tmp_path):
            for number in range(500):
                logging.getLogger("rl_teacher.web.middleware").info("GET /%d 200 1 ms", number)
        files = sorted((tmp_path / "logs").iterdir())
        names = ["service.log", "service.log.1", "service.log.2", "service.log.3"]
        assert [file.name for file in files] == names
        assert all(file.stat().st_size <= 1_000 for file in files)
        assert "GET /499 200" in files[0].read_text()

    def test_service_without_terminal_warns_in_its_log_only(self, tmp_path, capsys):
        with service_log.request_log(tmp_path, has_terminal=False):
            logging.getLogger("rl_teacher.web.poller").warning("the store is gone")
        assert capsys.readouterr().err == ""
        assert "WARNING the store is gone" in (tmp_path / "logs" / "service.log").read_text()


class TestMaliciousClients:
    def test_large_chunked_body_is_rejected_while_reading(self, shared):
        head = (
            "POST /api/v1/labels HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {shared.token}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        num_sent = 0
        with raw_connection(shared) as connection:
            connection.sendall(head.encode())
            with contextlib.suppress(ConnectionError):
                for _ in range(1600):
                    connection.sendall(chunk)
                    num_sent += len(chunk)
            answer = connection.recv(4096)
        assert b" 413 " in answer.splitlines()[0]
        assert b"application/problem+json" in answer
        assert num_sent < 50_000_000
        assert shared.client.get("/healthz").status_code == 200

    @pytest.mark.parametrize(
        "path",
        [
            *("/assets/../serve.py", "/assets/..%2f..%2fserve.py", "/e/../../serve.py"),
            *("/../../../../etc/passwd", "//etc/passwd"),
        ],
    )
    def test_path_traversal_is_not_found(self, shared, path):
        head = f"GET {path} HTTP/1.1\r\nHost: [::1]\r\nAuthorization: Bearer {shared.token}\r\n\r\n"
        assert b" 404 " in raw_response(shared, head.encode()).splitlines()[0]

    @pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\nX: "])
    def test_half_header_is_closed_after_timeout(self, shared, sent):
        began_s = time.monotonic()
        assert raw_response(shared, sent) == b""
        assert 0.9 < time.monotonic() - began_s < 5

    def test_header_of_four_megabytes_is_refused(self, shared):
        head = b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\nX: " + b"a" * 4_000_000
        with raw_connection(shared) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(head)
            assert connection.recv(4096).startswith(b"HTTP/1.1 431 ")
