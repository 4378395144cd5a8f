"""Consistent copies of a database, as SQLite files, while other processes write to it."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, Integer, Table, func, insert, select, text

from rl_teacher.common.errors import BadInput
from rl_teacher.store.database import (
    BUSY_TIMEOUT_S,
    Database,
    as_url,
    driver_errors,
    file_of,
    label_of,
    open_database,
    raw_errors,
)
from rl_teacher.store.files import make_private_folder
from rl_teacher.store.sql import CHUNK
from rl_teacher.store.tables import Base, ExperimentLock

LAST_ID_OF_SQLITE = text("SELECT seq FROM sqlite_sequence WHERE name = :name")
FORGET_LAST_ID = text("DELETE FROM sqlite_sequence WHERE name = :name")
SET_LAST_ID = text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :last_id)")
FORGET_LOCKS = f"DELETE FROM {ExperimentLock.__tablename__}"  # noqa: S608 - a constant
SET_SEQUENCE = text("SELECT setval(CAST(:name AS regclass), :last_id)")


def save_snapshot(database: Database, path: Path) -> None:
    """Copy a database, as of one moment, to a new SQLite file.

    Other processes may read and write meanwhile: SQLite in WAL mode and PostgreSQL keep the state
    of that moment for the reader.

    Raises:
        StoreUnavailable: The database cannot be read.
        RunFolderUnusable: The file cannot be written.
    """
    path.touch(mode=0o600)
    if database.dialect == "sqlite":
        with driver_errors(database.label), database.engine.connect() as connection:
            source = connection.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)  # noqa: S101 - the dialect's driver
            # The source was opened before, so that an error is most likely one of the copy.
            with raw_errors(str(path)), closing(sqlite3.connect(path)) as target:
                source.backup(target)
    else:
        copied = open_database(path, BUSY_TIMEOUT_S, database.now, is_synced=True)
        try:
            with (
                driver_errors(database.label),
                snapshot_of(database) as source,
                copied.writing() as target,
            ):
                copy_rows(source, target)
        finally:
            copied.close()
    with raw_errors(str(path)), closing(sqlite3.connect(path)) as connection:
        # Locks belong to processes, which continue with the original.
        connection.execute(FORGET_LOCKS)
        connection.commit()
        # A single file, without a separate write-ahead log.
        connection.execute("PRAGMA journal_mode=DELETE")


def load_snapshot(path: Path, url_or_path: str | Path, now: Callable[[], datetime]) -> None:
    """Copy an SQLite file that `save_snapshot` has written to a new or empty database.

    Args:
        path: The file; it is migrated first if an older version wrote it.
        url_or_path: The database.
        now: Clock.

    Raises:
        BadInput: The database exists already, and is not empty.
        StoreUnavailable: One of the databases cannot be used, or the file is of a newer version.
    """
    url = as_url(url_or_path)
    file = file_of(url)
    if file is not None:
        if file.exists():
            raise not_empty(str(file))
        make_private_folder(file.parent)
        shutil.copyfile(path, file)
        # Migrates it, and makes it readable by its owner only.
        open_database(file, BUSY_TIMEOUT_S, now, is_synced=True, keeps_copy=False).close()
        return
    source = open_database(path, BUSY_TIMEOUT_S, now, is_synced=False, keeps_copy=False)
    target = open_database(url_or_path, BUSY_TIMEOUT_S, now, is_synced=True)
    try:
        with snapshot_of(source) as reading, target.writing() as writing:
            if any(writing.execute(select(table).limit(1)).first() for table in tables()):
                raise not_empty(label_of(url))
            copy_rows(reading, writing)
    finally:
        target.close()
        source.close()


def not_empty(label: str) -> BadInput:
    """Return the error for a database that would be overwritten."""
    return BadInput(
        f"The database {label} is not empty, and a backup is restored only into an empty one. Name "
        "another with RL_TEACHER_HOME or RL_TEACHER_DATABASE_URL."
    )


def snapshot_of(database: Database) -> Connection:
    """Return a connection whose statements all read the state of one moment."""
    connection = database.engine.connect()
    if database.dialect == "postgresql":
        return connection.execution_options(isolation_level="REPEATABLE READ")
    return connection  # SQLite isolates every transaction so


def tables() -> list[Table]:
    """Return all tables, each after those that it refers to."""
    return Base.metadata.sorted_tables


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy all rows to empty tables, and the last ids, so that no id is ever used again."""
    for table in tables():
        rows = source.execution_options(yield_per=CHUNK).execute(
            select(table).order_by(*table.primary_key)
        )
        for chunk in rows.mappings().partitions():
            target.execute(insert(table), [dict(row) for row in chunk])
        if "id" in table.columns and isinstance(table.columns["id"].type, Integer):
            set_last_id(target, table, last_id(source, table))


def last_id(connection: Connection, table: Table) -> int:
    """Return the largest id that a table has ever had; 0 if it had none."""
    if connection.dialect.name == "sqlite":
        return connection.execute(LAST_ID_OF_SQLITE, {"name": table.name}).scalar() or 0
    # A sequence belongs to no snapshot: the id may be newer than the rows, never older.
    sequence = sequence_of(connection, table)
    value, is_used = connection.execute(
        text(f"SELECT last_value, is_called FROM {sequence}")  # noqa: S608 - quoted by PostgreSQL
    ).one()
    return value if is_used else 0


def set_last_id(connection: Connection, table: Table, value: int) -> None:
    """Continue the ids of a table after a value."""
    if value == 0:
        return
    if connection.dialect.name == "sqlite":
        connection.execute(FORGET_LAST_ID, {"name": table.name})
        connection.execute(SET_LAST_ID, {"name": table.name, "last_id": value})
    else:
        parameters = {"name": sequence_of(connection, table), "last_id": value}
        connection.execute(SET_SEQUENCE, parameters)


def sequence_of(connection: Connection, table: Table) -> str:
    """Return the name of the PostgreSQL sequence of a table's ids."""
    name = func.pg_get_serial_sequence(table.name, "id")
    return connection.execute(select(name)).scalar_one()


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open an existing SQLite file, which is not changed."""
    # As a URL, in which `#`, `?` and `%` of the path are escaped.
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def faults_of(path: Path) -> list[str]:
    """Return what an integrity check finds in an SQLite file; empty if it is sound."""
    try:
        with closing(open_read_only(path)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
    # A damaged name in a message of SQLite is not UTF-8.
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        return [str(error)]
    faults = [] if found == ["ok"] else found
    return [*faults, *(f"a row of {table} refers to a missing one" for table, *_ in orphans[:10])]


def read_all(database: Database) -> int:
    """Read every row of every table, and return their number.

    PostgreSQL has no integrity check for ordinary users; it reports damaged pages when it reads.

    Raises:
        StoreUnavailable: A row cannot be read.
    """
    with driver_errors(database.label), snapshot_of(database) as connection:
        reading = connection.execution_options(yield_per=CHUNK)
        return sum(1 for table in tables() for _ in reading.execute(select(table)))
