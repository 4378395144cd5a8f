"""Process of the service: how a training run finds or starts one, and when it stops by itself.

Each run holds a shared lock in the home while it shows the page. The operating system releases the
lock however the run ends.
"""

import logging
import os
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path

from rl_teacher.config.experiment import PageOptions
from rl_teacher.runs.folder import home, media_url
from rl_teacher.store.lock import FolderLock, SharedLock
from rl_teacher.web.address import (
    Address,
    await_service,
    database_id,
    experiment_path,
    label_path,
    link,
    listening,
    location_id,
    running_service,
    running_services,
)
from rl_teacher.web.service_log import log_folder

LOCK_NAME = "service-in-use"
ERRORS_NAME = "service-errors.log"
"""Standard error of a service that a training run has started."""

MAX_ERRORS_BYTES = 1_000_000

END_TIMEOUT_S = 5.0
END_AFTER_S = 60.0
"""Seconds until a service stops by itself if its run was killed; a new run finds it until then."""
BEGIN_TIMEOUT_S = 10.0
"""Seconds to wait for a previous service that is stopping."""

logger = logging.getLogger(__name__)


class PageService:
    """Service that shows the page of a run; it is started if none runs."""

    def __init__(self, options: PageOptions) -> None:
        """Find a service of this store and these media, or start one.

        Its standard error is written to `<home>/logs/service-errors.log`.
        """
        self._shown = shared_page_lock(home())
        errors = log_folder(home()) / ERRORS_NAME
        # Held before services are looked for, so that the one that is found does not stop.
        self._shown.acquire(BEGIN_TIMEOUT_S)
        self._served = database_id(), location_id(media_url())
        self._found = running_service(*self._served)
        self._process = None if self._found else start_service(options, errors)
        if self._found is not None:
            warn_of_ignored_options(options, self._found)

    def address(self) -> Address:
        """Wait until the service listens and return its address.

        Raises:
            BadInput: The service did not start.
        """
        if self._found is None:
            assert self._process is not None  # noqa: S101 - started unless one was found
            own = await_service(self._process)
            # Runs that start at the same time each start a service; all use the first one.
            self._found = [own, *running_services(*self._served)][-1]
            if self._found.pid != self._process.pid:
                end(self._process)
                self._process = None
        return self._found

    def link(self, name: str, labels: bool) -> str:
        """Wait until the service listens and return the link to an experiment.

        Args:
            name: Name of the experiment.
            labels: Whether to link to the labelling page instead of the experiment's page.

        Raises:
            BadInput: The service did not start.
        """
        return link(self.address(), label_path(name) if labels else experiment_path(name))

    def close(self) -> None:
        """Stop the service if it was started here and no other run shows the page."""
        self._shown.release()
        exclusive_lock = exclusive_page_lock(home())
        if self._process is None or not exclusive_lock.acquire():
            return
        end(self._process)
        # Released only now, so that a new run waits until the port is free.
        exclusive_lock.release()


def check_page(options: PageOptions) -> None:
    """Check that the page of a run is served already, or can be served at its address.

    Raises:
        BadInput: The address is unavailable.
    """
    if running_service(database_id(), location_id(media_url())) is None:
        with listening(options.host, options.port):
            pass


def warn_of_ignored_options(options: PageOptions, found: Address) -> None:
    """Warn that a service which runs already keeps its own host and port."""
    defaults = PageOptions()
    for name, given, default, used in (
        ("host", options.host, (defaults.host,), found.bound_host),
        ("port", options.port, (defaults.port, 0), found.port),
    ):
        if given != used and given not in default:
            logger.warning(
                "--%s %s has no effect: the page is served on %s %s already. Stop that service "
                "(process %d) first to use another %s.",
                *(name, given, name, used, found.pid, name),
            )


def end(process: "subprocess.Popen[bytes]") -> None:
    """Terminate a process, and kill it after a timeout."""
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_service(options: PageOptions, errors: Path) -> "subprocess.Popen[bytes]":
    """Start `rl-teacher serve` in a session of its own, so that Ctrl-C reaches only the run."""
    command = [sys.executable, "-m", "rl_teacher.cli", "serve", "--no-browser"]
    command += ["--host", options.host, "--port", str(options.port)]
    command += ["--end-after-runs", str(END_AFTER_S)]
    # What was written since the service last started is enough; requests are logged elsewhere.
    is_small = not errors.exists() or errors.stat().st_size < MAX_ERRORS_BYTES
    with errors.open("ab" if is_small else "wb") as output:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # contains the link with the token
            stderr=output,
            start_new_session=True,
        )


def shared_page_lock(home: Path) -> SharedLock:
    """Return the lock that a run holds while it shows the page."""
    return SharedLock(home / LOCK_NAME)


def exclusive_page_lock(home: Path) -> FolderLock:
    """Return the lock that is available only while no run shows the page."""
    return FolderLock(home / LOCK_NAME)


class Lifetime:
    """Lifetime of a service that stops some time after the last run has ended."""

    def __init__(
        self, home: Path, end_after_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Start the countdown.

        Args:
            home: Home of the runs.
            end_after_s: Seconds without a run that shows the page until the service stops.
            now: Monotonic clock in seconds.
        """
        self._exclusive_lock = exclusive_page_lock(home)
        self._end_after_s = end_after_s
        self._now = now
        self._shown_s = now()

    def is_over(self) -> bool:
        """Return whether no run has shown the page for the configured time.

        The lock is then held until `close`: a run that starts meanwhile waits, and then starts its
        own service.
        """
        try:
            is_shown = not self._exclusive_lock.acquire(timeout_s=0.0)
        except OSError:  # the home was deleted or is read-only, or too many files are open
            is_shown = False
        if is_shown:
            self._shown_s = self._now()
            return False
        is_over = self._now() - self._shown_s >= self._end_after_s
        if not is_over:
            self._exclusive_lock.release()
        return is_over

    def close(self) -> None:
        """Release the lock after the service has stopped."""
        self._exclusive_lock.release()


def open_in_browser(url: str) -> bool:
    """Open a page in a graphical browser and return whether that was possible.

    Without a display, a text browser would take over the terminal.
    """
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    try:
        return has_screen and webbrowser.open(url)
    except webbrowser.Error:
        return False
