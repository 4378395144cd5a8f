"""Tests of opening databases: schema versions and faults."""

import errno
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from uuid import UUID

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, func, select, table

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import RunFolderUnusable, StoreUnavailable
from rl_teacher.store.counters import recount
from rl_teacher.store.database import alembic_settings, as_url, default_url, make_engine, versions
from rl_teacher.store.records import ComparisonFilter, NewLabel
from rl_teacher.store.snapshot import faults_of
from rl_teacher.store.store import Store
from rl_teacher.store.tables import Base, Label
from tests.store.comparisons import open_comparisons
from tests.store.test_processes import read_line, start

FIRST_VERSION_ROWS = """
INSERT INTO experiments
    (id, name, env_id, config, created_at, num_asked, num_answered, num_open) VALUES
    (1, 'old', 'E', '{"seed": 3}', '2026-01-01 00:00:00', 3, 1, 2),
    (7, 'older', 'E', '{}', '2026-01-01 00:00:00', 1, 1, 0);
INSERT INTO clips (content_hash, env_id, num_steps, created_at, kind) VALUES
    ('a', 'E', 30, '2026-01-01 00:00:00', 'poses'),
    ('b', 'E', 30, '2026-01-01 00:00:00', 'poses');
INSERT INTO labelers (id, name, created_at, role) VALUES
    (1, 'synthetic:oracle', '2026-01-01 00:00:00', 'teacher'),
    (2, 'Zoë', '2026-01-01 00:00:00', 'labeler'),
    (10, 'owner', '2026-02-01 00:00:00', 'owner');
INSERT INTO comparisons
    (id, experiment_id, left_hash, right_hash, asked_at_step, created_at, num_labels, is_open,
    is_disputed) VALUES
    (1, 1, 'a', 'b', 0, '2026-01-01 00:00:00', 3, false, true),
    (2, 1, 'b', 'a', 5000000000, '2026-01-01 00:00:00', 0, true, false),
    (9, 7, 'a', 'b', 0, '2026-01-01 00:00:00', 1, false, false),
    (10, 1, 'a', 'a', 0, '2026-02-01 00:00:00', 0, true, false);
INSERT INTO labels (id, comparison_id, answer, labeler_id, request_id, created_at) VALUES
    (1, 1, 'left', 1, '00000000000000000000000000000001', '2026-01-02 00:00:00'),
    (2, 1, 'equal', 2, '00000000000000000000000000000002', '2026-01-03 00:00:00'),
    (5, 9, 'cannot_tell', 1, '00000000000000000000000000000003', '2026-01-04 00:00:00'),
    (6, 1, 'right', 10, '00000000000000000000000000000006', '2026-02-01 00:00:00'),
    (7, 9, NULL, 10, '00000000000000000000000000000007', '2026-02-02 00:00:00'),
    (8, 2, 'left', 10, '00000000000000000000000000000008', '2026-02-03 00:00:00'),
    (9, 2, NULL, 10, '00000000000000000000000000000009', '2026-02-04 00:00:00');
INSERT INTO tallies
    (experiment_id, labeler_id, num_labels, num_given, first_label_id, last_label_id, last_label_at)
VALUES
    (1, 1, 1, 1, 1, 1, '2026-01-02 00:00:00'),
    (1, 2, 1, 1, 2, 2, '2026-01-03 00:00:00'),
    (7, 1, 1, 1, 5, 5, '2026-01-04 00:00:00'),
    (1, 10, 1, 2, 6, 9, '2026-02-04 00:00:00'),
    (7, 10, 0, 0, 7, 7, '2026-02-02 00:00:00')
"""
"""A database of the first version; every later migration is tested on it."""

HIGHEST_IDS = """
SELECT setval('experiments_id_seq', 7), setval('comparisons_id_seq', 10),
    setval('labels_id_seq', 9), setval('labelers_id_seq', 10)
"""
"""SQLite derives them from the rows."""


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


def make_first_version(url):
    """Make a database that the first release wrote."""
    with writing(url) as connection:
        command.upgrade(alembic_settings(connection), "0001")
        for statement in FIRST_VERSION_ROWS.split(";"):
            connection.exec_driver_sql(statement)
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(HIGHEST_IDS)


@pytest.fixture
def first_version(url):
    """Return the URL of a database that the first release wrote."""
    make_first_version(url)
    return url


def rows(url, statement):
    with writing(url) as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def count_rows(url):
    with writing(url) as connection:
        tables = ("experiments", "clips", "comparisons", "labels")
        return [
            connection.execute(select(func.count()).select_from(table(name))).scalar()
            for name in tables
        ]


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

    def test_upgrade_of_first_version_keeps_all_rows(self, first_version):
        before = count_rows(first_version)
        with Store.open(first_version) as store:
            assert store.schema_version() == versions()[0]
            answers = store.labels.answers([1, 2, 9])
            assert answers == {1: Answer.RIGHT, 9: Answer.CANNOT_TELL}
            assert store.labels.count_of_labeler(1, "Zoë") == 1
            assert store.labels.count_of_labeler(1, "synthetic:oracle") == 1
            assert store.labels.count_of_labeler(7, "synthetic:oracle") == 1
            assert store.comparisons.get(2).asked_at_step == 5_000_000_000
            assert store.experiments.get("old").config == {"seed": 3}
        assert count_rows(first_version) == before == [2, 2, 4, 7]

    @pytest.mark.usefixtures("first_version")
    def test_upgraded_first_version_matches_models(self, store, url):
        self.test_migrations_build_tables_of_models(store, url)

    def test_upgraded_label_keeps_request_id_and_time(self, first_version):
        with Store.open(first_version) as store:
            store.labels.add(1, Answer.LEFT, "Zoë", UUID(int=2))
            assert store.labels.answers([1]) == {1: Answer.RIGHT}
            with store.database.reading() as connection:
                moments = connection.execute(select(Label.created_at).order_by(Label.id)).scalars()
                expected = [(1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (2, 4)]
                assert list(moments) == [
                    datetime(2026, month, day, tzinfo=UTC) for month, day in expected
                ]

    def test_ids_of_new_rows_continue_after_upgraded_ones(self, first_version):
        with Store.open(first_version) as store:
            [comparison_id] = store.comparisons.add(1, [("b", "b")], "E", 30, 0)
            labels = [NewLabel(each, Answer.LEFT, "Zoë") for each in (1, comparison_id)]
            store.labels.add_many(labels)
            answers = store.labels.answers([1, comparison_id])
            assert answers == {1: Answer.LEFT, comparison_id: Answer.LEFT}
            assert comparison_id == 11

    def test_upgraded_database_has_roles_and_counts(self, first_version):
        with Store.open(first_version) as store:
            assert {each.name: each.role for each in store.labelers.all()} == {
                "synthetic:oracle": "teacher",
                "Zoë": "labeler",
                "owner": "owner",
            }
            old, older = store.experiments.get("old"), store.experiments.get("older")
            assert (old.asked, old.answered, old.waiting) == (3, 1, 2)
            assert (older.asked, older.answered, older.waiting) == (1, 1, 0)
            counts = [store.labels.count_of_labeler(1, name) for name in ("owner", "Zoë")]
            assert counts == [1, 1]
            assert [each.id for each in open_comparisons(store, 1, 9)] == [2, 10]
            [disputed] = store.comparisons.page(1, ComparisonFilter(is_disputed=True)).rows
            assert (disputed.id, disputed.num_labels) == (1, 3)

    def test_upgraded_comparisons_are_numbered_in_each_experiment(self, first_version):
        with Store.open(first_version) as store:
            numbers = {
                each.id: each.number
                for experiment_id in (1, 7)
                for each in store.comparisons.page(experiment_id).rows
            }
            assert numbers == {1: 1, 2: 2, 10: 3, 9: 1}
            [new] = store.comparisons.add(1, [("b", "b")], "E", 30, 0)
            assert store.comparisons.get(new).number == 4

    def test_recount_of_upgraded_database_changes_nothing(self, first_version):
        counted = "SELECT id, num_labels, is_open, is_disputed, wanted FROM comparisons ORDER BY id"
        with Store.open(first_version) as store:
            before = rows(first_version, counted)
            with store.database.writing() as connection:
                recount(connection, [1, 2, 9, 10])
            assert rows(first_version, counted) == before

    def test_upgrade_moves_marks_of_imported_labels_to_their_column(self, first_version):
        """Labeler 1 was imported; labeler 2 has a credential, so that the marks are invented."""
        marks = '{"imported": {"labeler": "zoe"}, "replays": 2}'
        with writing(first_version) as connection:
            for statement in (
                "UPDATE labelers SET name = 'imported:zoe' WHERE id = 1",
                "UPDATE labelers SET name = 'imported:evil' WHERE id = 2",
                "INSERT INTO credentials (labeler_id, token_hash, hint, created_at) "
                "VALUES (2, 'x', 'x', '2026-01-01 00:00:00')",
                f"UPDATE labels SET details = '{marks}' WHERE id IN (1, 2)",  # noqa: S608
                """UPDATE labels SET details = '{"imported": "1"}' WHERE id = 5""",
            ):
                connection.exec_driver_sql(statement)
        with Store.open(first_version) as store:
            labels = {each.id: each for each in store.labels.export(1) + store.labels.export(7)}
            assert (labels[1].details, labels[1].imported) == ({"replays": 2}, {"labeler": "zoe"})
            assert (labels[2].details, labels[2].imported) == (json.loads(marks), None)
            assert (labels[5].details, labels[5].imported) == ({"imported": "1"}, None)

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

num_left = int(sys.argv[2])
make_engine = database.make_engine

def hang_at_statement(*_):
    global num_left
    num_left -= 1
    if num_left == 0:
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
    @pytest.mark.parametrize("num_statements", [5, 20, 38])
    def test_killed_migration_is_repeated_with_every_label(self, first_version, num_statements):
        labels = "SELECT id, answer, labeler_id, request_id FROM labels ORDER BY id"
        before = rows(first_version, labels)
        with start(MIGRATE_UNTIL_STATEMENT, first_version, str(num_statements)) as process:
            assert read_line(process) == "migrating\n"
            process.kill()
        assert rows(first_version, "SELECT version_num FROM alembic_version") == [("0001",)]
        assert rows(first_version, labels) == before
        with Store.open(first_version) as store:
            assert store.schema_version() == versions()[0]
        assert rows(first_version, labels) == before

    def test_copy_of_older_file_is_kept_before_it_is_migrated(self, path):
        url = f"sqlite:///{path}"
        make_first_version(url)
        (path.parent / "labels.sqlite.before-0003").write_text("of an earlier migration")
        Store.open(url).close()
        [copy] = copies(path)
        assert copy.name == f"labels.sqlite.before-{versions()[0]}"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert faults_of(copy) == []
        version = "SELECT version_num FROM alembic_version"
        assert sqlite3.connect(copy).execute(version).fetchall() == [("0001",)]
        assert sorted(each.name for each in path.parent.glob("*before*")) == [copy.name]
        with Store.open(copy) as store:
            assert store.labels.answers([1, 2, 9]) == {1: Answer.RIGHT, 9: Answer.CANNOT_TELL}

    def test_new_or_current_file_is_not_copied(self, path):
        for _ in range(2):
            Store.open(path).close()
        assert copies(path) == []

    def test_file_that_cannot_be_copied_is_not_migrated(self, path, monkeypatch):
        url = f"sqlite:///{path}"
        make_first_version(url)

        def fail(_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(RunFolderUnusable, match="the disk is full"):
                Store.open(url)
        assert rows(url, "SELECT version_num FROM alembic_version") == [("0001",)]
        assert [*path.parent.glob("*.before-*"), *path.parent.glob(".*")] == []
        Store.open(url).close()


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

    def test_unreachable_server_raises_store_unavailable(self, tmp_path):
        with pytest.raises(StoreUnavailable, match="the server does not answer"):
            Store.open(f"postgresql://me@/labels?host={tmp_path}", busy_timeout_s=0.1)

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
