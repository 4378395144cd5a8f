"""Web service process of `rl-teacher serve`."""

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from urllib.parse import urlsplit

from fastapi import FastAPI
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.net import SocketHolder  # pyright: ignore[reportPrivateImportUsage]
from granian.server.embed import Server
from granian.utils.proxies import wrap_asgi_with_proxy_headers
from rich.console import Console

from rl_teacher.common.runtime import handled_signals
from rl_teacher.config.experiment import PageOptions
from rl_teacher.runs.folder import database_url, home, media_url
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from rl_teacher.web.address import (
    BACKLOG,
    Address,
    access_token,
    base_url,
    link,
    listening,
    local_address,
    one_time_link,
    published,
)
from rl_teacher.web.app import create_app
from rl_teacher.web.schemas.play import EpisodePlayer
from rl_teacher.web.service_log import request_log
from rl_teacher.web.service_process import Lifetime, open_in_browser
from rl_teacher.web.settings import Settings

BUSY_TIMEOUT_S = 5.0
"""Seconds that a request waits for a database lock before it fails with 503."""
MAX_CONNECTIONS = 800
"""Open connections; others wait. Systems allow a process 1,024 files by default."""
MAX_HEADER_BYTES = 65_536
HEADER_TIMEOUT_S = 30
"""Seconds in which a client has to send the header of a first or another request."""
SHUTDOWN_TIMEOUT_S = 2
TICK_S = 0.5
"""Seconds between checks for runs that show the page."""
LOOPBACK = ("127.", "::1", "localhost")


def serve(
    page: PageOptions,
    end_after_runs: float | None = None,
    public_url: str | None = None,
    player: EpisodePlayer | None = None,
) -> int:
    """Serve the page until a signal stops it and return the exit code.

    Args:
        page: Address of the page, and whether to open it in a browser.
        end_after_runs: Seconds after the last run until the service ends; None if it does not end.
        public_url: Address that browsers open, in printed links; None for that of the page.
        player: Plays the episodes to show instead of experiments; training runs do not find such a
            service.

    Raises:
        BadInput: The address is unavailable, or a URL is invalid.
        StoreUnavailable: The database, or a remote storage of media, cannot be used.
        RunFolderUnusable: The home cannot be written.
    """
    public_url = None if public_url is None else base_url(public_url)
    database, media = database_url(), media_url()
    media_files = MediaFiles(media)
    if player is None:
        media_files.check()
    # The standard error of a service that a run has started is a file, which is not rotated.
    with (
        request_log(home(), has_terminal=end_after_runs is None),
        listening(page.host, page.port) as listener,
        Store.open(database, busy_timeout_s=BUSY_TIMEOUT_S) as store,
        contextlib.ExitStack() as stack,
    ):
        port, instance = listener.getsockname()[1], secrets.token_hex(8)
        address = local_address(page.host, port, instance, database, media)
        address = replace(address, url=public_url or address.url)
        lifetime = None
        if end_after_runs is not None:
            lifetime = Lifetime(home(), end_after_runs)
            stack.callback(lifetime.close)
        names = {"localhost", socket.gethostname(), page.host, str(urlsplit(address.url).hostname)}
        hosts = frozenset(map(str.lower, names))
        settings = Settings(access_token(home()), instance, address.database, hosts)
        app = create_app(store, media_files, settings, player)
        announcement = announced(address, page, plays=player is not None)
        asyncio.run(run(app, listener, announcement, lifetime))
    return 0


class SocketServer(Server):
    """Granian on a socket that listens already, whose port is known and not shared."""

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        """Configure the server.

        Args:
            app: The application.
            listener: Listening socket.
        """
        proxies = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1,::1")
        super().__init__(
            wrap_asgi_with_proxy_headers(app, proxies),
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,
            websockets=False,
            backpressure=MAX_CONNECTIONS,
            http1_settings=HTTP1Settings(
                header_read_timeout=1000 * HEADER_TIMEOUT_S, max_buffer_size=MAX_HEADER_BYTES
            ),
            log_enabled=False,
        )
        self._listener = listener

    def _init_shared_socket(self) -> None:
        # The server closes its copy.
        self._ssp = None
        self._shd = SocketHolder(os.dup(self._listener.fileno()), False, BACKLOG)  # pyright: ignore[reportCallIssue]
        self._sfd = self._shd.get_fd()


async def run(
    app: FastAPI,
    listener: socket.socket,
    announcement: AbstractContextManager[None],
    lifetime: Lifetime | None,
) -> None:
    """Serve until a signal, or the end of the lifetime.

    Args:
        app: The application.
        listener: Listening socket.
        announcement: Context in which the service can be found.
        lifetime: Lifetime of the service; None if it ends only by a signal.
    """
    # What is loaded by now lives as long as the service. Otherwise a full collection visits all of
    # it during a request, which takes 100 ms.
    gc.freeze()
    server = SocketServer(app, listener)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    serving = asyncio.create_task(server.serve())
    with (
        handled_signals(
            lambda *_: loop.call_soon_threadsafe(stop.set), signal.SIGINT, signal.SIGTERM
        ),
        announcement,
    ):
        while not (stop.is_set() or serving.done() or (lifetime and lifetime.is_over())):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), TICK_S)
    # Now no run finds the address any more. The server would wait for the streams.
    poller = app.state.services.poller
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(poller.finish(), SHUTDOWN_TIMEOUT_S)
    poller.close()
    server.stop()
    await asyncio.wait([serving], timeout=SHUTDOWN_TIMEOUT_S)
    if serving.done():
        serving.result()


@contextlib.contextmanager
def announced(address: Address, page: PageOptions, *, plays: bool) -> Iterator[None]:
    """Publish the address of a service that listens, print the link, and open the browser.

    Args:
        address: Address of the service.
        page: Address of the page, and whether to open it.
        plays: Whether it shows episodes instead of experiments; runs do not find such a service.
    """
    with contextlib.nullcontext() if plays else published(address):
        url = link(address, "/play" if plays else "/")
        print_link(page.host, url)
        if not page.no_browser:
            opened = one_time_link(address, url)
            threading.Thread(target=open_in_browser, args=(opened,), daemon=True).start()
        yield


def print_link(host: str, url: str) -> None:
    """Print the link, with a warning if others can read the traffic."""
    console = Console()
    console.out(f"The page: {url}", highlight=False)
    if not host.startswith(LOOPBACK) and not url.startswith("https:"):
        console.print(
            "The connection is not encrypted. Outside a trusted network, use a reverse proxy with "
            "TLS or an SSH tunnel.",
            soft_wrap=True,
        )
    console.print("Press Ctrl-C to stop it; labels are kept.")
