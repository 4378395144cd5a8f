"""Web service process of `rl-teacher serve`."""

import contextlib
import errno
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from rich.console import Console

from rl_teacher.common.errors import BadInput
from rl_teacher.runs.folder import home
from rl_teacher.store.database import default_url
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web.address import (
    Address,
    link,
    local_address,
    play_link,
    published,
    serves,
)
from rl_teacher.web.app import create_app
from rl_teacher.web.browser import open_in_browser
from rl_teacher.web.lifetime import Lifetime
from rl_teacher.web.logs import logged
from rl_teacher.web.schemas.play import EpisodePlayer
from rl_teacher.web.services import Services
from rl_teacher.web.settings import Settings
from rl_teacher.web.token import access_token

BUSY_TIMEOUT_S = 5.0
"""Seconds that a request waits for a database lock before it fails with 503."""
SHUTDOWN_TIMEOUT_S = 2
KEEP_ALIVE_S = 30
PORTS_TRIED = 20
TICKS_BETWEEN_LOOKS = 5
"""Server ticks between checks for runs that show the page."""
LOOPBACK = ("127.", "::1", "localhost")


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
    """storage of clips: a folder, or a URL such as s3://bucket/folder; the media folder of
    RL_TEACHER_HOME without it"""
    end_after_runs: float | None = None
    """seconds after the last run until the service ends; never without it"""


def serve(options: ServeOptions, player: EpisodePlayer | None = None) -> int:
    """Serve the page until a signal stops it and return the exit code.

    Args:
        options: Options of the service.
        player: Plays the episodes to show instead of experiments; training runs do not find such a
            service.

    Raises:
        BadInput: The address is unavailable, or the URL of the media is invalid.
        StoreUnavailable: The database cannot be opened.
        RunFolderUnusable: The home cannot be written.
    """
    database = default_url(home())
    media = options.media or str(home() / "media")
    settings = Settings(access_token(home()), secrets.token_hex(8))
    with (
        logged(home()),
        listening(options.host, options.port) as listener,
        Store.open(database, busy_timeout_s=BUSY_TIMEOUT_S) as store,
    ):
        app = create_app(store, MediaFiles(media), settings, player)
        port = listener.getsockname()[1]
        address = local_address(options.host, port, settings.instance, serves(database, media))
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,  # would write the tokens of links
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        )
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
        if not self._plays:
            self._publication.enter_context(published(self._address))
        print_link(self._options, play_link(self._address) if self._plays else link(self._address))

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; called ten times a second."""
        is_check_due = counter % TICKS_BETWEEN_LOOKS == 0
        if is_check_due and self._lifetime is not None and self._lifetime.is_over():
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening and finish the requests in progress."""
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
        raise BadInput(f"--port {port} was given; 0 to 65535 is possible.")
    tried = [0] if port == 0 else range(port, min(port + PORTS_TRIED, 65_536))
    for each in tried:
        with contextlib.suppress(PortTaken):
            listener = listen(host, each)
            break
    else:
        raise BadInput(
            f"The ports {port} to {tried[-1]} of {host} are all in use. Choose another with "
            "--port, or any free one with --port 0."
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
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[
            0
        ]
        return bound(socket.socket(family, kind, protocol), place)
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise PortTaken from error
        raise BadInput(
            f"Nothing can listen at {host} port {port}: {error}. Use --host 127.0.0.1 for this "
            "machine alone, or --host 0.0.0.0 for every network it is in; and a port above 1023."
        ) from error


def bound(listener: socket.socket, place: Any) -> socket.socket:
    """Bind a socket, listen on it and return it.

    `socket.create_server` leaves out the protocol, and without it asyncio does not set TCP_NODELAY:
    every response would take 40 ms.
    """
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def print_link(options: ServeOptions, opened: str) -> None:
    """Print the link and open it if there is a display."""
    console = Console()
    console.print(f"The page: {opened}", soft_wrap=True, highlight=False, markup=False)
    if not options.host.startswith(LOOPBACK):
        console.print(
            "Whoever reaches this machine's network sees what is sent. Outside a network that you "
            "trust, put a reverse proxy with TLS in front, or use an ssh tunnel.",
            soft_wrap=True,
        )
    console.print("Ctrl-C ends it; answers are kept.")
    if not options.no_browser:
        threading.Thread(target=open_in_browser, args=(opened,), daemon=True).start()
