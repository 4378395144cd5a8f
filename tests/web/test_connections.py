"""Limits of connections, with sockets against a service in a subprocess."""

import contextlib
import logging
import resource
import socket
import time
from pathlib import Path

import pytest

from rl_teacher.web.connections import max_connections
from rl_teacher.web.service_log import Damped
from tests.web.test_serve import Running

CODE = """
import resource, sys
from rl_teacher.web.connections import ConnectionLimits
from rl_teacher.web.serve import ServeOptions, serve
if {max_files}:
    resource.setrlimit(resource.RLIMIT_NOFILE, ({max_files}, {max_files}))
sys.exit(serve(ServeOptions(port=0, no_browser=True), limits=ConnectionLimits({limits})))
"""

SHORT = "header_timeout_s=1, body_timeout_s=1"

HALF_A_HEADER = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Half: "

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

CLIENT = "127.0.0.2"
"""Local address that the service does not trust as a proxy."""


@contextlib.contextmanager
def running(home, limits=SHORT, max_files=0):
    service = Running(home, CODE.format(limits=limits, max_files=max_files))
    try:
        yield service
    finally:
        service.close()


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Service with short timeouts, which several tests share."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TEACHER_HOME", str(home))
        with running(home, SHORT + ", per_network=5, total=700") as service:
            yield service


@pytest.fixture
def connect(quick):
    """Function that opens connections, which are closed after the test."""
    with contextlib.ExitStack() as opened:

        def open_one(source="", service=quick):
            place = (service.address.host, service.address.port)
            connection = socket.create_connection(
                place, timeout=20, source_address=(source, 0) if source else None
            )
            return opened.enter_context(connection)

        yield open_one


def is_closed(connection, within_s):
    """Wait until the service closes a connection; return False if it does not in time."""
    connection.settimeout(within_s)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def answer(connection, request=REQUEST):
    """Send a request and return the status of the response."""
    connection.sendall(request)
    return int(connection.recv(65_536).split()[1])


def memory_mb(service):
    """Return the resident memory of a service."""
    pages = Path(f"/proc/{service.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize() / 2**20


def trickle(connection, data, every_s, at_most_s):
    """Send the same bytes again and again and return the seconds until that failed."""
    began_s = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while time.monotonic() - began_s < at_most_s:
            connection.sendall(data)
            time.sleep(every_s)
    return time.monotonic() - began_s


def test_requests_are_answered_beside_500_idle_connections(quick, connect):
    began_s = time.monotonic()
    idle = [connect() for _ in range(500)]
    for connection in idle[:250]:
        connection.sendall(HALF_A_HEADER)
    for _ in range(20):
        assert quick.client.get("/healthz").status_code == 200
    assert time.monotonic() - began_s < 10
    assert all(is_closed(each, within_s=5) for each in idle)


@pytest.mark.parametrize("sent", [b"", b"GET", HALF_A_HEADER], ids=["nothing", "method", "half"])
def test_half_sent_header_is_closed_after_timeout(connect, sent):
    connection = connect()
    began_s = time.monotonic()
    connection.sendall(sent)
    assert is_closed(connection, within_s=10)
    assert time.monotonic() - began_s > 0.9


def test_header_that_trickles_is_closed_after_timeout(connect):
    connection = connect()
    connection.sendall(b"GET /")
    assert 0.9 < trickle(connection, b"x", every_s=0.1, at_most_s=10) < 5


def test_second_header_is_closed_after_timeout_too(connect):
    connection = connect()
    assert answer(connection) == 200
    connection.sendall(HALF_A_HEADER)
    assert is_closed(connection, within_s=10)


@pytest.mark.parametrize("line", [b"", b"\r\nX-Many: "], ids=["one header", "many headers"])
@pytest.mark.parametrize("num_answers", [0, 1])
def test_header_without_end_is_refused_with_little_memory(quick, connect, line, num_answers):
    connection = connect()
    for _ in range(num_answers):
        assert answer(connection) == 200
    before_mb = memory_mb(quick)
    connection.sendall(HALF_A_HEADER)
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 64_000_000:
            sent += connection.send(line + b"x" * 60_000)
    assert sent < 10_000_000
    assert memory_mb(quick) - before_mb < 10


def test_headers_after_a_body_without_end_are_refused_with_little_memory(quick, connect):
    connection = connect()
    head = upload(quick.token, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    connection.sendall(head + b"1\r\n \r\n0\r\nX-Half: ")
    before_mb = memory_mb(quick)
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 64_000_000:
            sent += connection.send(b"x" * 60_000)
    assert sent < 10_000_000
    assert memory_mb(quick) - before_mb < 10


def test_complete_header_over_the_limit_is_refused(connect):
    request = HALF_A_HEADER + b"x" * 40_000 + b"\r\n\r\n"
    assert answer(connect(), request) == 431


def test_header_just_under_the_limit_is_accepted(connect):
    request = HALF_A_HEADER + b"x" * 32_000 + b"\r\n\r\n"
    assert answer(connect(), request) == 200


def upload(token, num_bytes):
    """Return the header of a request with a body."""
    return (
        f"POST /api/v1/labels HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {num_bytes}\r\n\r\n"
    ).encode()


def test_body_that_stalls_is_closed_after_timeout(quick, connect):
    connection = connect()
    connection.sendall(upload(quick.token, 1000) + b" " * 500)
    assert is_closed(connection, within_s=10)


def test_body_that_stalls_after_an_early_response_is_closed(quick, connect):
    connection = connect()
    connection.sendall(upload("wrong", 1000) + b" " * 500)
    assert is_closed(connection, within_s=10)


def test_body_that_trickles_is_closed(quick, connect):
    connection = connect()
    connection.sendall(upload(quick.token, 100_000))
    assert 0.9 < trickle(connection, b" ", every_s=0.2, at_most_s=20) < 10


def test_slow_body_with_progress_is_answered(quick, connect):
    connection = connect()
    connection.sendall(upload(quick.token, 3000))
    for _ in range(6):  # 2.4 s altogether, with a timeout of 1 s
        connection.sendall(b" " * 500)
        time.sleep(0.4)
    assert connection.recv(65_536).split()[1] in (b"400", b"422")


def test_event_stream_outlives_the_timeouts(quick, connect):
    connection = connect()
    head = f"GET /api/v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {quick.token}\r\n"
    assert answer(connection, f"{head}\r\n".encode()) == 200
    assert not is_closed(connection, within_s=2.5)


def test_client_that_does_not_use_its_connections_makes_room_for_new_ones(connect):
    first, *others = [connect(CLIENT) for _ in range(6)]
    assert is_closed(first, within_s=0.5)
    assert answer(others[-1]) == 200


def test_client_with_too_many_requests_in_progress_is_refused_alone(quick, connect):
    busy = [connect(CLIENT) for _ in range(5)]
    for connection in busy:
        connection.sendall(upload(quick.token, 1000) + b" ")
    time.sleep(0.2)
    assert connect(CLIENT).recv(100).startswith(b"HTTP/1.1 503 ")
    assert answer(connect("127.0.0.3")) == 200


def test_connections_of_a_trusted_proxy_are_not_those_of_one_client(quick, connect):
    for connection in [connect() for _ in range(20)]:
        connection.sendall(upload(quick.token, 1000) + b" ")
    assert answer(connect()) == 200


def test_few_descriptors_neither_stop_the_service_nor_fill_its_log(home, connect):
    home.mkdir()
    with running(home, "header_timeout_s=30", max_files=120) as service:
        idle = []
        for _ in range(200):
            with contextlib.suppress(OSError):
                idle.append(connect(service=service))
        for _ in range(3):
            assert service.client.get("/healthz", timeout=20).status_code == 200
            time.sleep(0.5)
        assert service.log.stat().st_size < 20_000


def test_descriptor_limit_is_raised(quick):
    limits = Path(f"/proc/{quick.process.pid}/limits").read_text().splitlines()
    [line] = [each for each in limits if each.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert soft == hard


@pytest.mark.parametrize(
    ("max_files", "expected"), [(None, 1000), (20_000, 1000), (1024, 924), (120, 20), (50, 16)]
)
def test_connections_are_limited_by_descriptors(max_files, expected):
    assert max_connections(1000, max_files) == expected


def test_repeated_message_is_logged_once_a_minute():
    moments = iter([0.0, 1.0, 2.0, 59.0, 60.0])
    damped = Damped(now=lambda: next(moments))
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "invalid", (), None)
    other = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "other", (), None)
    passed = [damped.filter(each) for each in (record, record, other, record, record)]
    assert passed == [True, False, True, False, True]


def test_invalid_requests_do_not_fill_the_log(quick, connect):
    for _ in range(50):
        answer(connect(), b"nonsense\r\n\r\n")
    assert quick.requests().count("Invalid HTTP request") == 1
