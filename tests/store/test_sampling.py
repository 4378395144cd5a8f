"""Tests of samples of the newest labels, on SQLite and on PostgreSQL."""

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.store.records import NewLabel
from tests.store.comparisons import ask_and_show


@pytest.fixture
def answered(store, experiment_id):
    """Ask five comparisons, of which Ada and Ben both answer the first four."""
    ids = ask_and_show(store, experiment_id, *range(5))
    for name in ("Ada", "Ben"):
        store.labels.add_many([NewLabel(each, Answer.LEFT, name) for each in ids[:4]])
    return ids


def comparisons_of(sample):
    return [label.comparison_id for label in sample.labels]


def test_small_experiment_is_sampled_completely_oldest_first(store, experiment_id, answered):
    sample = store.labels.sample(experiment_id, 100)
    assert sample.is_all
    assert comparisons_of(sample) == answered[:4] * 2
    assert [label.id for label in sample.labels] == sorted(label.id for label in sample.labels)
    first = sample.labels[0]
    assert (first.answer, first.purpose, first.is_swapped) == (Answer.LEFT, "answer", False)
    assert first.created_at.tzinfo is not None


def test_sample_contains_newest_comparisons_with_all_labels(store, experiment_id, answered):
    sample = store.labels.sample(experiment_id, 2)
    assert not sample.is_all
    assert sample.from_id == answered[2]
    assert comparisons_of(sample) == answered[2:4] * 2


def test_sample_distinguishes_labels_of_rankings(store, experiment_id, answered):
    ranked = NewLabel(answered[4], Answer.LEFT, "Ada", details={"ranking": "one"})
    store.labels.add_many([ranked])
    labels = store.labels.sample(experiment_id, 100).labels
    assert [label.is_ranked for label in labels] == [False] * 8 + [True]


def test_sample_includes_older_gold_comparisons(store, experiment_id, answered):
    store.comparisons.set_gold(answered[0], Answer.RIGHT)
    sample = store.labels.sample(experiment_id, 1)
    assert comparisons_of(sample) == [answered[0], answered[3]] * 2
    assert (sample.from_id, sample.gold) == (answered[3], {answered[0]: Answer.RIGHT})


def test_answers_are_counted_for_all_labelers_beyond_sample(store, experiment_id, answered):
    ids = {each.name: each.id for each in store.labelers.all()}
    store.labels.add(answered[0], None, "Ben")
    counted = store.labels.sample(experiment_id, 1).num_answered
    assert counted == {ids["Ada"]: 4, ids["Ben"]: 3}
