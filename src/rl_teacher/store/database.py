"""An open database: engine, transactions, migrations, and explanations of errors."""

import functools
import logging
import math
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Executable,
    RowMapping,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.common.files import make_private, make_private_folder
from rl_teacher.common.paths import user_path

BUSY_TIMEOUT_S = 10.0
"""Time that a transaction waits for one of another process."""

# It logs a traceback when a Ctrl-C, or an outage, ends the closing of a connection; both are
# reported where they are raised.
logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)

MIGRATIONS = Path(__file__).with_name("migrations")

REWRITE_VERSION = text("UPDATE alembic_version SET version_num = version_num")
"""Statement that writes to the database without changing anything."""

WRITER_LOCK = text("SELECT pg_advisory_xact_lock(7236001)")
"""Statement that waits for PostgreSQL's single writer; the number is any fixed one."""

REMEDIES = {
    "SQLITE_BUSY": "Another process has locked it for too long: wait until that process is done.",
    "SQLITE_READONLY": "Give yourself write permission on the file and its folder.",
    "SQLITE_NOTADB": "Restore a backup, or move the file away to start an empty one.",
    "SQLITE_CORRUPT": "Restore a backup, or rescue the rest with `sqlite3 FILE .recover`.",
    "SQLITE_FULL": "Free some space and start again.",
    "SQLITE_IOERR": "Check its disk and the limits of file sizes, and start again.",
    "SQLITE_CANTOPEN": "Check that the folder exists and that you may write there.",
    "25006": "Name a server that takes writes, or another database.",
    "42501": "Make this user the owner of the database and of its tables, or name another user.",
    "53100": "Free some space on the server.",
    "53300": "Increase max_connections of the server, or end other programs that use it.",
    "55P03": "Another process has locked it for too long: wait until that process is done.",
}
"""Remedies by SQLite's error name or PostgreSQL's SQLSTATE, or the beginning of it."""

TRANSIENT = ("SQLITE_BUSY", "SQLITE_LOCKED", "08", "40", "53300", "55P03", "57P")
"""Beginnings of the codes of states that pass by themselves."""


@dataclass(frozen=True)
class Database:
    """An open database.

    There is one writer at a time, so that ids commit in their order and a transaction finds what
    it has read unchanged. Readers never wait.

    Attributes:
        engine: SQLAlchemy engine.
        label: Path or URL without password, for messages.
        file: SQLite file; None for a server or an in-memory database.
        inode: Inode of the file; None without a file.
        busy_timeout_s: Time to wait for another writer.
        now: Clock.
    """

    engine: Engine
    label: str
    file: Path | None
    inode: int | None
    busy_timeout_s: float
    now: Callable[[], datetime]
    _writer: threading.Lock = field(default_factory=threading.Lock)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.engine.dialect.name

    @cached_property
    def _reading_engine(self) -> Engine:
        if self.dialect == "sqlite":
            return self.engine
        # Saves the round trips of BEGIN and COMMIT. Under READ COMMITTED, PostgreSQL's default,
        # each statement sees a snapshot of its own anyway.
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that only reads."""
        self._check_file_exists()
        with driver_errors(self.label), self._reading_engine.begin() as connection:
            yield connection

    def rows(self, statement: Executable, **parameters: Any) -> Sequence[RowMapping]:
        """Return the rows of a query, in a transaction of its own."""
        with self.reading() as connection:
            return connection.execute(statement, parameters).mappings().all()

    def scalar(self, statement: Executable, **parameters: Any) -> Any:
        """Return the first column of a query's first row; None if there is no row."""
        with self.reading() as connection:
            return connection.execute(statement, parameters).scalar()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that writes, and commit it at the end of the block."""
        self._check_file_exists()
        # Threads wait here: SQLite would make them poll, in no order, with pauses of up to 100 ms.
        if not self._writer.acquire(timeout=self.busy_timeout_s):
            raise StoreUnavailable(
                f"The database {self.label} cannot be used: another thread has held it for too "
                "long. Try again.",
                "The database is busy. Try again.",
                is_transient=True,
            )
        try:
            engine = self.engine.execution_options(is_writing=True)
            with driver_errors(self.label), engine.begin() as connection:
                yield connection
        finally:
            self._writer.release()

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _check_file_exists(self) -> None:
        """Check that the file was not deleted; SQLite would keep writing and lose all labels."""
        if self.inode is not None and inode_of(self.file) != self.inode:
            raise StoreUnavailable(
                f"The database {self.label} was deleted or replaced while it was in use, so "
                "nothing is read from it or written to it. Put the file back, or start again.",
                "The database was deleted or replaced while it was in use.",
            )


def open_database(
    url_or_path: str | Path,
    busy_timeout_s: float,
    now: Callable[[], datetime],
    *,
    is_synced: bool,
) -> Database:
    """Connect to a database, creating and migrating it if needed; see `Store.open`."""
    url = as_url(url_or_path)
    label = label_of(url)
    make_private_file(url, label)
    engine = make_engine(url, label, busy_timeout_s, is_synced=is_synced)
    try:
        with driver_errors(label):
            migrate(engine, label)
    except BaseException:
        engine.dispose()
        raise
    file = file_of(url)
    return Database(engine, label, file, inode_of(file), busy_timeout_s, now)


def default_url(home: Path) -> str:
    """Return RL_TEACHER_DATABASE_URL, or the path of the file in the home folder."""
    return os.environ.get("RL_TEACHER_DATABASE_URL") or str(home / "labels.sqlite")


def as_url(url_or_path: str | Path) -> URL:
    """Convert a path to an SQLite URL, and choose psycopg for a PostgreSQL URL without driver."""
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return URL.create("sqlite", database=str(user_path(url_or_path)))
    try:
        url = make_url(url_or_path)
    except (ArgumentError, ValueError) as error:  # the latter for a port that is no number
        shown = re.sub("://.*@", "://***@", url_or_path)
        raise StoreUnavailable(
            f"{shown!r} is not the URL of a database. Give a path, or something like "
            "postgresql://user:password@host/name, in which an @ of the password is "
            "written as %40."
        ) from error
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    return url


def label_of(url: URL) -> str:
    """Return the path of a file, or the URL of a server without its password."""
    file = file_of(url)
    # The query may contain a password, too.
    return str(file) if file else url.set(query={}).render_as_string(hide_password=True)


def file_of(url: URL) -> Path | None:
    """Return the SQLite file of a URL; None for a server or an in-memory database."""
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return Path(str(url.database).removeprefix("file:")) if is_file else None


def sqlite_files(file: Path) -> list[Path]:
    """Return the paths of an SQLite database: its file, write-ahead log and shared memory."""
    return [file.with_name(f"{file.name}{end}") for end in ("", "-wal", "-shm")]


def inode_of(file: Path | None) -> int | None:
    """Return the inode of a file; None if there is no file."""
    try:
        return os.stat(file).st_ino if file else None  # noqa: PTH116 - once per transaction
    except FileNotFoundError:
        return None


def make_private_file(url: URL, label: str) -> None:
    """Create the folder of an SQLite file, which SQLite does not do, and make the file private."""
    file = file_of(url)
    if file is None:
        return
    try:
        make_private_folder(file.parent)
    except OSError as error:
        raise StoreUnavailable(
            f"The database {label} cannot be created: {error.strerror} ({error.filename}). "
            "Name a place where you may write, with RL_TEACHER_HOME."
        ) from error

    # SQLite creates files that everybody can read; its other files get the permissions of this one.
    # An existing file is not opened: closing it would release all locks that this process has on
    # it, so that another process could delete the write-ahead log.
    with suppress(OSError):  # it exists, or cannot be created, which SQLite will report
        os.close(os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for each in sqlite_files(file):
        with suppress(FileNotFoundError):
            make_private(each)


def make_engine(url: URL, label: str, busy_timeout_s: float, *, is_synced: bool) -> Engine:
    """Create an engine whose connections are configured for durable, shared use."""
    is_sqlite = url.get_backend_name() == "sqlite"
    options: dict[str, Any] = {"connect_args": {"timeout": busy_timeout_s}}
    if not is_sqlite:
        options = {"connect_args": connect_args(url, busy_timeout_s), "pool_pre_ping": True}
    try:
        engine = create_engine(url, **options)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise StoreUnavailable(
            f"The database {label} needs a driver that is not installed: {error}. "
            "For PostgreSQL: pip install 'psycopg[binary]'."
        ) from error
    except ArgumentError as error:
        raise unavailable(label, error) from error
    if is_sqlite:
        event.listen(
            engine, "connect", lambda raw, _record: set_up_sqlite(raw, is_synced=is_synced)
        )
    event.listen(engine, "begin", begin)
    return engine


def connect_args(url: URL, busy_timeout_s: float) -> dict[str, Any]:
    """Return the arguments that limit the wait for a lock or a server, as on SQLite.

    Compiling a query takes 250 ms, and PostgreSQL does so for a cheap one, too, whose cost it
    overestimates. At its default cost of a random access, that of a hard disk, it sorts all open
    comparisons to find the first one in a new database, rather than to follow the index.
    """
    # libpq recommends 2 s at least.
    timeout_s = max(2, math.ceil(busy_timeout_s))
    lock_timeout_ms = max(1, round(busy_timeout_s * 1000))
    arguments = {
        "connect_timeout": timeout_s,
        # Otherwise a connection whose server has lost its network or its power hangs: for a quarter
        # of an hour if something was sent, and for two hours if an answer is awaited.
        "tcp_user_timeout": 1_000 * timeout_s,
        "keepalives_idle": timeout_s,
        "keepalives_interval": timeout_s,
        "options": f"-c lock_timeout={lock_timeout_ms} -c jit=off -c random_page_cost=1",
    }
    return {name: value for name, value in arguments.items() if name not in url.query}


def set_up_sqlite(connection: sqlite3.Connection, *, is_synced: bool) -> None:
    """Enable concurrent readers, foreign keys and the requested durability.

    In WAL mode `synchronous=NORMAL` survives SIGKILL, because the operating system has the bytes.
    FULL waits for the disk and survives a power failure, too: 0.25 ms per commit on an idle
    machine, but a whole time slice (4 ms) if every core is busy.
    """
    connection.isolation_level = None  # `begin` issues BEGIN
    try:
        connection.execute("PRAGMA journal_mode=WAL")
    except sqlite3.OperationalError as error:
        # SQLite does not wait for another process that creates the same file, and has switched it.
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA synchronous={'FULL' if is_synced else 'NORMAL'}")


def begin(connection: Connection) -> None:
    """Begin a transaction, and wait for other writers if it is going to write.

    SQLite aborts a transaction that reads first and writes later, whatever the busy timeout, if
    another has written in between.
    """
    is_writing = connection.get_execution_options().get("is_writing", False)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")
    elif is_writing:
        connection.execute(WRITER_LOCK)


@contextmanager
def driver_errors(label: str) -> Iterator[None]:
    """Convert errors of the database; errors of programming pass unchanged.

    Raises:
        StoreUnavailable: The database cannot be used.
    """
    try:
        yield
    except (IntegrityError, ProgrammingError, DataError, NotSupportedError) as error:
        # An address that the driver refuses has no statement.
        if error.statement is not None and code_of(error.orig) not in REMEDIES:
            raise
        raise unavailable(label, error.orig) from error
    except DBAPIError as error:
        # Without a code, the server was not reached.
        is_lost = error.connection_invalidated or not code_of(error.orig)
        raise unavailable(label, error.orig, is_transient=is_lost) from error
    except sqlite3.Error as error:
        raise unavailable(label, error) from error
    except ValueError as error:
        # A row, or a name in a message of SQLite, is no text, JSON, UUID or answer.
        raise unavailable(label, f"it is damaged: {error!s:.200}") from error
    except PoolTimeoutError as error:
        raise StoreUnavailable(
            f"The database {label} is in use by too many threads at once. Try again.",
            is_transient=True,
        ) from error


def code_of(error: object) -> str:
    """Return SQLite's error name or PostgreSQL's SQLSTATE; empty if the server was not reached."""
    return getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None) or ""


def unavailable(label: str, cause: object, *, is_transient: bool = False) -> StoreUnavailable:
    """Return the error with the driver's own message and a remedy."""
    code = code_of(cause)
    found = (remedy for known, remedy in REMEDIES.items() if code.startswith(known))
    remedy = next(found, "Check that it is there, and RL_TEACHER_DATABASE_URL if it is set.")
    reason = " ".join(str(cause).split()).rstrip(".")
    return StoreUnavailable(
        f"The database {label} cannot be used: {reason}. {remedy}",
        f"The database cannot be used. {remedy}",
        is_transient=is_transient or code.startswith(TRANSIENT),
    )


def migrate(engine: Engine, label: str) -> None:
    """Run the missing migrations in one transaction, which a killed process leaves without effect.

    Raises:
        StoreUnavailable: A newer version of rl-teacher wrote the database.
        DBAPIError: The database cannot be written.
    """
    with engine.execution_options(is_writing=True).begin() as connection:
        version = MigrationContext.configure(connection).get_current_revision()
        if version is not None and version not in versions():
            is_newer = version > versions()[0]
            raise StoreUnavailable(
                f"The database {label} has version {version}, and this rl-teacher knows versions "
                f"{versions()[-1]} to {versions()[0]}. Use the {'newer' if is_newer else 'older'} "
                "rl-teacher that wrote it, or name another database."
            )
        if version != versions()[0]:
            command.upgrade(alembic_settings(connection), "head")
        # SQLite starts a write transaction even on a read-only file, and fails at the first write.
        connection.execute(REWRITE_VERSION)


def alembic_settings(connection: Connection) -> Config:
    """Return the settings that an alembic.ini would hold."""
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    settings.attributes["connection"] = connection
    return settings


@functools.cache
def versions() -> tuple[str, ...]:
    """Return the versions that this release knows, newest first."""
    return tuple(script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions())
