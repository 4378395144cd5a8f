"""An open database: engine, transactions, migrations, and explanations of errors."""

import functools
import math
import os
import re
import selectors
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from glob import escape
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
    InvalidatePoolError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.common.files import (
    TEMPORARY_SUFFIX,
    folder_errors,
    make_private,
    make_private_folder,
    sync_file,
    sync_folder,
)
from rl_teacher.common.paths import user_path

BUSY_TIMEOUT_S = 10.0
"""Time that a transaction waits for one of another process."""

WAL_RETRY_S = 0.01
"""Time between two attempts to switch a new SQLite file to WAL mode."""

MIGRATIONS = Path(__file__).with_name("migrations")

REWRITE_VERSION = text("UPDATE alembic_version SET version_num = version_num")
"""Statement that writes to the database without changing anything."""

MIGRATION_LOCK = 7_236_001
"""Key of the PostgreSQL advisory lock on migrations: any fixed number."""

NO_CONNECTION_FREE = ("too many clients", "too many connections", "connection slots")
"""Fragments of messages of a server whose connections are all in use."""

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
        "Restore a backup, or move the file away to start an empty one.",
    ),
    (
        "malformed",
        "the file was damaged",
        "Restore a backup, or rescue the rest with `sqlite3 FILE .recover`.",
    ),
    ("disk is full", "the disk is full", "Free some space and start again."),
    ("no space left on device", "the disk of the server is full", "Free some space there."),
    (
        "disk i/o error",
        "the operating system cannot read or write it",
        "Check its disk and the limits of file sizes, and start again.",
    ),
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
        "Correct them in RL_TEACHER_DATABASE_URL.",
    ),
    (
        "no password supplied",
        "the server requires a password",
        "Set PGPASSWORD, or put it into ~/.pgpass or RL_TEACHER_DATABASE_URL.",
    ),
    (
        "pg_hba.conf",
        "the server does not admit this user from this machine",
        "Add both to pg_hba.conf of the server, or correct RL_TEACHER_DATABASE_URL.",
    ),
    (
        "permission denied for",
        "this user may not read or change all of it",
        "Make this user the owner of the database and of its tables, or name another user or "
        "database in RL_TEACHER_DATABASE_URL.",
    ),
    *(
        (
            fragment,
            "the server has no free connection",
            "Increase max_connections of the server, or end other programs that use it.",
        )
        for fragment in NO_CONNECTION_FREE
    ),
    (
        "does not exist",
        "the server has no such database or user",
        "Create it with createdb or createuser, or name another in RL_TEACHER_DATABASE_URL.",
    ),
    (
        "resolve host",
        "the name of its server cannot be resolved",
        "Check the network, and the host in RL_TEACHER_DATABASE_URL.",
    ),
    (
        "connection",
        "the server does not answer",
        "Check that it runs, and its host and port in RL_TEACHER_DATABASE_URL.",
    ),
)
"""Fragment of a driver's message, its meaning, and the remedy."""

TRANSIENT = frozenset({"locked", "lock timeout", "resolve host", "connection", *NO_CONNECTION_FREE})
"""Fragments of messages about states that pass by themselves."""


class WriteLock:
    """Lock that admits one writing thread of this process at a time.

    SQLite itself makes a waiting thread poll, in no order, with pauses of up to 100 ms.
    """

    def __init__(self, label: str, timeout_s: float) -> None:
        self._label, self._timeout_s = label, timeout_s
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._timeout_s):
            raise unavailable(self._label, "database is locked")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@dataclass(frozen=True)
class Database:
    """An open database.

    Attributes:
        engine: SQLAlchemy engine.
        label: Path or URL without password, for messages.
        file: SQLite file; None for a server or an in-memory database.
        inode: Inode of the file; None without a file.
        write_lock: Lock that orders the writing threads of this process.
        now: Clock.
    """

    engine: Engine
    label: str
    file: Path | None
    inode: int | None
    write_lock: AbstractContextManager[None]
    now: Callable[[], datetime]

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
        with (
            driver_errors(self.label),
            self.write_lock,
            self.engine.execution_options(is_writing=True).begin() as connection,
        ):
            yield connection

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
    keeps_copy: bool = True,
) -> Database:
    """Connect to a database, creating and migrating it if needed; see `Store.open`.

    Args:
        url_or_path: As in `Store.open`.
        busy_timeout_s: As in `Store.open`.
        now: As in `Store.open`.
        is_synced: As in `Store.open`.
        keeps_copy: Copy an SQLite file before it is migrated.
    """
    url = as_url(url_or_path)
    label = label_of(url)
    make_parent_folder(url, label)
    engine = make_engine(url, label, busy_timeout_s, is_synced=is_synced)
    try:
        with driver_errors(label):
            migrate(engine, label, keeps_copy=keeps_copy)
    except BaseException:
        engine.dispose()
        raise
    file = file_of(url)
    is_sqlite = engine.dialect.name == "sqlite"
    write_lock = WriteLock(label, busy_timeout_s) if is_sqlite else nullcontext()
    return Database(engine, label, file, inode_of(file), write_lock, now)


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


def make_parent_folder(url: URL, label: str) -> None:
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
    make_log_writable(file)


def make_log_writable(file: Path) -> None:
    """Make the write-ahead log writable, which SQLite has created while the file was read-only."""
    mode = file.stat().st_mode if file.exists() else 0
    for each in sqlite_files(file)[1:]:
        with suppress(OSError):
            if mode & stat.S_IWUSR and not each.stat().st_mode & stat.S_IWUSR:
                each.chmod(stat.S_IMODE(mode))


def make_engine(url: URL, label: str, busy_timeout_s: float, *, is_synced: bool) -> Engine:
    """Create an engine whose connections are configured for durable, shared use."""
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
    except ArgumentError as error:
        raise bad_url(label, error) from error
    if is_sqlite:
        event.listen(
            engine,
            "connect",
            lambda raw, _record: set_up_sqlite(raw, busy_timeout_s, is_synced=is_synced),
        )
        event.listen(engine, "begin", begin_sqlite)
    elif url.get_backend_name() == "postgresql":
        event.listen(
            engine,
            "connect",
            lambda raw, _record: set_up_postgresql(raw, label, busy_timeout_s),
            insert=True,  # before SQLAlchemy reads the version, which fails in other encodings
        )
        event.listen(engine, "checkout", check_connection)
    return engine


def connect_args(url: URL, busy_timeout_s: float) -> dict[str, Any]:
    """Return the arguments that limit the wait for a lock or a server."""
    if url.get_backend_name() == "sqlite":
        return {"timeout": busy_timeout_s}
    if url.get_backend_name() != "postgresql":
        return {}
    # libpq recommends 2 s at least.
    timeout_s = max(2, math.ceil(busy_timeout_s))
    arguments = {
        "connect_timeout": timeout_s,
        # Otherwise a connection whose server has lost its network or its power hangs: for a quarter
        # of an hour if something was sent, and for two hours if an answer is awaited.
        "tcp_user_timeout": 1_000 * timeout_s,
        "keepalives_idle": timeout_s,
        "keepalives_interval": timeout_s,
    }
    return {name: value for name, value in arguments.items() if name not in url.query}


def set_up_postgresql(connection: Any, label: str, busy_timeout_s: float) -> None:
    """Check the encoding, limit the wait for a lock as on SQLite, and configure the planner.

    Compiling a query takes 250 ms, and PostgreSQL does so for a cheap one, too, whose cost it
    overestimates. At its default cost of a random access, that of a hard disk, it sorts all open
    comparisons to find the first one in a new database, rather than to follow the index.

    Raises:
        StoreUnavailable: The database does not store text as UTF-8, so that names may be refused.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"The database {label} has the encoding {encoding}; UTF8 is needed. Create another "
            "with `createdb --encoding UTF8 --template template0 NAME`, and name it in "
            "RL_TEACHER_DATABASE_URL."
        )
    parameters = {
        "lock_timeout": str(max(1, round(busy_timeout_s * 1000))),
        "jit": "off",
        "random_page_cost": "1",
    }
    with connection.cursor() as cursor:
        for name_and_value in parameters.items():
            cursor.execute("SELECT set_config(%s, %s, false)", name_and_value)
    # The parameters would be lost with a transaction that is rolled back.
    connection.commit()


def check_connection(connection: Any, _record: Any, _proxy: Any) -> None:
    """Make the pool reconnect if the server has closed an idle connection.

    An idle connection is readable only then. Checking this needs no round trip to the server, as
    a test query would.

    Raises:
        InvalidatePoolError: The server has closed the connection.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        if selector.select(timeout=0):
            raise InvalidatePoolError("the server has closed the connection")


def set_up_sqlite(
    connection: sqlite3.Connection, busy_timeout_s: float, *, is_synced: bool
) -> None:
    """Enable concurrent readers, foreign keys and the requested durability.

    In WAL mode `synchronous=NORMAL` survives SIGKILL, because the operating system has the bytes.
    FULL waits for the disk and survives a power failure, too: 0.25 ms per commit on an idle
    machine, but a whole time slice (4 ms) if every core is busy.
    """
    connection.isolation_level = None  # `begin_sqlite` issues BEGIN
    enable_wal(connection, busy_timeout_s)
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA synchronous={'FULL' if is_synced else 'NORMAL'}")


def enable_wal(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Switch a new file to WAL mode, or wait until another process has done so.

    SQLite does not apply its own busy timeout to this change.
    """
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(WAL_RETRY_S)


def begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; take the write lock at once if it is going to write.

    SQLite aborts a transaction that reads first and writes later, whatever the busy timeout, if
    another has written in between.
    """
    is_writing = connection.get_execution_options().get("is_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")


@contextmanager
def driver_errors(label: str) -> Iterator[None]:
    """Convert errors of the database; errors of programming pass unchanged.

    Raises:
        StoreUnavailable: The database cannot be used.
    """
    try:
        yield
    except (IntegrityError, ProgrammingError, DataError, NotSupportedError) as error:
        if isinstance(error, ProgrammingError) and error.statement is None:  # while connecting
            raise bad_url(label, error.orig) from error
        if "permission denied for" in (message := str(error.orig)):
            raise unavailable(label, message.partition("\n")[0]) from error
        raise
    except DBAPIError as error:
        raise unavailable(
            label, str(error.orig), has_lost_connection=error.connection_invalidated
        ) from error
    except ValueError as error:
        # A row, or a name in a message of SQLite, is no text, JSON, UUID or answer.
        raise unavailable(label, f"it is damaged: {error!s:.200}") from error
    except PoolTimeoutError as error:
        raise StoreUnavailable(
            f"The database {label} is in use by too many threads at once. Try again.",
            is_transient=True,
        ) from error


def bad_url(label: str, fault: object) -> StoreUnavailable:
    """Return the error for a URL with a host or an option that the driver refuses."""
    reason = " ".join(str(fault).split())
    return StoreUnavailable(
        f"The database {label} cannot be used: {reason}. Correct RL_TEACHER_DATABASE_URL.",
        "The database cannot be used. Correct RL_TEACHER_DATABASE_URL.",
    )


def unavailable(label: str, message: str, *, has_lost_connection: bool = False) -> StoreUnavailable:
    """Return the error with reason and remedy for a driver's message."""
    for fragment, reason, remedy in REASONS:
        if fragment in message.lower():
            return StoreUnavailable(
                f"The database {label} cannot be used: {reason} ({message}). {remedy}",
                f"The database cannot be used: {reason}. {remedy}",
                is_transient=has_lost_connection or fragment in TRANSIENT,
            )
    remedy = "Check that it is there and that you may write to it."
    return StoreUnavailable(
        f"The database {label} cannot be used: {message.strip()}. {remedy}",
        f"The database cannot be used. {remedy}",
        is_transient=has_lost_connection,
    )


def migrate(engine: Engine, label: str, *, keeps_copy: bool) -> None:
    """Run the missing migrations in one transaction, which a killed process leaves without effect.

    Args:
        engine: Engine of the database.
        label: Its path or URL, for messages.
        keeps_copy: Copy an SQLite file before it is migrated.

    Raises:
        RunFolderUnusable: The copy cannot be written.
        StoreUnavailable: A newer version of rl-teacher wrote the database.
        DBAPIError: The database cannot be written.
    """
    with engine.execution_options(is_writing=True).begin() as connection:
        # On SQLite, BEGIN IMMEDIATE has waited for concurrent migrations already.
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        version = MigrationContext.configure(connection).get_current_revision()
        if version is not None and version not in versions():
            raise StoreUnavailable(
                f"The database {label} has version {version}, and this rl-teacher knows versions "
                f"up to {versions()[0]}. Install the newer rl-teacher that wrote it, or name "
                "another database."
            )
        if version != versions()[0]:
            file = file_of(engine.url)
            if version is not None and file is not None and keeps_copy:
                copy_before_migration(file)
            command.upgrade(alembic_settings(connection), "head")
        # SQLite starts a write transaction even on a read-only file, and fails at the first write.
        connection.execute(REWRITE_VERSION)


def copy_before_migration(file: Path) -> None:
    """Copy an SQLite file that is going to be migrated, in place of the copy of an earlier one.

    Raises:
        RunFolderUnusable, StoreUnavailable: The copy cannot be written.
    """
    copy = file.with_name(f"{file.name}.before-{versions()[0]}")
    unfinished = file.with_name(f".{copy.name}{TEMPORARY_SUFFIX}")
    earlier = copies_before_migrations(file)
    with folder_errors(file.parent), raw_errors(str(copy)):
        try:
            os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
            # In WAL mode this reads beside the transaction that keeps other writers out.
            with (
                closing(sqlite3.connect(file)) as source,
                closing(sqlite3.connect(unfinished)) as to,
            ):
                source.backup(to)
                to.execute("PRAGMA journal_mode=DELETE")  # a single file
            sync_file(unfinished)
            unfinished.replace(copy)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        sync_folder(file.parent)
        for each in earlier:
            if each != copy:
                each.unlink()


def copies_before_migrations(file: Path) -> list[Path]:
    """Return the copies of an SQLite file that were made before it was migrated."""
    return sorted(file.parent.glob(f"{escape(file.name)}.before-*"))


@contextmanager
def raw_errors(label: str) -> Iterator[None]:
    """Convert errors of SQLite that do not pass SQLAlchemy.

    Raises:
        StoreUnavailable: The database cannot be used.
    """
    try:
        yield
    # A damaged name in a message of SQLite is not UTF-8.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise unavailable(label, str(error)) from error


def schema_version(url_or_path: str | Path) -> str | None:
    """Return the version of an existing database without migrating it; None if it has no tables.

    Raises:
        StoreUnavailable: It cannot be read.
    """
    url = as_url(url_or_path)
    label = label_of(url)
    engine = make_engine(url, label, BUSY_TIMEOUT_S, is_synced=True)
    try:
        with driver_errors(label), engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


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
