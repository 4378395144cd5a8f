"""Service in two processes on PostgreSQL."""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web import address
from rl_teacher.web.address import one_time_link, running_service
from rl_teacher.web.serve import ServeOptions, check_processes, listening, serve
from tests.store.credentials import issue_credential
from tests.store.postgres import children_of
from tests.web.conftest import Trainer, label
from tests.web.test_serve import EventReader, Running

CODE = """
import sys
from rl_teacher.web.serve import ServeOptions, serve
if __name__ == "__main__":
    sys.exit(serve(ServeOptions(port=0, no_browser=True, processes=2)))
"""

TIMEOUT_S = 30.0

POSTGRES_URL = "postgresql://user@host/name"


@contextlib.contextmanager
def running(home, database):
    """Run a service of two processes with a database and a trainer of its own."""
    home.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TEACHER_HOME", str(home))
        patch.setenv("RL_TEACHER_DATABASE_URL", database)
        service = Running(home, CODE)
        store = Store.open(database)
    try:
        with store:
            yield SimpleNamespace(
                running=service,
                store=store,
                trainer=Trainer(store, MediaFiles(home / "media")),
            )
    finally:
        processes = workers_of(service)
        service.close()
        assert wait_until(lambda: not any(map(is_alive, processes)))


@pytest.fixture(scope="module")
def served(tmp_path_factory, postgres_server):
    """Service that several tests share; none of them may stop it."""
    with running(tmp_path_factory.mktemp("home"), postgres_server.new_database()) as found:
        yield found


@pytest.fixture
def service(served):
    return served.running


@pytest.fixture
def labeler(served, request):
    """Name and credential of a labeler of this test."""
    name = request.node.name
    served.store.labelers.add(name)
    return SimpleNamespace(name=name, token=issue_credential(served.store, name))


@pytest.fixture
def both(service):
    """One client for each process, with the owner's credential."""
    with clients_of_both(service, service.token) as clients:
        yield clients


@contextlib.contextmanager
def clients_of_both(service, token):
    """Open connections until there is one to each process."""
    found = {}
    with contextlib.ExitStack() as opened:

        def has_both():
            client = opened.enter_context(connect(service, token))
            if found.setdefault(process_of(service, client), client) is not client:
                client.close()
            return len(found) == 2

        assert wait_until(has_both)
        yield [client for _, client in sorted(found.items())]


def connect(service, token=None):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    url = service.address.url
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=TIMEOUT_S)


def process_of(service, client):
    """Return the id of the process that a client is connected to."""
    response = client.get("/healthz")
    host, port = response.extensions["network_stream"].get_extra_info("client_addr")
    assert host == "127.0.0.1"
    places = f":{service.address.port:04X} 0100007F:{port:04X} 01 "
    lines = [each for each in Path("/proc/net/tcp").read_text().splitlines() if places in each]
    [inode] = {line.split()[9] for line in lines}  # the kernel may repeat a line
    socket_name = f"socket:[{inode}]"
    for pid in workers_of(service):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if str(file.readlink()) == socket_name:
                    return pid
    raise AssertionError("no process has the connection")


def workers_of(service):
    """Return the ids of the service processes."""
    return [pid for pid in children_of(service.process.pid) if "spawn_main" in command_of(pid)]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def is_alive(pid):
    """Return whether a process may have open files, which it keeps until its last thread ends."""
    states = set()
    with contextlib.suppress(OSError):  # it, or a thread of it, is gone
        for file in Path(f"/proc/{pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                states.add(file.read_text().rpartition(")")[2].split()[0])
    return not states <= {"Z", "X"}


def wait_until(holds):
    """Wait until a condition holds and return whether it does."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


class TestLabels:
    def test_racing_labelers_get_each_comparison_once(self, served, service, request):
        asked = set(served.trainer.ask(60))
        names = [f"{request.node.name} {number}" for number in range(8)]
        shown, acknowledged = Counter(), Counter()

        def label_all(number):
            token = issue_credential(served.store, names[number])
            with clients_of_both(service, token) as clients:
                client = clients[number % 2]
                while True:
                    path = "/api/v1/experiments/hopper/comparisons/next"
                    found = client.get(path, params={"limit": 2}).json()["comparisons"]
                    if not found:
                        return
                    shown.update(each["id"] for each in found)
                    labels = [label(each["id"], lease=each["lease"]) for each in found]
                    receipt = client.post("/api/v1/labels", json={"labels": labels}).json()
                    acknowledged.update(receipt["accepted"])

        for name in names:
            served.store.labelers.add(name)
        threads = [threading.Thread(target=label_all, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        exported = served.store.labels.export(served.trainer.id, 0, 10_000)
        rows = [row for row in exported if row.labeler in names]
        stored = Counter(row.comparison_id for row in rows)
        assert shown == stored == dict.fromkeys(asked, 1)
        assert acknowledged == dict.fromkeys((str(r.request_id) for r in rows), 1)

    def test_label_sent_again_to_other_process_is_stored_once(self, served, both):
        [comparison_id] = served.trainer.ask()
        given = label(comparison_id)
        for client in both:
            receipt = client.post("/api/v1/labels", json={"labels": [given]}).json()
            assert receipt["accepted"] == [given["request_id"]]
        rows = served.store.labels.export(served.trainer.id, 0, 1_000)
        assert [row.comparison_id for row in rows].count(comparison_id) == 1


class TestLimits:
    def test_limit_of_labels_holds_across_processes(self, service, labeler):
        batch = {"labels": [label(1) for _ in range(100)]}
        with clients_of_both(service, labeler.token) as clients:
            accepted = [each.post("/api/v1/labels", json=batch).status_code for each in clients]
            refused = [each.post("/api/v1/labels", json=batch).status_code for each in clients]
        assert accepted == [200, 200]
        assert refused == [429, 429]

    def test_limit_of_requests_holds_across_processes(self, service, labeler):
        began_s = time.monotonic()
        with clients_of_both(service, labeler.token) as clients:
            statuses = [each.get("/api/v1/me").status_code for _ in range(60) for each in clients]
        at_most = 60 + 1 + 20 * (time.monotonic() - began_s)
        assert 60 <= statuses.count(200) <= at_most
        assert statuses.count(429) == 120 - statuses.count(200) > 0

    def test_limit_of_wrong_credentials_holds_across_processes(self, both):
        def status(client, number):
            headers = {"Authorization": f"Bearer rlt_{number}", "X-Forwarded-For": "203.0.113.7"}
            return client.get("/api/v1/me", headers=headers).status_code

        statuses = [status(both[number % 2], number) for number in range(14)]
        assert statuses == [401] * 10 + [429] * 4

    def test_one_time_code_is_accepted_by_one_process(self, service, both):
        for first, second in (both, both[::-1]):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RL_TEACHER_HOME", str(service.home))
                url = one_time_link(service.address, f"{service.address.url}/")
            without = {"Authorization": ""}
            assert first.get(url, headers=without).status_code == 303
            first.cookies.clear()
            assert second.get(url, headers=without).status_code == 401

    def test_stream_over_the_limit_is_refused_by_every_process(self, service, labeler):
        with contextlib.ExitStack() as opened:
            processes = set()
            for _ in range(20):
                client = opened.enter_context(connect(service, labeler.token))
                processes.add(process_of(service, client))
                stream = opened.enter_context(client.stream("GET", "/api/v1/events"))
                assert stream.status_code == 200
            assert len(processes) == 2
            with clients_of_both(service, labeler.token) as clients:
                refused = [each.get("/api/v1/events").status_code for each in clients]
        assert refused == [429, 429]


class TestEvents:
    def test_event_caused_in_one_process_reaches_stream_of_the_other(self, served, both):
        listening_to, sender = both
        [comparison_id] = served.trainer.ask()
        listener = EventReader(SimpleNamespace(client=listening_to))
        _, before = listener.wait_for(lambda kind, _: kind == "experiment")
        sender.post("/api/v1/labels", json={"labels": [label(comparison_id)]})
        mine = before["progress"]["mine"] + 1
        listener.wait_for(lambda _, data: data["progress"]["mine"] == mine)


class TestMetrics:
    def test_metrics_of_each_process_count_the_requests_of_both(self, both):
        def count(client):
            lines = client.get("/metrics").text.splitlines()
            name = 'rl_teacher_requests_total{status="405"} '
            return sum(float(each.removeprefix(name)) for each in lines if each.startswith(name))

        before = count(both[0])
        for client, times in zip(both, (2, 3), strict=True):
            for _ in range(times):
                client.delete("/api/v1/me")
        # Each process writes its counts about once a second.
        assert wait_until(lambda: [count(each) - before for each in both] == [5, 5])

    def test_each_process_logs_to_a_file_of_its_own(self, service, both):
        for number, client in enumerate(both):
            client.get(f"/api/v1/experiments/logged-{number}")
        logs = [service.home / "logs" / f"service-{number}.log" for number in (1, 2)]

        def logged():
            return sorted(
                [n for n in (0, 1) if f"/experiments/logged-{n} 404" in log.read_text()]
                for log in logs
            )

        assert wait_until(lambda: logged() == [[0], [1]])


class TestStopping:
    def test_killed_process_is_replaced(self, served, service, both, labeler):
        [comparison_id] = served.trainer.ask()
        given = label(comparison_id)
        both[0].post("/api/v1/labels", json={"labels": [given]})
        with contextlib.ExitStack() as opened:
            killed = process_of(service, both[0])
            num_opened = 0
            while num_opened < 5:
                client = opened.enter_context(connect(service, labeler.token))
                if process_of(service, client) == killed:
                    opened.enter_context(client.stream("GET", "/api/v1/events"))
                    num_opened += 1
            os.kill(killed, signal.SIGKILL)
            assert wait_until(lambda: not is_alive(killed))
            with connect(service, service.token) as client:
                assert client.get("/api/v1/me").status_code == 200  # by the other process
        ended = f"(pid {killed}) ended with exit code -9"
        assert wait_until(lambda: ended in service.requests())
        with clients_of_both(service, labeler.token) as _, contextlib.ExitStack() as opened:
            for _ in range(20):
                client = opened.enter_context(connect(service, labeler.token))
                stream = opened.enter_context(client.stream("GET", "/api/v1/events"))
                assert stream.status_code == 200
        rows = served.store.labels.export(served.trainer.id, 0, 1_000)
        assert [str(row.request_id) for row in rows].count(given["request_id"]) == 1

    def test_no_process_outlives_a_killed_parent(self, tmp_path, postgres_server):
        with running(tmp_path / "home", postgres_server.new_database()) as served:
            processes = children_of(served.running.process.pid)
            served.running.stop(signal.SIGKILL)
            assert wait_until(lambda: not any(map(is_alive, processes)))
            left = list((served.running.home / "services").iterdir())
            assert [each.suffix for each in left] == [".json"]

    @pytest.mark.slow
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signal_stops_all_processes_with_open_streams(self, tmp_path, postgres_server, number):
        with running(tmp_path / "home", postgres_server.new_database()) as served:
            service = served.running
            with clients_of_both(service, service.token) as clients:
                listeners = [
                    EventReader(SimpleNamespace(client=each), "/api/v1/events") for each in clients
                ]
                for listener in listeners:
                    listener.wait_for(lambda kind, _: kind == "experiment")
                assert service.stop(number) == 0
                assert all(listener.ended.wait(10) for listener in listeners)
            assert list((service.home / "services").iterdir()) == []


class TestStarting:
    def test_address_of_the_service_is_published_once(self, service, monkeypatch):
        monkeypatch.setenv("RL_TEACHER_HOME", str(service.home))
        addresses = list((service.home / "services").glob("*.json"))
        assert len(addresses) == 1
        assert running_service() == service.address

    def test_shared_port_is_not_shared_with_another_service(self):
        with listening("127.0.0.1", 0, is_shared=True) as taken:
            port = taken.getsockname()[1]
            for is_shared in (True, False):
                with listening("127.0.0.1", port, is_shared=is_shared) as other:
                    assert other.getsockname()[1] > port

    def test_port_that_is_taken_before_it_is_shared_is_skipped(self, monkeypatch):
        with listening("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        listen = address.listen

        def listen_late(host, port_, *, is_shared=False):
            if is_shared and port_ == port:
                raise address.PortTaken
            return listen(host, port_, is_shared=is_shared)

        monkeypatch.setattr(address, "listen", listen_late)
        with listening("127.0.0.1", port, is_shared=True) as other:
            assert other.getsockname()[1] > port

    @pytest.mark.parametrize(
        ("num_processes", "database", "expected"),
        [
            (0, POSTGRES_URL, "between 1 and 64"),
            (65, POSTGRES_URL, "between 1 and 64"),
            (2, "labels.sqlite", "needs PostgreSQL"),
        ],
    )
    def test_impossible_number_of_processes_is_refused(self, num_processes, database, expected):
        check_processes(2, POSTGRES_URL)
        with pytest.raises(BadInput, match=expected):
            check_processes(num_processes, database)

    def test_several_processes_with_sqlite_are_refused(self, capsys):
        assert main(["serve", "--no-browser", "--processes", "2"]) == 2
        assert "RL_TEACHER_DATABASE_URL" in capsys.readouterr().err
        with pytest.raises(BadInput, match="PostgreSQL"):
            serve(ServeOptions(processes=2, no_browser=True))
