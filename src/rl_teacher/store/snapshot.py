"""Consistent copies of a database, as SQLite files, while other processes write to it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, Integer, insert, select, text

from rl_teacher.store.database import (
    BUSY_TIMEOUT_S,
    Database,
    driver_errors,
    open_database,
)
from rl_teacher.store.sql import CHUNK
from rl_teacher.store.tables import Base, ExperimentLock

PROGRAMS = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"


def save_snapshot(database: Database, path: Path) -> None:
    """Copy a database, as of one moment, to a new SQLite file.

    Raises:
        StoreUnavailable: The database cannot be read.
    """
    if database.dialect == "sqlite":
        with driver_errors(database.label), database.engine.connect() as connection:
            source = connection.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)  # noqa: S101 - the dialect's driver
            with driver_errors(str(path)):
                source.execute("VACUUM INTO ?", (str(path),))
    else:
        copied = open_database(path, BUSY_TIMEOUT_S, database.now, is_synced=True)
        with (
            closing(copied),
            driver_errors(database.label),
            # All statements read the state of one moment.
            database.engine.connect().execution_options(
                isolation_level="REPEATABLE READ"
            ) as source,
            copied.writing() as target,
        ):
            copy_tables(source, target)
    with driver_errors(str(path)), closing(sqlite3.connect(path)) as connection:
        # Locks belong to processes, which continue with the original.
        connection.execute(f"DELETE FROM {ExperimentLock.__tablename__}")  # noqa: S608 - a constant
        connection.commit()
        # A single file, without a separate write-ahead log.
        connection.execute("PRAGMA journal_mode=DELETE")


def copy_tables(source: Connection, target: Connection) -> None:
    """Copy all rows to the empty tables of another database."""
    for table in Base.metadata.sorted_tables:
        query = select(table).order_by(*table.primary_key).execution_options(yield_per=CHUNK)
        for rows in source.execute(query).mappings().partitions():
            target.execute(insert(table), [dict(row) for row in rows])
        has_sequence = "id" in table.columns and isinstance(table.columns["id"].type, Integer)
        if has_sequence and target.dialect.name == "postgresql":
            # A given id does not advance the sequence.
            target.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) "  # noqa: S608 - a constant
                    f"FROM {table.name}"
                )
            )


def faults_of(path: Path) -> list[str]:
    """Return what an integrity check finds in an SQLite file; empty if it is sound."""
    # As a URL, in which `#`, `?` and `%` of the path are escaped.
    url = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(url, uri=True)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
            # They would run with later queries.
            added = connection.execute(PROGRAMS).fetchall()
    # A damaged name in a message of SQLite is not UTF-8.
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        return [str(error)]
    faults = [] if found == ["ok"] else found
    faults += [f"it has a {kind} called {name!r}" for kind, name in added[:10]]
    return [*faults, *(f"a row of {table} refers to a missing one" for table, *_ in orphans[:10])]
