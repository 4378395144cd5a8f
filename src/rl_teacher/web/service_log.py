"""Log files of the service: requests, warnings and errors."""

import contextlib
import logging
import time
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

from rl_teacher.common.files import folder_errors, make_private_home

LOG_NAME = "service.log"
MAX_LOG_BYTES = 5_000_000
NUM_OLD_LOGS = 3
"""Rotated request logs to keep besides the current one."""


def log_folder(home: Path) -> Path:
    """Return the log folder of a home, which is created if it is missing.

    Raises:
        RunFolderUnusable: The folder cannot be created.
    """
    folder = home / "logs"
    with folder_errors(home):
        make_private_home(home)
        folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def request_log(home: Path, *, has_terminal: bool = True) -> Iterator[None]:
    """Log requests, warnings and errors of this process to a file within the context.

    Warnings and errors also go to the terminal. A full disk is reported there and fails no request.

    Args:
        home: Home of the service.
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
    with_time = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    with_time.converter = time.gmtime
    file.setFormatter(with_time)
    terminal = logging.StreamHandler()
    terminal.setLevel(logging.WARNING)
    terminal.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    package = logging.getLogger("rl_teacher")
    before = package.level
    package.setLevel(logging.INFO)
    handlers = (file, terminal) if has_terminal else (file,)
    for handler in handlers:
        logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        package.setLevel(before)
        for handler in handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()
