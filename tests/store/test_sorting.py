"""Sorting by many labelers at once, on both database systems."""

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.store import comparisons, labels
from rl_teacher.teachers.teacher import human_teacher
from tests.queries.sorting import TREE, Sorting

LEFT, RIGHT = Answer.LEFT, Answer.RIGHT


class Interrupted(Exception):
    """Raised in the middle of a transaction."""


def interrupt(*_):
    raise Interrupted


def test_interrupted_step_of_sorting_leaves_no_comparison_and_no_answer(tmp_path, url, monkeypatch):
    sort = Sorting(tmp_path, url, TREE, human_teacher)
    store, experiment_id = sort.store, sort.experiment_id
    with monkeypatch.context() as patch:
        patch.setattr(comparisons, "set_wanted", interrupt)
        with pytest.raises(Interrupted):
            sort.ask(3)
    assert store.comparisons.asked(experiment_id) == []
    sort.start(TREE)  # as after a restart
    sort.ask(3)
    asked = store.comparisons.asked(experiment_id)
    assert len(asked) == len({each.id for each in asked}) > 0
    with monkeypatch.context() as patch:
        patch.setattr(labels, "recount", interrupt)
        with pytest.raises(Interrupted):
            store.labels.add(asked[0].id, LEFT, "owner")
    assert store.labels.since(experiment_id, 0) == []
    store.labels.add(asked[0].id, LEFT, "owner")
    assert [each.answer for each in store.labels.since(experiment_id, 0)] == [LEFT]
    sort.close()
