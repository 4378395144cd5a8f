"""Transactions are repeated while the database is locked or restarts, with the effect of one."""

import contextlib
import sqlite3
import threading
import time
from contextlib import closing

import pytest
from sqlalchemy import event

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import ExperimentNotFound, StoreUnavailable
from rl_teacher.store.records import Control, NewLabel, RenderedClip
from rl_teacher.store.store import Store
from rl_teacher.store.waiting import DatabaseWait
from tests.store import postgres
from tests.store.comparisons import clip

OUTAGE_S = 0.5


@contextlib.contextmanager
def locked_for(path, seconds):
    """Lock an SQLite database for some seconds from now on."""
    is_locked = threading.Event()

    def lock():
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            is_locked.set()
            time.sleep(seconds)

    thread = threading.Thread(target=lock)
    thread.start()
    is_locked.wait()
    yield
    thread.join()


def open_waiting(url, timeout_s=20.0):
    wait = DatabaseWait(timeout_s, retry_s=0.05)
    return Store.open(url, busy_timeout_s=0.05, wait=wait), wait


@pytest.fixture(scope="module")
def restartable():
    postgres.require_postgres()
    server = postgres.RestartableServer()
    yield server
    server.close()


def test_write_to_locked_database_is_repeated_until_it_is_free(database):
    store, wait = open_waiting(database)
    seen = []

    @contextlib.contextmanager
    def report(since):
        seen.append(since)
        yield
        seen.append("answered")

    wait.report = report
    with store, locked_for(database, OUTAGE_S):
        assert store.experiments.ensure("x", "E", {}) == 1
    assert len(seen) == 2
    assert seen[1] == "answered"


def test_wait_ends_after_its_limit_and_does_not_begin_again(database):
    store, _ = open_waiting(database, timeout_s=0.3)
    with store, closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            store.experiments.ensure("x", "E", {})
        began_s = time.monotonic()
        with pytest.raises(StoreUnavailable, match="locked"):
            store.experiments.ensure("x", "E", {})
        assert time.monotonic() - began_s < 0.3


def test_error_that_does_not_pass_by_itself_is_raised_at_once(database):
    store, _ = open_waiting(database, timeout_s=60.0)
    with store:
        with pytest.raises(ExperimentNotFound):
            store.experiments.get("none")
        database.unlink()
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            store.experiments.all()


@pytest.mark.slow
@pytest.mark.postgres
def test_killed_server_is_waited_for_by_reads_and_writes(restartable):
    store, _ = open_waiting(restartable.server.new_database())
    with store:
        store.experiments.ensure("x", "E", {})
        for action in (store.experiments.all, lambda: store.experiments.describe(1, "how", 3)):
            restartable.stop()
            restart = threading.Timer(OUTAGE_S, restartable.start)
            restart.start()
            action()
            restart.join()
        assert store.experiments.get("x").instructions == "how"


@pytest.mark.slow
@pytest.mark.postgres
def test_server_killed_within_a_transaction_is_waited_for(restartable):
    store, _ = open_waiting(restartable.server.new_database())
    with store:
        killing = [restartable.kill]

        def kill(*_):
            if killing:
                killing.pop()()

        event.listen(store.database.engine, "after_cursor_execute", kill)
        assert store.experiments.ensure("x", "E", {}) == store.experiments.get("x").id
        assert not killing
        assert len(store.experiments.all()) == 1


WRITES = {
    "ensure": lambda store, _: store.experiments.ensure("x", "E", {}),
    "describe": lambda store, _: store.experiments.describe(1, "how", 3),
    "set_status": lambda store, _: store.experiments.set_status(1, {"phase": "training"}),
    "set_control": lambda store, _: store.experiments.set_control(1, Control(state="run")),
    "set_latest_episode": lambda store, _: store.experiments.set_latest_episode(1, {"step": 3}),
    "set_diagnostics": lambda store, _: store.experiments.set_diagnostics(1, {"num_fits": 1}),
    "add": lambda store, _: store.comparisons.add(1, [(clip("a"), clip("c"))], "E", 30, 0),
    "withdraw": lambda store, ids: store.comparisons.withdraw(ids),
    "add_many": lambda store, ids: store.labels.add_many([LABEL]),
    "publish": lambda store, _: store.clips.publish({clip("a"): RENDERED}),
    "append": lambda store, _: store.metrics.append(1, 5, {"step": 5, "loss": 0.1}),
    "drop_after": lambda store, _: store.metrics.drop_after(1, 4),
    "add_episode": lambda store, _: store.episodes.add(1, {"step": 3, "clip": clip("a")}),
}
"""Writes of the trainer."""

LABEL = NewLabel(1, Answer.LEFT, "Ada")
RENDERED = RenderedClip("E", 30, "poses", "clips/a.poses", clip("scene"), 30, 20.0)
TABLES = (
    "experiments",
    "comparisons",
    "clips",
    "labels",
    "tallies",
    "metrics",
    "episodes",
    "events",
)


def rows_of(store):
    """Return the content of all tables but times, and the ids of episodes, which are replaced."""
    found = {}
    with store.database.reading() as connection:
        for table in TABLES:
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}").mappings()  # noqa: S608
            found[table] = [
                {
                    key: value
                    for key, value in row.items()
                    if not key.endswith("_at") and (table, key) != ("episodes", "id")
                }
                for row in rows
            ]
    return found


@contextlib.contextmanager
def answer_of_commit_is_lost(store, monkeypatch):
    """Raise the error of a lost connection once, after the next commit."""
    dialect = store.database.engine.dialect
    commit, lost = dialect.do_commit, []

    def commit_and_raise(connection):
        commit(connection)
        if not lost:
            lost.append(connection)
            raise dialect.loaded_dbapi.OperationalError("database is locked: connection lost")

    with monkeypatch.context() as patched:
        patched.setattr(dialect, "do_commit", commit_and_raise)
        yield
    assert lost


@pytest.mark.parametrize("write", WRITES)
def test_write_that_was_committed_before_has_no_further_effect(write, url, monkeypatch):
    store, _ = open_waiting(url)
    with store:
        store.experiments.ensure("x", "E", {})
        ids = store.comparisons.add(1, [(clip("a"), clip("b"))], "E", 30, 0)
        store.labelers.id_of("Ada")
        result = WRITES[write](store, ids)
        written = rows_of(store)
        with answer_of_commit_is_lost(store, monkeypatch):
            assert WRITES[write](store, ids) == result
        assert rows_of(store) == written


def test_metrics_that_differ_from_the_newest_are_appended(store):
    store.experiments.ensure("x", "E", {})
    for step, loss in ((1, 0.5), (2, 0.5), (2, 0.25), (2, 0.25), (2, float("nan"))):
        store.metrics.append(1, step, {"step": step, "loss": loss})
    assert [(each.step, each.row["loss"]) for each in store.metrics.after(1)] == [
        (1, 0.5),
        (2, 0.5),
        (2, 0.25),
        (2, None),
    ]
