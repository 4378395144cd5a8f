"""Log files of the service: requests in the home, warnings and errors also in the terminal."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

from rl_teacher.store.files import folder_errors

FOLDER = "logs"
FILE_NAME = "service.log"
ERRORS_NAME = "service-errors.log"
"""Standard error of a service that a training run has started."""

MAX_BYTES = 5_000_000
NUM_OLD = 3
"""Rotated request logs to keep besides the current one."""


def log_folder(home: Path) -> Path:
    """Return the log folder of a home, which is created if it is missing.

    Raises:
        RunFolderUnusable: The folder cannot be created.
    """
    folder = home / FOLDER
    with folder_errors(home):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def logged(home: Path) -> Iterator[None]:
    """Log requests, warnings and errors of this process within the context.

    A full disk is reported in the terminal and fails no request.

    Raises:
        RunFolderUnusable: The log file cannot be written.
    """
    handlers = [requests_handler(log_folder(home)), terminal_handler()]
    package = logging.getLogger("rl_teacher")
    before = package.level
    package.setLevel(logging.INFO)
    for handler in handlers:
        logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        package.setLevel(before)
        for handler in handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()


def requests_handler(folder: Path) -> logging.Handler:
    """Return a rotating handler for all records, with times in UTC."""
    with folder_errors(folder):
        handler = RotatingFileHandler(
            folder / FILE_NAME,
            maxBytes=MAX_BYTES,
            backupCount=NUM_OLD,
            encoding="utf-8",
            errors="backslashreplace",
        )
    formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    return handler


def terminal_handler() -> logging.Handler:
    """Return a handler for warnings and errors."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    return handler
