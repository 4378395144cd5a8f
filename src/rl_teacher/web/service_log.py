"""Log files of the service: requests, warnings and errors."""

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from rl_teacher.common.files import folder_errors, make_private_home

LOG_NAME = "service.log"
MAX_LOG_BYTES = 5_000_000
NUM_OLD_LOGS = 3
"""Rotated request logs to keep besides the current one."""

LOGGED_FIELDS = (
    *("request_id", "labeler", "experiment", "method"),
    *("path", "status", "duration_ms"),
)
"""Fields of a request that are logged as JSON."""


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
def request_log(
    home: Path, log_format: str = "text", *, has_terminal: bool = True
) -> Iterator[None]:
    """Log requests, warnings and errors of this process to a file within the context.

    Warnings and errors also go to the terminal. A full disk is reported there and fails no request.

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
    terminal = logging.StreamHandler()
    terminal.setLevel(logging.WARNING)
    is_json = log_format == "json"
    file.setFormatter(JsonFormatter() if is_json else formatter)
    short = logging.Formatter("%(levelname)s %(message)s")
    terminal.setFormatter(JsonFormatter() if is_json else short)
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


class JsonFormatter(logging.Formatter):
    """Formatter of log records as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON; fields without a value are left out."""
        fields = {name: getattr(record, name, None) for name in LOGGED_FIELDS}
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in fields.items() if value is not None},
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)
