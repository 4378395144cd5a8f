"""Tests of opening databases: schema versions and faults."""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.store.database import (
    as_url,
    default_url,
    make_engine,
    unavailable,
    versions,
)
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import Store
from rl_teacher.store.tables import Base
from tests.store.conftest import BOTH
from tests.store.test_processes import read_line, start


@pytest.fixture(params=BOTH)
def url(request):
    """Return the URL of a database without tables, on which the migrations run."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('path')}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def made(path):
    Store.open(path).close()
    return path


@contextmanager
def writing(url):
    """Open a separate connection with foreign keys enabled as in the store."""
    engine = make_engine(as_url(url), "test", 5.0, is_synced=False)
    try:
        with engine.execution_options(is_writing=True).begin() as connection:
            yield connection
    finally:
        engine.dispose()


def add_labels(url):
    """Create a database with three labels."""
    with Store.open(url) as store:
        experiment_id = store.experiments.ensure("old", "E", {})
        pairs = [("a", "b"), ("b", "a"), ("a", "a")]
        ids = store.comparisons.add(experiment_id, pairs, "E", 30, 0)
        answers = (Answer.LEFT, Answer.EQUAL, Answer.CANNOT_TELL)
        store.labels.add_many([NewLabel(*label, "Zoë") for label in zip(ids, answers, strict=True)])


def version_of(url):
    [(version,)] = rows(url, "SELECT version_num FROM alembic_version")
    return version


def rows(url, statement):
    with writing(url) as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


class TestVersions:
    def test_migrations_build_tables_of_models(self, store, url):
        with writing(url) as connection:
            # Alembic misreads one of SQLite's defaults.
            compares_defaults = connection.dialect.name == "postgresql"
            opts = {"compare_type": True, "compare_server_default": compares_defaults}
            context = MigrationContext.configure(connection, opts=opts)
            assert compare_metadata(context, Base.metadata) == []

    @pytest.mark.parametrize(("version", "kind"), [("9999", "newer"), ("0002", "older")])
    def test_database_of_another_version_is_refused(self, store, url, version, kind):
        with writing(url) as connection:
            connection.exec_driver_sql(
                f"UPDATE alembic_version SET version_num = '{version}'"  # noqa: S608
            )
        with pytest.raises(StoreUnavailable, match=f"version {version}.*{kind} rl-teacher"):
            Store.open(url)


MIGRATE_UNTIL_STATEMENT = """
from sqlalchemy import event
from rl_teacher.store import database

database.MIGRATIONS = Path(sys.argv[2])
make_engine = database.make_engine

def hang_at_statement(_connection, _cursor, statement, *_):
    if statement.startswith(sys.argv[3]):
        say("migrating")
        sys.stdin.read()

def make_hanging_engine(*args, **options):
    engine = make_engine(*args, **options)
    event.listen(engine, "after_cursor_execute", hang_at_statement)
    return engine

database.make_engine = make_hanging_engine
Store.open(sys.argv[1]).close()
say("migrated")
"""


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["ALTER TABLE", "UPDATE labels", "UPDATE alembic"])
def test_killed_migration_is_repeated_with_every_label(url, add_migration, statement):
    labels = "SELECT id, answer, labeler_id, request_id FROM labels ORDER BY id"
    add_labels(url)
    old_version, before = version_of(url), rows(url, labels)
    with start(MIGRATE_UNTIL_STATEMENT, url, str(add_migration()), statement) as process:
        assert read_line(process) == "migrating\n"
        process.kill()
    assert version_of(url) == old_version
    assert rows(url, labels) == before
    with Store.open(url) as store:
        assert store.schema_version() == versions()[0] != old_version
    assert rows(url, labels) == before
    assert rows(url, "SELECT DISTINCT note FROM labels") == [("of an older version",)]


class TestWhereItIs:
    def test_new_folder_and_files_are_readable_by_their_owner_only(self, tmp_path):
        path = tmp_path / "home" / "labels.sqlite"
        with Store.open(path) as store:
            store.experiments.ensure("x", "Hopper-v5", {})
            files = sorted(each.name for each in path.parent.iterdir())
            assert files == ["labels.sqlite", "labels.sqlite-shm", "labels.sqlite-wal"]
            modes = [stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()]
        assert modes == [0o600] * 3
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_file_that_others_can_read_is_made_private(self, made):
        made.chmod(0o644)
        Store.open(made).close()
        assert stat.S_IMODE(made.stat().st_mode) == 0o600

    def test_file_that_cannot_be_made_private_is_warned_about(self, made, monkeypatch, caplog):
        made.chmod(0o644)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        Store.open(made).close()
        assert str(made) in caplog.text

    def test_folder_of_a_database_outside_the_home_keeps_its_permissions(self, tmp_path):
        folder = tmp_path / "shared"
        folder.mkdir()
        folder.chmod(0o755)
        Store.open(folder / "labels.sqlite").close()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
    def test_postgresql_url_selects_psycopg_driver(self, scheme):
        assert as_url(f"{scheme}://me@host/labels").drivername == "postgresql+psycopg"

    @pytest.mark.parametrize(
        ("url", "remedy"),
        [
            ("mysql+nosuchdriver://me:s3cret@host/labels", "pip install"),
            ("postgresql://me@/labels?host=/nowhere/at/all&password=s3cret", "URL"),
            ("postgresql://me:s3cret@r:et@host/labels", "%40"),
        ],
    )
    def test_url_that_cannot_be_used_is_refused_without_its_password(self, url, remedy):
        with pytest.raises(StoreUnavailable, match=remedy) as caught:
            Store.open(url)
        assert "s3c" not in str(caught.value)

    def test_default_url_is_in_home_unless_environment_sets_another(self, tmp_path, monkeypatch):
        monkeypatch.delenv("RL_TEACHER_DATABASE_URL", raising=False)
        assert default_url(tmp_path) == str(tmp_path / "labels.sqlite")
        monkeypatch.setenv("RL_TEACHER_DATABASE_URL", "postgresql://me@host/labels")
        assert default_url(tmp_path) == "postgresql://me@host/labels"

    @pytest.mark.parametrize(
        "url",
        [
            "sqlite://host/labels.sqlite",
            "postgresql://me@host/labels?port=1&port=2",
            "postgresql:///labels?sslmod=require",
            "postgresql://me@host/labels?connect_timeout=soon",
        ],
    )
    def test_host_or_option_that_the_driver_refuses_is_named(self, url, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(StoreUnavailable, match="RL_TEACHER_DATABASE_URL") as caught:
            Store.open(url)
        assert not caught.value.is_transient


def damage(path):
    content = bytearray(path.read_bytes())
    content[100:-100] = b"\xff" * (len(content) - 200)
    path.write_bytes(content)


FAULTS = {
    "another format": lambda path: path.write_bytes(b"Dear diary, " * 1000),
    "damaged": damage,
    "a name that is not UTF-8": lambda path: path.write_bytes(
        path.read_bytes().replace(b"TABLE leases", b"TABL\xf7 leases")
    ),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize(
    ("cause", "remedy", "is_transient"),
    [
        (SimpleNamespace(sqlite_errorname="SQLITE_BUSY_SNAPSHOT"), "wait until", True),
        (SimpleNamespace(sqlite_errorname="SQLITE_FULL"), "Free some space", False),
        (SimpleNamespace(sqlstate="53300"), "max_connections", True),
        (SimpleNamespace(sqlstate="57P03"), "RL_TEACHER_DATABASE_URL", True),
        (SimpleNamespace(sqlstate="42501"), "owner", False),
        (SimpleNamespace(), "RL_TEACHER_DATABASE_URL", False),
    ],
)
def test_code_of_the_driver_selects_remedy(cause, remedy, is_transient):
    error = unavailable("postgresql://db", cause)
    assert remedy in str(error)
    assert error.public is not None
    assert "namespace" in str(error)
    assert "namespace" not in error.public
    assert error.is_transient == is_transient


class TestFaults:
    def test_locked_database_raises_error_naming_it(self, made):
        with closing(sqlite3.connect(made, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match=r"labels\.sqlite") as caught:
                Store.open(made, busy_timeout_s=0.05)
        assert caught.value.is_transient

    def test_write_to_locked_database_fails_and_works_afterwards(self, made):
        with Store.open(made, busy_timeout_s=0.05) as store:
            other = sqlite3.connect(made, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                store.experiments.ensure("x", "E", {})
            other.execute("ROLLBACK")
            other.close()
            assert store.experiments.ensure("x", "E", {}) == 1

    def test_read_only_database_is_refused(self, made):
        with pytest.raises(StoreUnavailable, match="permission"):
            Store.open(f"sqlite:///file:{made}?mode=ro&uri=true")

    @pytest.mark.parametrize("make_fault", FAULTS.values(), ids=FAULTS)
    def test_damaged_file_is_refused(self, made, make_fault):
        make_fault(made)
        with pytest.raises(StoreUnavailable, match=r"labels\.sqlite"):
            Store.open(made)

    def test_folder_without_write_permission_is_named(self, tmp_path, as_nobody):
        tmp_path.chmod(0o500)
        as_nobody()
        with pytest.raises(StoreUnavailable):
            Store.open(tmp_path / "labels.sqlite")

    @pytest.mark.parametrize("column", ["config", "created_at"])
    def test_value_that_cannot_be_decoded_raises_error_naming_damage(self, made, column):
        with Store.open(made) as store:
            store.experiments.ensure("one", "Hopper-v5", {})
        with closing(sqlite3.connect(made)) as connection, connection:
            connection.execute(f"UPDATE experiments SET {column} = '{{1'")  # noqa: S608
        with Store.open(made) as store, pytest.raises(StoreUnavailable, match="it is damaged"):
            store.experiments.all()

    def test_deleted_file_is_neither_written_nor_read(self, path):
        with Store.open(path) as store:
            experiment_id = store.experiments.ensure("x", "E", {})
            [comparison_id] = store.comparisons.add(experiment_id, [("a", "b")], "E", 1, 0)
            path.unlink()
            with pytest.raises(StoreUnavailable, match="deleted"):
                store.labels.add(comparison_id, Answer.LEFT, "me")
            with pytest.raises(StoreUnavailable, match="deleted"):
                store.experiments.all()

    def test_full_disk_raises_error_naming_disk(self, made):
        with Store.open(made) as store:
            with store.database.reading() as connection:
                connection.exec_driver_sql("PRAGMA max_page_count=1")
            with pytest.raises(StoreUnavailable, match="Free some space"):
                store.experiments.ensure("x", "E", {"filler": "x" * 100_000})


@pytest.mark.postgres
class TestFaultsOfAServer:
    def test_unreachable_server_is_a_transient_fault(self, tmp_path):
        with pytest.raises(StoreUnavailable, match="RL_TEACHER_DATABASE_URL") as caught:
            Store.open(f"postgresql://me@/labels?host={tmp_path}", busy_timeout_s=0.1)
        assert caught.value.is_transient

    def test_wait_for_lock_times_out(self, postgres_url):
        with Store.open(postgres_url, busy_timeout_s=0.05) as store, writing(postgres_url) as other:
            other.exec_driver_sql("LOCK TABLE experiments IN EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailable, match="wait until"):
                store.experiments.ensure("x", "E", {})
            other.rollback()
            assert store.experiments.ensure("x", "E", {}) == 1


def test_opening_a_database_again_keeps_the_locks_of_this_process(path):
    """Closing any descriptor of a file releases all locks that a process has on it."""
    with Store.open(path) as store:
        store.experiments.ensure("x", "E", {})
        Store.open(path).close()
        # The last process that closes the database deletes its log.
        script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM labels')"
        subprocess.run([sys.executable, "-c", script, str(path)], check=True)
        assert path.with_name("labels.sqlite-wal").exists()
        store.experiments.ensure("y", "E", {})
