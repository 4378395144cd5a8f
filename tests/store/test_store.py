"""Tests of experiments, comparisons and labels, on SQLite and on PostgreSQL."""

import threading
from uuid import UUID

import pytest
from sqlalchemy import create_engine, text

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import (
    ComparisonNotFound,
    ConfigMismatch,
    ExperimentNotFound,
)
from rl_teacher.store.database import as_url
from rl_teacher.store.records import NewLabel, RenderedClip
from rl_teacher.store.store import Store
from tests.store.comparisons import ENV_ID, ask, counts
from tests.store.conftest import BOTH, new_database

REQUEST = UUID("12345678-1234-5678-1234-567812345678")


@pytest.fixture(params=BOTH)
def url(request):
    return new_database(request)


@pytest.fixture
def experiment_id(store):
    return store.experiments.ensure("syn-1400", ENV_ID, {"labels": 1400})


def rows(url, query):
    engine = create_engine(as_url(url))
    with engine.connect() as connection:
        found = connection.execute(text(query)).all()
    engine.dispose()
    return found


class TestExperiments:
    def test_name_with_comparisons_of_another_environment_is_refused(self, store, experiment_id):
        ask(store, experiment_id, 1)
        with pytest.raises(ConfigMismatch, match=r"not Reacher-v1\. .*rl-teacher delete"):
            store.experiments.ensure("syn-1400", "Reacher-v1", {})

    def test_experiment_without_comparisons_takes_new_environment(self, store, experiment_id):
        assert store.experiments.ensure("syn-1400", "Reacher-v1", {"seed": 1}) == experiment_id
        found = store.experiments.get("syn-1400")
        assert (found.env_id, found.config) == ("Reacher-v1", {"seed": 1})

    def test_renamed_experiment_keeps_comparisons_and_name_in_config(self, store):
        experiment_id = store.experiments.ensure("old", ENV_ID, {"name": "old", "seed": 1})
        [comparison_id] = ask(store, experiment_id, 1)
        store.experiments.rename("old", "new")
        assert store.experiments.get("new").config == {"name": "new", "seed": 1}
        assert store.comparisons.get(comparison_id).experiment_name == "new"
        with pytest.raises(ExperimentNotFound):
            store.experiments.get("old")

    def test_accents_of_a_name_may_be_decomposed(self, store):
        composed, decomposed = "\u00e9", "e\u0301"
        experiment_id = store.experiments.ensure(composed, ENV_ID, {})
        assert store.experiments.ensure(decomposed, ENV_ID, {}) == experiment_id
        assert store.experiments.get(decomposed).name == composed
        store.experiments.set_archived(decomposed, is_archived=True)
        store.experiments.rename(decomposed, f"{decomposed}2")
        assert [each.name for each in store.experiments.all()] == [f"{composed}2"]
        assert store.experiments.delete(f"{decomposed}2")

    def test_deletion_by_owner_outlives_experiment_in_audit_log(self, store, experiment_id):
        ask(store, experiment_id, 1)
        assert store.experiments.delete("syn-1400", by="zoe")
        [event] = store.events.page().rows
        assert (event.kind, event.labeler, event.experiment) == ("delete", "zoe", None)
        assert event.details == {"experiment": "syn-1400", "comparisons": 1, "labels": 0}

    def test_comparisons_are_numbered_in_each_experiment(self, store, experiment_id):
        other = store.experiments.ensure("other", ENV_ID, {})
        ask(store, experiment_id, 1, 2)
        ask(store, other, 1)
        ask(store, experiment_id, 2, 3, 3)
        for each, numbers in ((experiment_id, [3, 2, 1]), (other, [1])):
            assert [found.number for found in store.comparisons.page(each).rows] == numbers

    def test_deleted_experiment_loses_labels_but_keeps_clips(self, store, experiment_id, url):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "oracle")
        store.experiments.delete("syn-1400")
        counted = "SELECT (SELECT count(*) FROM {}), (SELECT count(*) FROM {})"
        assert rows(url, counted.format("comparisons", "labels")) == [(0, 0)]
        assert rows(url, counted.format("experiments", "clips")) == [(0, 2)]

    def test_ids_of_deleted_comparisons_are_not_reused(self, store, experiment_id):
        old_ids = ask(store, experiment_id, 1, 2)
        store.experiments.delete("syn-1400")
        new_id = store.experiments.ensure("syn-1400", ENV_ID, {})
        assert min(ask(store, new_id, 3, 4)) > max(old_ids)


class TestAsking:
    def test_ids_are_in_order_of_pairs(self, store, experiment_id):
        first, second = ask(store, experiment_id, 1, 2)
        assert ask(store, experiment_id, 2, 3, 1)[::2] == [second, first]

    def test_repeated_pair_keeps_id(self, store, experiment_id):
        assert ask(store, experiment_id, 1) == ask(store, experiment_id, 1)
        assert counts(store, experiment_id)[0] == 1


class TestAnswering:
    def test_newest_answer_counts_and_older_one_is_kept(self, store, experiment_id, url):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "me")
        store.labels.add(comparison_id, Answer.EQUAL, "me")
        assert store.labels.answers([comparison_id]) == {comparison_id: Answer.EQUAL}
        assert rows(url, "SELECT answer FROM labels ORDER BY id") == [("left",), ("equal",)]

    def test_resent_request_changes_nothing(self, store, experiment_id, url):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "me", REQUEST)
        store.labels.add(comparison_id, Answer.RIGHT, "me")
        store.labels.add(comparison_id, Answer.LEFT, "me", REQUEST)
        assert store.labels.answers([comparison_id]) == {comparison_id: Answer.RIGHT}
        assert rows(url, "SELECT count(*) FROM labels") == [(2,)]

    def test_batch_with_unknown_comparison_stores_no_label(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        labels = [NewLabel(each, Answer.LEFT, "me") for each in (comparison_id, 999)]
        with pytest.raises(ComparisonNotFound, match="Comparison 999 is not"):
            store.labels.add_many(labels)
        assert store.labels.answers([comparison_id]) == {}


class TestReading:
    def test_reader_of_concurrent_writers_misses_no_label(self, store, experiment_id, url):
        ids = ask(store, experiment_id, *range(60))
        seen = []

        def write(part):
            with Store.open(url) as other:
                for each in part:
                    other.labels.add(each, Answer.LEFT, "owner")

        writers = [threading.Thread(target=write, args=(ids[start::3],)) for start in range(3)]
        for writer in writers:
            writer.start()
        while len(seen) < len(ids):
            is_over = not any(writer.is_alive() for writer in writers)
            seen += store.labels.since(experiment_id, seen[-1].id if seen else 0)
            assert not is_over or len(seen) == len(ids)
        for writer in writers:
            writer.join()
        assert sorted(label.comparison_id for label in seen) == ids

    def test_data_survives_reopening(self, store, experiment_id, url):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "me")
        store.close()
        with Store.open(url) as again:
            assert again.experiments.ensure("syn-1400", ENV_ID, {}) == experiment_id
            assert again.labels.answers([comparison_id]) == {comparison_id: Answer.LEFT}


@pytest.fixture
def _no_waiting_for_the_disk():
    """Override the fixture that disables synchronous writes."""


@pytest.mark.parametrize(("is_synced", "synchronous"), [(True, 2), (False, 1)])
def test_sqlite_is_set_up_for_shared_and_durable_use(path, is_synced, synchronous):
    with (
        Store.open(path, is_synced=is_synced) as store,
        store.database.reading() as connection,
    ):
        pragmas = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("foreign_keys", "journal_mode", "synchronous")
        ]
    assert pragmas == [1, "wal", synchronous]


class TestEpisodes:
    @pytest.fixture
    def add(self, store, experiment_id):
        def add(step, clip):
            store.clips.publish({clip: RenderedClip("E", 6, "poses", f"clips/{clip}", None, 6, 20)})
            store.episodes.add(experiment_id, {"step": step, "clip": clip})

        return add

    def test_episodes_are_sorted_by_step(self, store, experiment_id, add):
        assert store.episodes.last_step(experiment_id) is None
        for step, clip in ((7, "a"), (0, "b")):
            add(step, clip)
        assert [each["clip"] for each in store.episodes.all(experiment_id)] == ["b", "a"]
        assert store.episodes.last_step(experiment_id) == 7

    def test_later_episodes_are_dropped(self, store, experiment_id, add):
        for step, clip in ((0, "a"), (5, "b"), (6, "c")):
            add(step, clip)
        assert store.episodes.drop_after(experiment_id, 5) == ["c"]
        assert store.episodes.last_step(experiment_id) == 5

    def test_episodes_are_deleted_with_their_experiment(self, store, experiment_id, add):
        add(0, "a")
        store.experiments.delete(store.experiments.all()[0].name)
        assert store.episodes.all(experiment_id) == []
        assert store.clips.delete_unused("a") == "clips/a"
