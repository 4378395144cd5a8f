"""Web service process of `rl-teacher serve`."""

import contextlib
import gc
import logging
import multiprocessing
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import uvicorn
from fastapi import FastAPI
from rich.console import Console
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from rl_teacher.common.errors import BadInput, RlTeacherError
from rl_teacher.common.runtime import handled_signals, stop_requests
from rl_teacher.runs.folder import database_url, home, media_url
from rl_teacher.store.database import as_url
from rl_teacher.store.files import folder_errors
from rl_teacher.store.media_cache import CACHE_FOLDER, open_cached
from rl_teacher.store.store import Store
from rl_teacher.web.address import (
    SERVICES_FOLDER,
    Address,
    PortTaken,
    access_token,
    base_url,
    link,
    listen,
    listening,
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
    LimitedProtocol,
    max_connections,
    raise_descriptor_limit,
)
from rl_teacher.web.poller import Poller
from rl_teacher.web.processes import Worker, running, terminate_with_parent
from rl_teacher.web.schemas.play import EpisodePlayer
from rl_teacher.web.service_log import request_log
from rl_teacher.web.service_process import Lifetime, open_in_browser
from rl_teacher.web.settings import Settings
from rl_teacher.web.shared_state import SharedState

BUSY_TIMEOUT_S = 5.0
"""Seconds that a request waits for a database lock before it fails with 503."""
SHUTDOWN_TIMEOUT_S = 2
KEEP_ALIVE_S = 30
TICKS_BETWEEN_CHECKS = 5
"""Server ticks between checks for runs that show the page."""
TICK_S = 0.2
"""Seconds between checks of service processes by their parent."""
MAX_PROCESSES = 64
LOOPBACK = ("127.", "::1", "localhost")

WORKER_LOG_NAME = "service-{}.log"
STATE_NAME = "state.sqlite"


logger = logging.getLogger(__name__)


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
    """storage of clips: a folder, or a URL such as s3://bucket/folder; by default
    RL_TEACHER_MEDIA_URL, or the media folder of RL_TEACHER_HOME"""
    end_after_runs: float | None = None
    """seconds after the last run until the service ends; by default it does not end"""
    public_url: str | None = None
    """address that browsers open, in printed links, such as https://label.example.org behind a
    reverse proxy; by default that of --host and --port"""
    log_format: Literal["text", "json"] = "text"
    """format of the log; json has the request, its labeler and its experiment"""
    processes: int = 1
    """service processes behind one address, for more than about 400 requests a second; several
    need PostgreSQL and Linux"""


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
        BadInput: The address is unavailable, a URL is invalid, or the database does not admit
            several processes.
        StoreUnavailable: The database, or a remote storage of media, cannot be used.
        RunFolderUnusable: The home cannot be written.
    """
    database = database_url()
    check_processes(options.processes, database)
    if options.end_after_runs is not None and not options.end_after_runs >= 0:  # NaN, too
        raise BadInput(
            f"--end-after-runs {options.end_after_runs:g} was given; a number of seconds from 0 is "
            "needed."
        )
    public_url = None if options.public_url is None else base_url(options.public_url)
    media = media_url(options.media)
    media_files = open_cached(media, home() / CACHE_FOLDER)
    if player is None:
        media_files.check()
    settings = Settings(access_token(home()), secrets.token_hex(8))
    is_one = options.processes == 1
    with (
        request_log(home(), options.log_format, has_terminal=has_terminal(options)),
        listening(options.host, options.port, is_shared=not is_one) as listener,
        Store.open(database, busy_timeout_s=BUSY_TIMEOUT_S) as store,
        contextlib.ExitStack() as stack,
    ):
        port = listener.getsockname()[1]
        address = local_address(options.host, port, settings.instance, database, media)
        address = replace(address, url=public_url or address.url)
        announcement = announced(address, options, plays=player is not None)
        end_after_s = options.end_after_runs
        lifetime = None if end_after_s is None else Lifetime(home(), end_after_s)
        if lifetime is not None:
            stack.callback(lifetime.close)
        if is_one:
            app = create_app(store, media_files, settings, player)
            Service(app, limits, announcement, lifetime).run([listener])
        else:
            # The store was opened to be migrated, and for errors to be reported by one process.
            store.close()
            with shared_state_file(settings.instance) as state:
                arguments = (replace(options, port=port), limits, settings.instance, state)
                serve_in_processes(arguments, options.processes, listener, announcement, lifetime)
    return 0


def check_processes(num_processes: int, database: str) -> None:
    """Check that so many processes can serve a database.

    Raises:
        BadInput: They cannot.
    """
    if not 1 <= num_processes <= MAX_PROCESSES:
        raise BadInput(
            f"--processes {num_processes} was given; it must be between 1 and {MAX_PROCESSES}."
        )
    if num_processes == 1:
        return
    if as_url(database).get_backend_name() != "postgresql":
        raise BadInput(
            f"--processes {num_processes} needs PostgreSQL, because SQLite admits one writer at a "
            "time. Set RL_TEACHER_DATABASE_URL to postgresql://user@host/name, or leave "
            "--processes out."
        )
    if sys.platform != "linux":
        raise BadInput(
            f"--processes {num_processes} needs Linux, which distributes the connections among "
            "the processes. Leave --processes out."
        )


def has_terminal(options: ServeOptions) -> bool:
    """Return whether the standard error is shown to a person.

    That of a service that a run has started is a file, which is not rotated.
    """
    return options.end_after_runs is None


@contextlib.contextmanager
def shared_state_file(instance: str) -> Iterator[Path]:
    """Provide a path for the state that processes share, in a folder deleted at the end.

    It is in the home, because files in `/tmp` that are not used for some days may be deleted.
    """
    folder = home() / SERVICES_FOLDER / instance
    with folder_errors(home()):
        folder.mkdir(parents=True)
    try:
        yield folder / STATE_NAME
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def serve_in_processes(
    arguments: tuple[ServeOptions, ConnectionLimits, str, Path],
    num_processes: int,
    listener: socket.socket,
    announcement: AbstractContextManager[None],
    lifetime: Lifetime | None,
) -> None:
    """Serve in several processes until a signal or the end of the lifetime.

    Args:
        arguments: Arguments of `serve_as_worker` but the first and the last one.
        num_processes: Number of processes.
        listener: Socket that reserves the port until the processes listen.
        announcement: Context in which all processes listen.
        lifetime: Lifetime of the service; None if it ends only by a signal.
    """
    SharedState(arguments[-1])  # creates the file
    workers: list[Worker] = []
    with stop_requests() as stop, running(workers):
        for number in range(1, num_processes + 1):
            workers.append(Worker(number, serve_as_worker, (number, *arguments)))

        def wait_for(is_over: Callable[[], bool]) -> None:
            while not stop and not is_over():
                time.sleep(TICK_S)
                for each in workers:
                    each.restart_if_dead()

        wait_for(lambda: all(each.is_ready for each in workers))
        listener.close()
        if not stop:
            with announcement:
                wait_for(lambda: lifetime is not None and lifetime.is_over())


def serve_as_worker(
    number: int,
    options: ServeOptions,
    limits: ConnectionLimits,
    instance: str,
    state: Path,
    ready: Connection,
) -> None:
    """Serve in one of several processes until it is terminated, or its parent has ended.

    Args:
        number: Number of the process, from 1.
        options: Options of the service, with the port that was chosen.
        limits: Limits of the connections of each process.
        instance: Unique name of the service.
        state: File of the state that the processes share.
        ready: Receives True when the process listens.
    """
    parent = multiprocessing.parent_process()
    terminate_with_parent()
    log_name = WORKER_LOG_NAME.format(number)
    with request_log(home(), options.log_format, has_terminal=has_terminal(options), name=log_name):
        try:
            with (
                listen(options.host, options.port, is_shared=True) as listener,
                Store.open(database_url(), busy_timeout_s=BUSY_TIMEOUT_S) as store,
            ):
                media_files = open_cached(media_url(options.media), home() / CACHE_FOLDER)
                settings = Settings(access_token(home()), instance)
                app = create_app(store, media_files, settings, shared=SharedState(state, number))
                Service(app, limits, reported(ready)).run([listener])
        except (RlTeacherError, PortTaken) as error:
            logger.error("Service process %d cannot serve: %s", number, error)
            sys.exit(1)
    if parent is not None and not parent.is_alive():
        shutil.rmtree(state.parent, ignore_errors=True)


@contextlib.contextmanager
def reported(ready: Connection) -> Iterator[None]:
    """Report to the parent that this process listens."""
    ready.send(True)
    yield


@contextlib.contextmanager
def announced(address: Address, options: ServeOptions, *, plays: bool) -> Iterator[None]:
    """Publish the address of a service that listens, print the link, and open the browser.

    Args:
        address: Address of the service.
        options: Options of the service.
        plays: Whether it shows episodes instead of experiments; runs do not find such a service.
    """
    with contextlib.nullcontext() if plays else published(address):
        url = play_link(address) if plays else link(address)
        print_link(options, url)
        if not options.no_browser:
            opened = one_time_link(address, url)
            threading.Thread(target=open_in_browser, args=(opened,), daemon=True).start()
        yield


class Service(uvicorn.Server):
    """Server that announces itself when it listens, and closes event streams when it stops."""

    def __init__(
        self,
        app: FastAPI,
        limits: ConnectionLimits,
        announcement: AbstractContextManager[None],
        lifetime: Lifetime | None = None,
    ) -> None:
        """Configure the server.

        Args:
            app: The application.
            limits: Limits of its connections.
            announcement: Context in which it listens.
            lifetime: Lifetime of the service; None if it ends only by a signal.
        """
        limits = replace(limits, total=max_connections(limits.total, raise_descriptor_limit()))
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
        super().__init__(config)
        self._poller: Poller = app.state.services.poller
        self._announcement = announcement
        self._open = contextlib.ExitStack()
        self._lifetime = lifetime

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and announce it."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)  # asyncio has set the length of the queue to what it takes at once
        # Only now that it listens: a run uses the address as soon as it finds it.
        self._open.enter_context(self._announcement)

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
        self._open.close()
        self._poller.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again, because other resources must be closed."""
        with handled_signals(self.handle_exit, signal.SIGINT, signal.SIGTERM):
            yield


def print_link(options: ServeOptions, url: str) -> None:
    """Print the link."""
    console = Console()
    console.out(f"The page: {url}", highlight=False)
    if not options.host.startswith(LOOPBACK) and not url.startswith("https:"):
        console.print(
            "The connection is not encrypted. Outside a trusted network, use a reverse proxy with "
            "TLS or an SSH tunnel.",
            soft_wrap=True,
        )
    console.print("Press Ctrl-C to stop it; labels are kept.")
