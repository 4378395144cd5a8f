"""Opening a database: the versions it may have, and everything that may be wrong with it."""

import sqlite3

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from rl_teacher.clips.answer import Answer
from rl_teacher.errors import StoreUnavailable
from rl_teacher.store import store as store_module
from rl_teacher.store.database import as_url
from rl_teacher.store.migrate import alembic_settings
from rl_teacher.store.store import Store, insert_or_skip
from rl_teacher.store.tables import Base, Clip, Comparison, Experiment, Label


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.sqlite"


@pytest.fixture
def made(path):
    Store.open(path).close()
    return path


def schema(path):
    """The lines of each table's and index's SQL; their order means nothing."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'alembic_version'"
    ).fetchall()
    connection.close()
    return {name: {line.strip(" ,\t") for line in sql.splitlines()} for name, sql in found}


class TestVersions:
    def test_the_migrations_build_what_the_models_describe(self, made):
        engine = create_engine(f"sqlite:///{made}")
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, Base.metadata) == []
        engine.dispose()

    def test_the_migrations_build_the_same_sql_as_the_models(self, made, tmp_path):
        engine = create_engine(f"sqlite:///{tmp_path / 'models.sqlite'}")
        Base.metadata.create_all(engine)
        engine.dispose()
        assert schema(made) == schema(tmp_path / "models.sqlite")

    def test_the_first_migration_can_be_taken_back(self, made):
        engine = create_engine(f"sqlite:///{made}")
        with engine.begin() as connection:
            command.downgrade(alembic_settings(connection), "base")
        engine.dispose()
        assert set(schema(made)) <= {"sqlite_sequence"}

    def test_a_database_of_a_newer_version_is_refused(self, made):
        connection = sqlite3.connect(made)
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
        connection.close()
        with pytest.raises(StoreUnavailable, match=r"version 9999.*newer rl-teacher"):
            Store.open(made)

    def test_nothing_is_written_where_the_user_stands(self, path, tmp_path, monkeypatch):
        elsewhere = tmp_path / "cwd"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        Store.open(path).close()
        assert list(elsewhere.iterdir()) == []

    @pytest.mark.parametrize("table", [Experiment, Clip, Comparison, Label])
    def test_every_table_can_be_said_in_postgresql(self, table):
        sql = str(CreateTable(table.__table__).compile(dialect=postgresql.dialect()))
        assert "AUTOINCREMENT" not in sql
        assert ("SERIAL" in sql) == ("id" in table.__table__.columns)

    @pytest.mark.parametrize(
        "statement",
        [
            insert_or_skip("postgresql", Comparison),
            store_module.FIND_COMPARISONS,
            store_module.ANSWERS_OLDEST_FIRST,
            store_module.ANSWERED_COMPARISONS,
            store_module.COUNTS,
        ],
    )
    def test_every_statement_can_be_said_in_postgresql(self, statement):
        assert str(statement.compile(dialect=postgresql.dialect()))


class TestWhereItIs:
    def test_a_path_is_an_sqlite_file_whose_folder_is_made(self, tmp_path):
        path = tmp_path / "a folder" / "ünï 100% #?" / "labels.sqlite"
        Store.open(str(path)).close()
        assert path.exists()

    def test_an_sqlite_url_is_as_good_as_a_path(self, path):
        Store.open(f"sqlite:///{path}").close()
        assert path.exists()

    def test_a_database_in_memory_works(self):
        with Store.open("sqlite://") as store:
            assert store.ensure_experiment("x", "Hopper-v5", {}) == 1

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
    def test_postgresql_means_the_psycopg_driver(self, scheme):
        assert as_url(f"{scheme}://me@host/labels").drivername == "postgresql+psycopg"

    def test_a_driver_that_is_not_installed_is_named_and_the_password_is_not(self):
        with pytest.raises(StoreUnavailable, match="pip install") as caught:
            Store.open("mysql+nosuchdriver://me:s3cret@host/labels")
        assert "s3cret" not in str(caught.value)

    def test_something_that_is_no_url_is_said_to_be_none(self):
        with pytest.raises(StoreUnavailable, match="is not the URL of a database"):
            Store.open("my database://")


class TestFaults:
    def test_a_locked_database_is_said_to_be_locked(self, made):
        other = sqlite3.connect(made, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"labels\.sqlite.*locked.*Wait"):
            Store.open(made, busy_timeout_s=0.05)
        other.close()

    def test_a_lock_that_is_let_go_in_time_is_waited_for(self, made):
        with Store.open(made) as one, Store.open(made) as other:
            assert one.ensure_experiment("a", "E", {}) != other.ensure_experiment("b", "E", {})

    def test_a_write_that_meets_a_lock_says_so_and_works_afterwards(self, made):
        with Store.open(made, busy_timeout_s=0.05) as store:
            other = sqlite3.connect(made, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                store.ensure_experiment("x", "E", {})
            other.execute("ROLLBACK")
            other.close()
            assert store.ensure_experiment("x", "E", {}) == 1

    def test_a_read_only_database_is_said_to_be_read_only(self, made):
        with pytest.raises(StoreUnavailable, match=r"read but not written.*permission"):
            Store.open(f"sqlite:///file:{made}?mode=ro&uri=true")

    def test_a_folder_without_write_permission_is_named(self, tmp_path, as_nobody):
        tmp_path.chmod(0o500)
        as_nobody()
        with pytest.raises(StoreUnavailable):
            Store.open(tmp_path / "labels.sqlite")

    def test_a_file_that_holds_something_else_is_refused_and_left_alone(self, path):
        path.write_bytes(b"Dear diary, " * 1000)
        with pytest.raises(StoreUnavailable, match="holds something else, or was damaged"):
            Store.open(path)
        assert path.read_bytes().startswith(b"Dear diary")

    def test_a_damaged_database_is_said_to_be_damaged(self, made):
        content = bytearray(made.read_bytes())
        content[100:-100] = b"\xff" * (len(content) - 200)
        made.write_bytes(content)
        with pytest.raises(StoreUnavailable, match="damaged"):
            Store.open(made)

    def test_a_folder_in_the_place_of_the_file_is_refused(self, path):
        path.mkdir()
        with pytest.raises(StoreUnavailable, match="cannot be opened"):
            Store.open(path)

    def test_a_file_in_the_place_of_the_folder_is_refused(self, path):
        path.write_text("")
        with pytest.raises(StoreUnavailable, match="cannot be created"):
            Store.open(path / "labels.sqlite")

    def test_no_label_goes_into_a_file_that_was_deleted(self, path):
        with Store.open(path) as store:
            experiment_id = store.ensure_experiment("x", "E", {})
            [comparison_id] = store.ask(experiment_id, [("a", "b")], "E", 1, 0)
            path.unlink()
            with pytest.raises(StoreUnavailable, match="deleted or replaced"):
                store.answer(comparison_id, Answer.LEFT, "me")

    def test_a_full_disk_is_said_to_be_full(self, made):
        with Store.open(made) as store:
            with store._database.reading() as connection:
                connection.exec_driver_sql("PRAGMA max_page_count=1")
            with pytest.raises(StoreUnavailable, match="disk is full"):
                store.ensure_experiment("x", "E", {"filler": "x" * 100_000})
