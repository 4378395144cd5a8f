"""Bring a database to this version of rl-teacher, whoever else is doing so at the same time."""

import functools
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from rl_teacher.common.errors import StoreUnavailable

MIGRATIONS = Path(__file__).with_name("migrations")
MIGRATION_LOCK = 7_236_001
"""Any number, known to every rl-teacher: the name of PostgreSQL's lock on migrating."""


def migrate(engine: Engine, label: str) -> None:
    """Run the migrations that this database has not seen, in one transaction.

    Raises:
        StoreUnavailable: a newer rl-teacher wrote it.
        DBAPIError: it cannot be written.
    """
    with engine.execution_options(is_writing=True).begin() as connection:
        wait_for_other_migrations(connection)
        version = version_of(connection)
        refuse_unknown_version(version, label)
        if version != versions()[0]:
            command.upgrade(alembic_settings(connection), "head")
        prove_writable(connection)


def version_of(connection: Connection) -> str | None:
    """The version of a database's tables; None if it has none."""
    return MigrationContext.configure(connection).get_current_revision()


def alembic_settings(connection: Connection) -> Config:
    """What an alembic.ini would say."""
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    settings.attributes["connection"] = connection
    return settings


def wait_for_other_migrations(connection: Connection) -> None:
    """SQLite's BEGIN IMMEDIATE has waited already; PostgreSQL needs a lock of its own."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")


def prove_writable(connection: Connection) -> None:
    """Note: SQLite begins a write on a read-only file without a word; only writing tells."""
    connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")


@functools.cache
def versions() -> tuple[str, ...]:
    """All that this release has a script for, the newest first."""
    return tuple(script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions())


def refuse_unknown_version(version: str | None, label: str) -> None:
    """A version that this release has no script for was written by a later one."""
    if version is not None and version not in versions():
        raise StoreUnavailable(
            f"The database {label} has version {version}, and this rl-teacher knows versions up "
            f"to {versions()[0]}. Install the newer rl-teacher that wrote it, or name another "
            "database."
        )
