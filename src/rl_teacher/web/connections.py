"""Connections of the service: limits of their number, of their headers and of their duration.

    idle --first byte--> header --complete--> body --complete--> idle
             keep-alive timeout | header timeout     | body timeout

Clients that keep a connection without using it cost others nothing: if there is no room for a new
connection, the oldest idle one is closed.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from rl_teacher.web.authentication import network_of

RESERVED_FILES = 100
"""Descriptors kept for the database, clips, logs and connections that are refused."""

MIN_CONNECTIONS = 16

MAX_FILES = 65_536
"""Descriptor limit that is set if the system has none."""

ACCEPTED_AT_ONCE = 16
"""Connections that asyncio accepts before any of them can be refused."""

BACKLOG = 1024
"""Connections that the system keeps until they are accepted."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the service's connections.

    Attributes:
        total: Open connections.
        per_network: Open connections of one network, except those of a trusted proxy.
        header_bytes: Size of the request line and the headers.
        header_timeout_s: Time from the first byte, or from connecting, until the headers are
            complete.
        body_timeout_s: Time between two parts of a body.
        body_bytes_per_s: Rate below which a body, after `body_timeout_s`, is given up.
        write_timeout_s: Time in which a client has to read some of a response.
    """

    total: int = 1000
    per_network: int = 200
    header_bytes: int = 32_768
    header_timeout_s: float = 15.0
    body_timeout_s: float = 30.0
    body_bytes_per_s: float = 500.0
    write_timeout_s: float = 60.0


class Connections:
    """The open connections, in the order in which they were opened."""

    def __init__(self, limits: ConnectionLimits, proxies: Container[str]) -> None:
        """Initialise without a connection.

        Args:
            limits: Limits.
            proxies: Addresses of trusted proxies, whose connections are those of many clients.
        """
        self.limits = limits
        self._proxies = proxies
        self._open: dict[LimitedProtocol, str] = {}
        self._networks: dict[str, dict[LimitedProtocol, None]] = defaultdict(dict)

    def add(self, connection: "LimitedProtocol", host: str) -> bool:
        """Add a new connection; return False if there is no room for it."""
        network = "" if host in self._proxies else network_of(host)
        own = self._networks.get(network, {})
        if network and len(own) >= self.limits.per_network and not self._close_idle(own):
            return False
        if len(self._open) >= self.limits.total and not self._close_idle(self._open):
            return False
        self._open[connection] = network
        self._networks[network][connection] = None
        return True

    def remove(self, connection: "LimitedProtocol") -> None:
        """Remove a connection, if it is there."""
        network = self._open.pop(connection, None)
        if network is not None:
            del self._networks[network][connection]
            if not self._networks[network]:
                del self._networks[network]

    def _close_idle(self, connections: "dict[LimitedProtocol, Any]") -> bool:
        """Close the oldest connection without a request; return False if there is none."""
        idle = next((each for each in connections if each.is_idle), None)
        if idle is None:
            return False
        self.remove(idle)
        idle.transport.abort()
        return True


class Part(Enum):
    """Part of a request that a client sends next."""

    NOTHING = auto()
    HEADER = auto()
    BODY = auto()


class HeaderTooLargeError(Exception):
    """Headers over the size limit."""


class LimitedProtocol(HttpToolsProtocol):
    """HTTP protocol of uvicorn with limits of size and duration, which httptools lacks."""

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections
        self._limits = connections.limits
        self._part = Part.HEADER
        self._num_header_bytes = self._num_body_bytes = 0
        self._part_began_s = 0.0
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """True if no request waits for a response; half of a header is none."""
        return self.cycle is None or self.cycle.response_complete

    # --- connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Accept a connection, or refuse it if there are too many."""
        super().connection_made(transport)
        if self._all.add(self, self.client[0] if self.client else ""):
            self._expect(Part.HEADER)
        else:
            logger.warning("There are too many connections, and none is idle. One was refused.")
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._all.remove(self)
        self._stop_timers()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that is not used again."""
        # `close` would wait until the client has read everything.
        self.transport.abort()

    # --- request ---

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request."""
        if self._part is Part.NOTHING:
            self._expect(Part.HEADER)
        part, num_body_bytes = self._part, self._num_body_bytes
        super().data_received(data)
        # A body ends with headers, too, if it is sent in chunks.
        has_ended = self._part is not part or self._num_body_bytes > num_body_bytes
        if not has_ended and not self.transport.is_closing():
            self._num_header_bytes += len(data)
            if self._num_header_bytes > self._limits.header_bytes:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be parsed, or has too many headers."""
        if self._num_header_bytes > self._limits.header_bytes:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Begin a request, perhaps directly after another one."""
        super().on_message_begin()
        if self._part is not Part.HEADER:
            self._expect(Part.HEADER)

    def on_headers_complete(self) -> None:
        """Start the application, unless the headers are too large."""
        num_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if num_bytes > self._limits.header_bytes:
            self._num_header_bytes = num_bytes
            raise HeaderTooLargeError
        self._expect(Part.BODY)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body."""
        super().on_body(body)
        self._num_body_bytes += len(body)
        self._await_body()

    def on_message_complete(self) -> None:
        """End a request, which may have been answered already."""
        self._expect(Part.NOTHING)
        super().on_message_complete()

    # --- response ---

    def pause_writing(self) -> None:
        """Wait until the client has read some of the response."""
        super().pause_writing()
        timeout_s = self._limits.write_timeout_s
        self._write_timer = self.loop.call_later(timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue the response."""
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().resume_writing()

    # --- timers ---

    def _expect(self, part: Part) -> None:
        """Start the timer of the next part of a request."""
        self._part, self._part_began_s = part, self.loop.time()
        self._num_header_bytes = self._num_body_bytes = 0
        timeouts_s = {
            Part.NOTHING: None,
            Part.HEADER: self._limits.header_timeout_s,
            Part.BODY: self._limits.body_timeout_s,
        }
        self._start_timer(timeouts_s[part])

    def _await_body(self) -> None:
        """Start the timer of the next part of a body, which must not be too slow as a whole."""
        limits = self._limits
        took_s = self.loop.time() - self._part_began_s
        slack_s = limits.body_timeout_s + self._num_body_bytes / limits.body_bytes_per_s - took_s
        self._start_timer(min(limits.body_timeout_s, max(0.0, slack_s)))

    def _start_timer(self, timeout_s: float | None) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if timeout_s is not None:
            self._read_timer = self.loop.call_later(timeout_s, self._time_out)

    def _time_out(self) -> None:
        if self.flow.read_paused:
            # The application has not read what the client has sent.
            self._start_timer(self._limits.body_timeout_s)
        else:
            self.transport.abort()

    def _stop_timers(self) -> None:
        for timer in (self._read_timer, self._write_timer):
            if timer is not None:
                timer.cancel()

    def _refuse(self, status: HTTPStatus) -> None:
        """Send a response without a body, and close the connection."""
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        self.transport.write(f"{head}content-length: 0\r\nconnection: close\r\n\r\n".encode())
        self.transport.close()


def raise_descriptor_limit() -> int | None:
    """Raise the limit of open files to the most that the system allows, and return it."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, MAX_FILES) if hard == resource.RLIM_INFINITY else hard
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def max_connections(wanted: int, max_files: int | None) -> int:
    """Return the number of connections for which there are descriptors."""
    if max_files is None:
        return wanted
    return min(wanted, max(MIN_CONNECTIONS, max_files - RESERVED_FILES))
