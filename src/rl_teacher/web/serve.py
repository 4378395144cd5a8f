"""Web service process of `rl-teacher serve`."""

import contextlib
import errno
import gc
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

import uvicorn
from rich.console import Console
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from rl_teacher.common.errors import BadInput
from rl_teacher.runs.folder import home
from rl_teacher.store.database import default_url
from rl_teacher.store.files import folder_errors
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web.address import (
    Address,
    access_token,
    link,
    local_address,
    one_time_link,
    play_link,
    published,
)
from rl_teacher.web.app import create_app
from rl_teacher.web.connections import (
    ACCEPTED_AT_ONCE,
    BACKLOG,
    ConnectionLimits,
    Connections,
    Damped,
    LimitedProtocol,
    max_connections,
    raise_descriptor_limit,
)
from rl_teacher.web.monitoring import JsonFormatter
from rl_teacher.web.schemas.play import EpisodePlayer
from rl_teacher.web.service_process import Lifetime, log_folder, open_in_browser
from rl_teacher.web.services import Services
from rl_teacher.web.settings import Settings

BUSY_TIMEOUT_S = 5.0
"""Seconds that a request waits for a database lock before it fails with 503."""
SHUTDOWN_TIMEOUT_S = 2
KEEP_ALIVE_S = 30
PORTS_TRIED = 20
TICKS_BETWEEN_CHECKS = 5
"""Server ticks between checks for runs that show the page."""
LOOPBACK = ("127.", "::1", "localhost")

LOG_NAME = "service.log"
MAX_LOG_BYTES = 5_000_000
NUM_OLD_LOGS = 3
"""Rotated request logs to keep besides the current one."""
DAMPED_LOGGERS = ("asyncio", "uvicorn.error", "rl_teacher.web.connections")
"""Loggers of accept errors, invalid requests and refused connections."""


@dataclass(frozen=True)
class ServeOptions:
    """Options of the web service."""

    host: str = "127.0.0.1"
    """address of the page; 0.0.0.0 listens on every network of this machine"""
    port: int = 8765
    """port of the page; the next free one if it is taken; 0: any"""
    no_browser: bool = False
    """print the link to the page without opening a browser"""
    media: str | None = None
    """storage of clips: a folder, or a URL such as s3://bucket/folder; by default the media folder
    of RL_TEACHER_HOME"""
    end_after_runs: float | None = None
    """seconds after the last run until the service ends; by default it does not end"""
    log_format: Literal["text", "json"] = "text"
    """format of the log; json has the request, its labeler and its experiment"""


def serve(
    options: ServeOptions,
    player: EpisodePlayer | None = None,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - frozen
) -> int:
    """Serve the page until a signal stops it and return the exit code.

    Args:
        options: Options of the service.
        player: Plays the episodes to show instead of experiments; training runs do not find such a
            service.
        limits: Limits of the connections.

    Raises:
        BadInput: The address is unavailable, or the URL of the media is invalid.
        StoreUnavailable: The database cannot be opened.
        RunFolderUnusable: The home cannot be written.
    """
    database = default_url(home())
    media = options.media or str(home() / "media")
    settings = Settings(access_token(home()), secrets.token_hex(8))
    limits = replace(limits, total=max_connections(limits.total, raise_descriptor_limit()))
    # The standard error of a service that a run has started is a file, which is not rotated.
    has_terminal = options.end_after_runs is None
    with (
        request_log(home(), options.log_format, has_terminal=has_terminal),
        listening(options.host, options.port) as listener,
        Store.open(database, busy_timeout_s=BUSY_TIMEOUT_S) as store,
    ):
        app = create_app(store, MediaFiles(media), settings, player)
        port = listener.getsockname()[1]
        address = local_address(options.host, port, settings.instance, database, media)
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,  # would write the tokens of links
            server_header=False,
            backlog=ACCEPTED_AT_ONCE,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        )
        config.load()
        assert isinstance(config.loaded_app, ProxyHeadersMiddleware)  # noqa: S101 - by default
        connections = Connections(limits, proxies=config.loaded_app.trusted_hosts)
        config.http_protocol_class = partial(LimitedProtocol, connections)  # pyright: ignore[reportAttributeAccessIssue]
        # What is loaded by now lives as long as the service. Otherwise a full collection visits all
        # of it during a request, which takes 100 ms.
        gc.freeze()
        Service(config, address, options, app.state.services).run([listener])
    return 0


class Service(uvicorn.Server):
    """Server that publishes its address and closes event streams when it stops."""

    def __init__(
        self, config: uvicorn.Config, address: Address, options: ServeOptions, services: Services
    ) -> None:
        super().__init__(config)
        self._address = address
        self._options = options
        self._poller = services.poller
        self._plays = services.player is not None
        self._publication = contextlib.ExitStack()
        end_after_s = options.end_after_runs
        self._lifetime = None if end_after_s is None else Lifetime(home(), end_after_s)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, publish the address and print the link."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)  # asyncio has set the length of the queue to what it takes at once
        # Only now that it listens: a run uses the address as soon as it finds it.
        if not self._plays:
            self._publication.enter_context(published(self._address))
        url = play_link(self._address) if self._plays else link(self._address)
        print_link(self._options, url)
        if not self._options.no_browser:
            opened = one_time_link(self._address, url)
            threading.Thread(target=open_in_browser, args=(opened,), daemon=True).start()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; called ten times a second."""
        is_check_due = counter % TICKS_BETWEEN_CHECKS == 0
        if is_check_due and self._lifetime is not None and self._lifetime.is_over():
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening and finish the requests in progress."""
        # First the address, so that no run finds it any more, then the streams, for which the
        # server would otherwise wait.
        self._publication.close()
        self._poller.close()
        await super().shutdown(sockets)
        if self._lifetime is not None:
            self._lifetime.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again, because other resources must be closed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        stopping = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in stopping}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Open a listening socket at this port or the next free one.

    Raises:
        BadInput: The port is out of range, no port is free, or the address is unavailable.
    """
    if not 0 <= port <= 65_535:
        raise BadInput(f"--port {port} was given; it must be between 0 and 65535.")
    tried = [0] if port == 0 else range(port, min(port + PORTS_TRIED, 65_536))
    for each in tried:
        with contextlib.suppress(PortTaken):
            listener = listen(host, each)
            break
    else:
        raise BadInput(
            f"Ports {port} to {tried[-1]} of {host} are all in use. Choose another with --port, or "
            "any free one with --port 0."
        )
    with listener:
        yield listener


class PortTaken(Exception):
    """Port that another process listens on."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Raises:
        PortTaken: Another process listens on the port.
        BadInput: This machine does not have the address, or the port is privileged.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, place = found[0]
        # `socket.create_server` leaves out the protocol, and without it asyncio does not set
        # TCP_NODELAY: every response would take 40 ms.
        listener = socket.socket(family, kind, protocol)
        try:
            # Binds a port whose former connections still time out. On Windows the option would let
            # two programs share a port.
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen()
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise PortTaken from error
        raise BadInput(
            f"Cannot listen on {host} port {port}: {error}. Use --host 127.0.0.1 for this machine "
            "only or --host 0.0.0.0 for all its networks, and a port above 1023."
        ) from error
    return listener


@contextlib.contextmanager
def request_log(
    home: Path, log_format: str = "text", *, has_terminal: bool = True
) -> Iterator[None]:
    """Log requests, warnings and errors of this process to a file within the context.

    Warnings and errors also go to the terminal. A full disk is reported there and fails no request.
    What any client can cause as often as it likes is logged once a minute.

    Args:
        home: Home of the service.
        log_format: `text`, or `json` for one object per line.
        has_terminal: Whether the standard error is shown to a person.

    Raises:
        RunFolderUnusable: The log file cannot be written.
    """
    path = log_folder(home) / LOG_NAME
    with folder_errors(path.parent):
        file = RotatingFileHandler(
            path,
            maxBytes=MAX_LOG_BYTES,
            backupCount=NUM_OLD_LOGS,
            encoding="utf-8",
            errors="backslashreplace",
        )
    formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    is_json = log_format == "json"
    file.setFormatter(JsonFormatter() if is_json else formatter)
    terminal = logging.StreamHandler()
    terminal.setLevel(logging.WARNING)
    short = logging.Formatter("%(levelname)s %(message)s")
    terminal.setFormatter(JsonFormatter() if is_json else short)
    package = logging.getLogger("rl_teacher")
    before = package.level
    package.setLevel(logging.INFO)
    handlers = (file, terminal) if has_terminal else (file,)
    damped = Damped()
    for handler in handlers:
        logging.getLogger().addHandler(handler)
    for name in DAMPED_LOGGERS:
        logging.getLogger(name).addFilter(damped)
    try:
        yield
    finally:
        package.setLevel(before)
        for name in DAMPED_LOGGERS:
            logging.getLogger(name).removeFilter(damped)
        for handler in handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()


def print_link(options: ServeOptions, url: str) -> None:
    """Print the link."""
    console = Console()
    console.print(f"The page: {url}", soft_wrap=True, highlight=False, markup=False)
    if not options.host.startswith(LOOPBACK):
        console.print(
            "The connection is not encrypted. Outside a trusted network, use a reverse proxy with "
            "TLS or an SSH tunnel.",
            soft_wrap=True,
        )
    console.print("Press Ctrl-C to stop it; labels are kept.")
