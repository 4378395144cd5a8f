"""Page of a training run: an existing service, or one in a subprocess."""

import subprocess
import sys
from pathlib import Path

from rl_teacher.config.experiment import RunOptions
from rl_teacher.runs.folder import home
from rl_teacher.store.database import default_url
from rl_teacher.web.address import await_service, link, running_service, serves
from rl_teacher.web.lifetime import exclusive_page_lock, shown
from rl_teacher.web.logs import ERRORS_NAME, log_folder

END_TIMEOUT_S = 5.0
END_AFTER_S = 60.0
"""Seconds until a service stops by itself if its run was killed; a new run finds it until then."""
BEGIN_TIMEOUT_S = 10.0
"""Seconds to wait for a previous service that is stopping."""


class PageService:
    """Service that shows the page of a run; it is started if none runs.

    A service runs as long as any run shows its page; see `web.lifetime`.
    """

    def __init__(self, options: RunOptions) -> None:
        """Find a service of this store and these media, or start one.

        Its standard error is written to `<home>/logs/service-errors.log`.
        """
        self._shown = shown(home())
        errors = log_folder(home()) / ERRORS_NAME
        self._shown.acquire(BEGIN_TIMEOUT_S)
        self._serves = serves(default_url(home()), options.media or home() / "media")
        self._found = running_service(self._serves)
        self._process = None if self._found else start_service(options, errors)

    def link(self, name: str, labels: bool) -> str:
        """Wait until the service listens and return the link to an experiment.

        Args:
            name: Name of the experiment.
            labels: Whether to link to the labelling page instead of the experiment's page.

        Raises:
            BadInput: The service did not start.
        """
        if self._found is None:
            assert self._process is not None  # noqa: S101 - started unless one was found
            self._found = await_service(self._process, store_and_media=self._serves)
            if self._found.pid != self._process.pid:
                end(self._process)
                self._process = None
        return link(self._found, name, labels=labels)

    def close(self) -> None:
        """Stop the service if it was started here and no other run shows the page.

        The lock is held until the service has stopped, so that a new run waits for that.
        """
        self._shown.release()
        exclusive_lock = exclusive_page_lock(home())
        if self._process is None or not exclusive_lock.acquire():
            return
        end(self._process)
        exclusive_lock.release()


def end(process: "subprocess.Popen[bytes]") -> None:
    """Terminate a process, and kill it after a timeout."""
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_service(options: RunOptions, errors: Path) -> "subprocess.Popen[bytes]":
    """Start `rl-teacher serve` in a session of its own, so that Ctrl-C reaches only the run."""
    command = [sys.executable, "-m", "rl_teacher.cli", "serve", "--no-browser"]
    command += ["--host", options.host, "--port", str(options.port)]
    command += ["--media", options.media] if options.media else []
    command += ["--end-after-runs", str(END_AFTER_S)]
    with errors.open("ab") as output:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # contains the link with the token
            stderr=output,
            start_new_session=True,
        )
