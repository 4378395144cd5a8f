"""Migration of a database to the current version, safe against concurrent migrations."""

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
"""Key of the PostgreSQL advisory lock on migrations: any fixed number."""


def migrate(engine: Engine, label: str) -> None:
    """Run the missing migrations in one transaction.

    Raises:
        StoreUnavailable: A newer version of rl-teacher wrote the database.
        DBAPIError: The database cannot be written.
    """
    with engine.execution_options(is_writing=True).begin() as connection:
        wait_for_other_migrations(connection)
        version = version_of(connection)
        check_version(version, label)
        if version != versions()[0]:
            command.upgrade(alembic_settings(connection), "head")
        prove_writable(connection)


def version_of(connection: Connection) -> str | None:
    """Return the version of the schema; None if there is none."""
    return MigrationContext.configure(connection).get_current_revision()


def alembic_settings(connection: Connection) -> Config:
    """Return the settings that an alembic.ini would hold."""
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    settings.attributes["connection"] = connection
    return settings


def wait_for_other_migrations(connection: Connection) -> None:
    """Wait for a lock on PostgreSQL; on SQLite, BEGIN IMMEDIATE has waited already."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")


def prove_writable(connection: Connection) -> None:
    """Write something: SQLite starts a write transaction even on a read-only file."""
    connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")


@functools.cache
def versions() -> tuple[str, ...]:
    """Return the versions that this release knows, newest first."""
    return tuple(script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions())


def check_version(version: str | None, label: str) -> None:
    """Check that this release knows a version.

    Raises:
        StoreUnavailable: It does not.
    """
    if version is not None and version not in versions():
        raise StoreUnavailable(
            f"The database {label} has version {version}, and this rl-teacher knows versions up "
            f"to {versions()[0]}. Install the newer rl-teacher that wrote it, or name another "
            "database."
        )
