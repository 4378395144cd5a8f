"""A database that is open: its engine, its transactions, and its failures put into words."""

import math
import os
import selectors
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    InvalidatePoolError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.store.migrate import migrate

BUSY_TIMEOUT_S = 10.0
"""How long a transaction waits for another process's before it gives up."""

REASONS = (
    (
        "locked",
        "another process has held it locked for too long",
        "Wait until that process is done, or end it, and start again.",
    ),
    (
        "readonly",
        "it may be read but not written",
        "Give yourself write permission on the file and its folder, or name another database.",
    ),
    (
        "not a database",
        "the file holds something else, or was damaged",
        "Put a backup in its place, or move the file away to start an empty one.",
    ),
    (
        "malformed",
        "the file was damaged",
        "Put a backup in its place, or rescue the rest with `sqlite3 FILE .recover`.",
    ),
    ("disk is full", "the disk is full", "Free some space and start again."),
    (
        "unable to open",
        "the file cannot be opened",
        "Check that the folder exists and that you may write there.",
    ),
    (
        "lock timeout",
        "another process has held what is needed for too long",
        "Wait until that process is done, or end it, and start again.",
    ),
    (
        "read-only transaction",
        "it may be read but not written",
        "Name a server that takes writes, or another database.",
    ),
    (
        "authentication failed",
        "the server does not accept this user and password",
        "Mend them in RL_TEACHER_DATABASE_URL.",
    ),
    (
        "does not exist",
        "the server has no such database or user",
        "Make it with createdb or createuser, or name another in RL_TEACHER_DATABASE_URL.",
    ),
    (
        "connection",
        "the server does not answer",
        "Check that it runs, and its host and port in RL_TEACHER_DATABASE_URL.",
    ),
)
"""What a driver's message contains; what that means; what to do."""


class Turn:
    """One thread at a time.

    Left to SQLite, each of them would sleep and look again, in no order, up to 100 ms at a time.
    """

    def __init__(self, label: str, timeout_s: float) -> None:
        self._label, self._timeout_s = label, timeout_s
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._timeout_s):
            raise StoreUnavailable(explain(self._label, "database is locked"))

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@dataclass(frozen=True)
class Database:
    """An engine and the name a person knows it by.

    Attributes:
        engine: SQLAlchemy's engine, ready for use.
        label: where it is, without a password.
        file: the SQLite file; None for a server, or a database in memory.
        inode: of the file that was opened, or None where there is no file.
        turn: of this process's threads to write.
    """

    engine: Engine
    label: str
    file: Path | None
    inode: int | None
    turn: AbstractContextManager[None]

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.engine.dialect.name

    @cached_property
    def _writing_engine(self) -> Engine:
        return self.engine.execution_options(is_writing=True)

    @cached_property
    def _reading_engine(self) -> Engine:
        if self.dialect == "sqlite":
            return self.engine
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        self._refuse_a_file_that_is_gone()
        with failures_in_words(self.label), self._reading_engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes; what it wrote is committed when the block is left."""
        self._refuse_a_file_that_is_gone()
        with (
            failures_in_words(self.label),
            self.turn,
            self._writing_engine.begin() as connection,
        ):
            yield connection

    def close(self) -> None:
        """Give every connection back."""
        self.engine.dispose()

    def _refuse_a_file_that_is_gone(self) -> None:
        """SQLite goes on with a deleted file, and every label written to it would be lost."""
        if self.inode is not None and inode_of(self.file) != self.inode:
            raise StoreUnavailable(
                f"The database {self.label} was deleted or replaced while it was in use, so "
                "nothing is read from it or written to it. Put the file back, or start again."
            )


def open_database(
    url_or_path: str | Path, busy_timeout_s: float = BUSY_TIMEOUT_S, *, is_synced: bool = True
) -> Database:
    """Connect, create the file and bring the tables to this version.

    Args:
        url_or_path: an SQLAlchemy URL, or the path of an SQLite file.
        busy_timeout_s: how long to wait for a lock.
        is_synced: whether an SQLite commit waits for the disk.

    Raises:
        StoreUnavailable: it is locked, read-only, damaged, unreachable or of a newer version.
    """
    url = as_url(url_or_path)
    label = label_of(url)
    make_parent_folder(url, label)
    engine = make_engine(url, label, busy_timeout_s, is_synced=is_synced)
    try:
        with failures_in_words(label):
            migrate(engine, label)
    except BaseException:
        engine.dispose()
        raise
    file = file_of(url)
    is_sqlite = engine.dialect.name == "sqlite"
    turn = Turn(label, busy_timeout_s) if is_sqlite else nullcontext()
    return Database(engine, label, file, inode_of(file), turn)


def default_url(home: Path) -> str:
    """The database to use: RL_TEACHER_DATABASE_URL, or the file in the home."""
    return os.environ.get("RL_TEACHER_DATABASE_URL") or str(home / "labels.sqlite")


def as_url(url_or_path: str | Path) -> URL:
    """A path is an SQLite file; a PostgreSQL URL without a driver means psycopg."""
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return URL.create("sqlite", database=str(Path(url_or_path).expanduser()))
    try:
        url = make_url(url_or_path)
    except ArgumentError as error:
        raise StoreUnavailable(
            f"{url_or_path!r} is not the URL of a database. "
            "Give a path, or something like postgresql://user@host/name."
        ) from error
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    return url


def label_of(url: URL) -> str:
    """The path of a file; the URL, without its password, of a server."""
    file = file_of(url)
    # Note: a password may be among the options too, so that none of them is shown.
    return str(file) if file else url.set(query={}).render_as_string(hide_password=True)


def file_of(url: URL) -> Path | None:
    """The SQLite file behind a URL; None for a server, or a database in memory."""
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return Path(str(url.database).removeprefix("file:")) if is_file else None


def inode_of(file: Path | None) -> int | None:
    """What the operating system knows the file by; None where there is no file."""
    try:
        return os.stat(file).st_ino if file else None  # noqa: PTH116 - once per transaction
    except FileNotFoundError:
        return None


def make_parent_folder(url: URL, label: str) -> None:
    """SQLite creates a file, not its folder."""
    file = file_of(url)
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"The database {label} cannot be created: {error.strerror} ({error.filename}). "
            "Name a place where you may write, with RL_TEACHER_HOME."
        ) from error


def make_engine(url: URL, label: str, busy_timeout_s: float, *, is_synced: bool) -> Engine:
    """An engine whose connections are set up for durable, shared use."""
    is_sqlite = url.get_backend_name() == "sqlite"
    try:
        engine = create_engine(
            url,
            connect_args=connect_args(url, busy_timeout_s),
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise StoreUnavailable(
            f"The database {label} needs a driver that is not installed: {error}. "
            "For PostgreSQL: pip install 'psycopg[binary]'."
        ) from error
    if is_sqlite:
        event.listen(
            engine, "connect", lambda raw, _record: set_up_sqlite(raw, is_synced=is_synced)
        )
        event.listen(engine, "begin", begin_sqlite)
    elif url.get_backend_name() == "postgresql":
        event.listen(engine, "connect", lambda raw, _record: set_up_postgresql(raw, busy_timeout_s))
        event.listen(engine, "checkout", refuse_if_ended)
    return engine


def connect_args(url: URL, busy_timeout_s: float) -> dict[str, Any]:
    """How long to wait for a lock, or for a server that does not answer."""
    match url.get_backend_name():
        case "sqlite":
            return {"timeout": busy_timeout_s}
        case "postgresql" if "connect_timeout" not in url.query:
            return {"connect_timeout": max(2, math.ceil(busy_timeout_s))}
        case _:
            return {}


def set_up_postgresql(connection: Any, busy_timeout_s: float) -> None:
    """Wait for a lock as long as SQLite does, and not for ever."""
    with connection.cursor() as cursor:
        timeout_ms = str(max(1, round(busy_timeout_s * 1000)))
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [timeout_ms])
    connection.commit()


def refuse_if_ended(connection: Any, _record: Any, _proxy: Any) -> None:
    """Let the pool connect anew where the server has ended its connections.

    One that nobody uses has something to read only then. To see that costs no way to the server and
    back, as it would to ask.

    Raises:
        InvalidatePoolError: the server has ended it.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        if selector.select(timeout=0):
            raise InvalidatePoolError("the server has ended the connection")


def set_up_sqlite(connection: sqlite3.Connection, *, is_synced: bool) -> None:
    """Readers beside a writer, foreign keys, and commits that are as durable as asked for.

    In WAL mode `synchronous=NORMAL` already outlives SIGKILL, since the operating system has the
    bytes. FULL waits for the disk, and outlives a power cut too: 0.25 ms a commit on an idle
    machine, but a whole time slice (4 ms) where every core is busy.
    """
    connection.isolation_level = None  # BEGIN is ours, below
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA synchronous={'FULL' if is_synced else 'NORMAL'}")


def begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once.

    A transaction that reads first and writes later is refused, busy timeout or not, when another
    has written in between.
    """
    is_writing = connection.get_execution_options().get("is_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")


@contextmanager
def failures_in_words(label: str) -> Iterator[None]:
    """Say what a driver's error means and what to do about it; leave our own mistakes alone."""
    try:
        yield
    except (IntegrityError, ProgrammingError, DataError, NotSupportedError):
        raise
    except DBAPIError as error:
        raise StoreUnavailable(explain(label, str(error.orig))) from error
    except PoolTimeoutError as error:
        raise StoreUnavailable(
            f"The database {label} is in use by too many threads at once. Try again."
        ) from error


def explain(label: str, message: str) -> str:
    """What happened, why, and what to do."""
    for fragment, why, what_to_do in REASONS:
        if fragment in message:
            return f"The database {label} cannot be used: {why} ({message}). {what_to_do}"
    return (
        f"The database {label} cannot be used: {message.strip()}. "
        "Check that it is there and that you may write to it."
    )
