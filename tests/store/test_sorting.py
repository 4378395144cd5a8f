"""Sorting by many labelers at once, on both database systems."""

import threading
from dataclasses import replace

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.store import comparisons, labels
from rl_teacher.store.media import SegmentFiles
from rl_teacher.teachers.teacher import human_teacher
from tests.queries.sorting import ENV_ID, TREE, Sorting
from tests.store.comparisons import shown

LEFT, RIGHT = Answer.LEFT, Answer.RIGHT


def test_ten_labelers_sort_at_the_same_time_and_share_no_comparison(tmp_path, url):
    sort = Sorting(tmp_path, url, replace(TREE, max_clips=20), human_teacher)
    num_answers, lock, is_done = [], threading.Lock(), threading.Event()

    def label(name):
        while not is_done.is_set():
            for claimed in sort.store.leases.claim(sort.experiment_id, name, 1):
                comparison = claimed.comparison
                files = SegmentFiles(sort.queue._store.segments.folder)
                hashes = (comparison.left.content_hash, comparison.right.content_hash)
                left, right = (files.load(each).true_return for each in hashes)
                answer = LEFT if left > right else RIGHT
                sort.store.labels.add(comparison.id, answer, name)
                with lock:
                    num_answers.append(comparison.id)
            is_done.wait(0.02)

    threads = [threading.Thread(target=label, args=(f"guest {i}",)) for i in range(10)]
    for each in threads:
        each.start()
    try:
        while not sort.queue.num_asked or sort.sorter._order.pending:
            pairs = sort.ask(13 - sort.queue.num_waiting)
            sort.store.clips.publish(
                {s.content_hash: shown(s.content_hash, env_id=ENV_ID) for p in pairs for s in p}
            )
    finally:
        is_done.set()
        for each in threads:
            each.join()
    sort.queue.read_answers()
    truth = sort.true_returns()
    order = [clip for (clip,) in sort.sorter._order.groups]
    assert sorted(truth) == truth[order].tolist()
    assert len(set(num_answers)) == len(num_answers) == sort.queue.num_answered
    sort.close()


class Interrupted(Exception):
    """Raised in the middle of a transaction."""


def interrupt(*_):
    raise Interrupted


def test_interrupted_step_of_sorting_leaves_no_comparison_and_no_answer(tmp_path, url, monkeypatch):
    sort = Sorting(tmp_path, url, TREE, human_teacher)
    store, experiment_id = sort.store, sort.experiment_id
    with monkeypatch.context() as patch:
        patch.setattr(comparisons, "initialise_counts", interrupt)
        with pytest.raises(Interrupted):
            sort.ask(3)
    assert store.comparisons.pairs(experiment_id) == []
    sort.start(TREE)  # as after a restart
    sort.ask(3)
    asked = store.comparisons.pairs(experiment_id)
    assert len(asked) == len({each.id for each in asked}) > 0
    with monkeypatch.context() as patch:
        patch.setattr(labels, "recount", interrupt)
        with pytest.raises(Interrupted):
            store.labels.add(asked[0].id, LEFT, "owner")
    assert store.labels.since(experiment_id, 0) == []
    store.labels.add(asked[0].id, LEFT, "owner")
    assert [each.answer for each in store.labels.since(experiment_id, 0)] == [LEFT]
    sort.close()
