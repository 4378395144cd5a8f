"""Tests of opening databases: schema versions and faults."""

import errno
import os
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing, contextmanager

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import RunFolderUnusable, StoreUnavailable
from rl_teacher.store.database import (
    alembic_settings,
    as_url,
    default_url,
    make_engine,
    unavailable,
    versions,
)
from rl_teacher.store.records import NewLabel
from rl_teacher.store.snapshot import faults_of
from rl_teacher.store.store import Store
from rl_teacher.store.tables import Base
from tests.store.test_processes import read_line, start


@pytest.fixture
def url(new_url):
    """Return the URL of a database without tables, on which the migrations run."""
    return new_url


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


def schema(path):
    """Return the set of definitions in the SQL of each table and index."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'alembic_version'"
    ).fetchall()
    connection.close()
    return {name: definitions(sql) for name, sql in found}


def definitions(sql):
    """Split the text in the outer parentheses at the top-level commas."""
    inside = " ".join(sql.split()).replace('"', "").partition("(")[2].rpartition(")")[0]
    cuts = [i for i, c in enumerate(inside) if c == "," and is_outside(inside[:i])]
    bounds = zip([-1, *cuts], [*cuts, len(inside)], strict=True)
    return {inside[start + 1 : end].strip() for start, end in bounds}


def is_outside(before):
    return before.count("(") == before.count(")")


class TestVersions:
    def test_migrations_build_tables_of_models(self, store, url):
        with writing(url) as connection:
            # Alembic misreads one of SQLite's defaults; the next test compares the SQL.
            compares_defaults = connection.dialect.name == "postgresql"
            opts = {"compare_type": True, "compare_server_default": compares_defaults}
            context = MigrationContext.configure(connection, opts=opts)
            assert compare_metadata(context, Base.metadata) == []

    def test_migrations_build_same_sql_as_models(self, made, tmp_path):
        engine = create_engine(f"sqlite:///{tmp_path / 'models.sqlite'}")
        Base.metadata.create_all(engine)
        engine.dispose()
        assert schema(made) == schema(tmp_path / "models.sqlite")

    def test_every_migration_can_be_reverted(self, made):
        with writing(f"sqlite:///{made}") as connection:
            command.downgrade(alembic_settings(connection), "base")
        assert set(schema(made)) <= {"sqlite_sequence"}

    def test_database_of_newer_version_is_refused(self, store, url):
        with writing(url) as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(StoreUnavailable, match=r"version 9999.*newer rl-teacher"):
            Store.open(url)

    def test_working_directory_stays_empty(self, path, tmp_path, monkeypatch):
        elsewhere = tmp_path / "cwd"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        Store.open(path).close()
        assert list(elsewhere.iterdir()) == []


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


def copies(file):
    return sorted(file.parent.glob(f"{file.name}.before-*"))


class TestMigrationOfLabels:
    @pytest.mark.parametrize("statement", ["ALTER TABLE", "UPDATE labels", "UPDATE alembic"])
    def test_killed_migration_is_repeated_with_every_label(self, url, add_migration, statement):
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

    def test_copy_of_older_file_is_kept_before_it_is_migrated(self, path, add_migration):
        add_labels(path)
        (path.parent / "labels.sqlite.before-0003").write_text("of an earlier migration")
        old_version = version_of(path)
        add_migration()
        Store.open(path).close()
        [copy] = copies(path)
        assert copy.name == f"labels.sqlite.before-{versions()[0]}"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert faults_of(copy) == []
        assert version_of(copy) == old_version
        assert sorted(each.name for each in path.parent.glob("*before*")) == [copy.name]
        with Store.open(copy) as store:
            assert store.labels.answers([1, 3]) == {1: Answer.LEFT, 3: Answer.CANNOT_TELL}

    def test_new_or_current_file_is_not_copied(self, path):
        for _ in range(2):
            Store.open(path).close()
        assert copies(path) == []

    def test_file_that_cannot_be_copied_is_not_migrated(self, made, add_migration, monkeypatch):
        old_version = version_of(made)
        add_migration()

        def fail(_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(RunFolderUnusable, match="the disk is full"):
                Store.open(made)
        assert version_of(made) == old_version
        assert [*made.parent.glob("*.before-*"), *made.parent.glob(".*")] == []
        Store.open(made).close()


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
        assert f"Other users of this machine have access to {made}" in caplog.text
        assert stat.S_IMODE(made.stat().st_mode) == 0o644

    def test_folder_of_a_database_outside_the_home_keeps_its_permissions(self, tmp_path):
        folder = tmp_path / "shared"
        folder.mkdir()
        folder.chmod(0o755)
        Store.open(folder / "labels.sqlite").close()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755

    def test_path_creates_sqlite_file_and_folder(self, tmp_path):
        path = tmp_path / "a folder" / "ünï 100% #?" / "labels.sqlite"
        Store.open(str(path)).close()
        assert path.exists()

    def test_sqlite_url_is_equivalent_to_path(self, path):
        Store.open(f"sqlite:///{path}").close()
        assert path.exists()

    def test_in_memory_database_works(self):
        with Store.open("sqlite://") as store:
            assert store.experiments.ensure("x", "Hopper-v5", {}) == 1

    def test_postgresql_database_in_another_encoding_is_refused(self, postgres_server):
        postgres_server.run("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
        url = postgres_server.url("ascii")
        try:
            with pytest.raises(StoreUnavailable, match="encoding SQL_ASCII; UTF8 is needed"):
                Store.open(url)
        finally:
            postgres_server.drop(url)

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
    def test_postgresql_url_selects_psycopg_driver(self, scheme):
        assert as_url(f"{scheme}://me@host/labels").drivername == "postgresql+psycopg"

    def test_missing_driver_is_named_without_password(self):
        with pytest.raises(StoreUnavailable, match="pip install") as caught:
            Store.open("mysql+nosuchdriver://me:s3cret@host/labels")
        assert "s3cret" not in str(caught.value)

    def test_error_hides_password_in_url_options(self):
        with pytest.raises(StoreUnavailable) as caught:
            Store.open("postgresql://me@/labels?host=/nowhere/at/all&password=s3cret")
        assert "s3cret" not in str(caught.value)

    def test_default_url_is_in_home_unless_environment_sets_another(self, tmp_path, monkeypatch):
        monkeypatch.delenv("RL_TEACHER_DATABASE_URL", raising=False)
        assert default_url(tmp_path) == str(tmp_path / "labels.sqlite")
        monkeypatch.setenv("RL_TEACHER_DATABASE_URL", "postgresql://me@host/labels")
        assert default_url(tmp_path) == "postgresql://me@host/labels"

    def test_unescaped_password_is_refused_without_showing_it(self):
        with pytest.raises(StoreUnavailable, match="%40") as caught:
            Store.open("postgresql://me:s3c@r:et@host/labels")
        assert "s3c" not in str(caught.value)

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
        with pytest.raises(StoreUnavailable, match="Correct RL_TEACHER_DATABASE_URL") as caught:
            Store.open(url)
        assert not caught.value.is_transient

    def test_invalid_url_is_refused(self):
        with pytest.raises(StoreUnavailable, match="is not the URL of a database"):
            Store.open("my database://")


class TestFaults:
    def test_locked_database_raises_error_naming_lock(self, made):
        other = sqlite3.connect(made, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"labels\.sqlite.*locked.*Wait"):
            Store.open(made, busy_timeout_s=0.05)
        other.close()

    def test_opening_new_file_waits_for_process_that_creates_it(self, path):
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            Store.open(path, busy_timeout_s=0.05)
        release = threading.Timer(0.2, lambda: other.execute("COMMIT"))
        release.start()
        with Store.open(path) as store:
            assert store.experiments.all() == []
        release.join()
        other.close()

    def test_opening_waits_for_lock_released_in_time(self, made):
        with Store.open(made) as one, Store.open(made) as other:
            assert one.experiments.ensure("a", "E", {}) != other.experiments.ensure("b", "E", {})

    def test_write_to_locked_database_fails_and_works_afterwards(self, made):
        with Store.open(made, busy_timeout_s=0.05) as store:
            other = sqlite3.connect(made, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                store.experiments.ensure("x", "E", {})
            other.execute("ROLLBACK")
            other.close()
            assert store.experiments.ensure("x", "E", {}) == 1

    def test_read_only_database_raises_error_naming_permission(self, made):
        with pytest.raises(StoreUnavailable, match=r"read but not written.*permission"):
            Store.open(f"sqlite:///file:{made}?mode=ro&uri=true")

    def test_folder_without_write_permission_is_named(self, tmp_path, as_nobody):
        tmp_path.chmod(0o500)
        as_nobody()
        with pytest.raises(StoreUnavailable):
            Store.open(tmp_path / "labels.sqlite")

    def test_file_of_other_format_is_refused_and_unchanged(self, path):
        path.write_bytes(b"Dear diary, " * 1000)
        with pytest.raises(StoreUnavailable, match="holds something else, or was damaged"):
            Store.open(path)
        assert path.read_bytes().startswith(b"Dear diary")

    def test_damaged_database_raises_error_naming_damage(self, made):
        content = bytearray(made.read_bytes())
        content[100:-100] = b"\xff" * (len(content) - 200)
        made.write_bytes(content)
        with pytest.raises(StoreUnavailable, match="damaged"):
            Store.open(made)

    def test_name_of_table_that_is_not_utf8_raises_error_naming_damage(self, made):
        made.write_bytes(made.read_bytes().replace(b"TABLE leases", b"TABL\xf7 leases"))
        with pytest.raises(StoreUnavailable, match="damaged"):
            Store.open(made)

    @pytest.mark.parametrize("column", ["config", "created_at"])
    def test_value_that_cannot_be_decoded_raises_error_naming_damage(self, made, column):
        with Store.open(made) as store:
            store.experiments.ensure("one", "Hopper-v5", {})
        with closing(sqlite3.connect(made)) as connection, connection:
            connection.execute(f"UPDATE experiments SET {column} = '{{1'")  # noqa: S608
        with Store.open(made) as store, pytest.raises(StoreUnavailable, match="it is damaged"):
            store.experiments.all()

    def test_folder_in_place_of_file_is_refused(self, path):
        path.mkdir()
        with pytest.raises(StoreUnavailable, match="cannot be opened"):
            Store.open(path)

    def test_file_in_place_of_folder_is_refused(self, path):
        path.write_text("")
        with pytest.raises(StoreUnavailable, match="cannot be created"):
            Store.open(path / "labels.sqlite")

    def test_writing_to_deleted_file_is_refused(self, path):
        with Store.open(path) as store:
            experiment_id = store.experiments.ensure("x", "E", {})
            [comparison_id] = store.comparisons.add(experiment_id, [("a", "b")], "E", 1, 0)
            path.unlink()
            with pytest.raises(StoreUnavailable, match="deleted or replaced"):
                store.labels.add(comparison_id, Answer.LEFT, "me")

    def test_reading_from_deleted_file_is_refused(self, path):
        with Store.open(path) as store:
            path.unlink()
            with pytest.raises(StoreUnavailable, match="deleted or replaced"):
                store.schema_version()
            with pytest.raises(StoreUnavailable, match="deleted or replaced"):
                store.experiments.all()

    def test_locked_database_can_be_read(self, made):
        with Store.open(made) as store:
            other = sqlite3.connect(made, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            store.schema_version()
            assert store.experiments.all() == []
            other.close()

    def test_full_disk_raises_error_naming_disk(self, made):
        with Store.open(made) as store:
            with store.database.reading() as connection:
                connection.exec_driver_sql("PRAGMA max_page_count=1")
            with pytest.raises(StoreUnavailable, match="disk is full"):
                store.experiments.ensure("x", "E", {"filler": "x" * 100_000})


@pytest.fixture
def guest_url(postgres_url, postgres_server):
    """URL of a database for a user who does not own it."""
    postgres_server.run("CREATE USER guest")
    yield postgres_url.replace(f"{postgres_server.user}@", "guest@")
    postgres_server.run("DROP USER guest")


@pytest.mark.postgres
class TestFaultsOfAServer:
    def test_label_with_used_id_raises_error(self, postgres_url):
        with Store.open(postgres_url) as store:
            experiment_id = store.experiments.ensure("x", "E", {})
            [comparison_id] = store.comparisons.add(experiment_id, [("a", "b")], "E", 1, 0)
            store.labels.add(comparison_id, Answer.LEFT, "me")
            with writing(postgres_url) as connection:
                connection.exec_driver_sql("ALTER SEQUENCE labels_id_seq RESTART")
            with pytest.raises(StoreUnavailable, match="refused the labels"):
                store.labels.add(comparison_id, Answer.RIGHT, "me")

    def test_missing_database_raises_error_naming_createdb(self, postgres_url):
        with pytest.raises(StoreUnavailable, match=r"no such database or user.*createdb"):
            Store.open(postgres_url.replace("@/", "@/not_"))

    @pytest.mark.parametrize("has_tables", [False, True])
    def test_user_without_permissions_raises_error_naming_owner(
        self, postgres_url, guest_url, has_tables
    ):
        if has_tables:
            Store.open(postgres_url).close()
        with pytest.raises(StoreUnavailable, match=r"may not read or change.*the owner") as caught:
            Store.open(guest_url)
        assert not caught.value.is_transient

    def test_server_without_free_connections_is_a_transient_fault(self, postgres_server, guest_url):
        postgres_server.run("ALTER USER guest CONNECTION LIMIT 0")
        with pytest.raises(StoreUnavailable, match="no free connection") as caught:
            Store.open(guest_url)
        assert caught.value.is_transient

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            ("fe_sendauth: no password supplied", "requires a password"),
            ('FATAL:  no pg_hba.conf entry for host "10.0.0.7", user "me"', "does not admit"),
            ("FATAL:  sorry, too many clients already", "has no free connection"),
            ("FATAL:  remaining connection slots are reserved", "has no free connection"),
        ],
    )
    def test_server_that_refuses_a_connection_is_not_called_unreachable(self, message, reason):
        text = f'connection to server at "db" (10.0.0.5), port 5432 failed: {message}'
        assert f"the server {reason}" in str(unavailable("postgresql://db", text))

    def test_unreachable_server_raises_store_unavailable(self, tmp_path):
        with pytest.raises(StoreUnavailable, match="the server does not answer"):
            Store.open(f"postgresql://me@/labels?host={tmp_path}", busy_timeout_s=0.1)

    def test_host_that_is_not_resolved_is_a_transient_fault(self, monkeypatch):
        def getaddrinfo(*_, **__):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

        # As while a container is restarted, whose name exists only while it runs.
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        with pytest.raises(StoreUnavailable, match="name of its server cannot be") as caught:
            Store.open("postgresql://me@postgres/labels")
        assert caught.value.is_transient

    def test_lost_connection_is_noticed_within_the_timeout(self, postgres_url):
        # Seconds, but the first one has milliseconds.
        limits = {"tcp_user_timeout": "3000", "keepalives_idle": "3", "keepalives_interval": "7"}
        with (
            Store.open(f"{postgres_url}&keepalives_interval=7", busy_timeout_s=2.5) as store,
            store.database.reading() as connection,
        ):
            raw = connection.connection.driver_connection
            assert raw is not None
            parameters = raw.info.get_parameters()
        assert {name: parameters.get(name) for name in limits} == limits

    def test_wait_for_lock_times_out(self, postgres_url):
        with Store.open(postgres_url, busy_timeout_s=0.05) as store, writing(postgres_url) as other:
            other.exec_driver_sql("LOCK TABLE experiments IN EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailable, match="held what is needed for too long"):
                store.experiments.ensure("x", "E", {})
            other.rollback()
            assert store.experiments.ensure("x", "E", {}) == 1

    def test_restarted_server_is_reconnected(self, postgres_url, postgres_server):
        with Store.open(postgres_url) as store:
            postgres_server.run(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                "WHERE datname LIKE 'test%'"
            )
            assert store.experiments.all() == []

    def test_read_only_server_raises_error_naming_cause(self, postgres_url):
        with writing(postgres_url) as connection:
            name = connection.exec_driver_sql("SELECT current_database()").scalar()
            connection.exec_driver_sql(
                f"ALTER DATABASE {name} SET default_transaction_read_only = on"
            )
        with pytest.raises(StoreUnavailable, match="read but not written"):
            Store.open(postgres_url)


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
