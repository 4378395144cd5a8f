"""Tests of rankings of several clips, on SQLite and on PostgreSQL."""

from itertools import combinations
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.clips.answer import Answer, pairwise_answers
from rl_teacher.common.errors import BadRanking, RankingNotFound
from rl_teacher.store.records import NewRanking
from tests.store.comparisons import ENV_ID, ask_and_show, clip, pair, shown


@pytest.fixture
def store(timed_store):
    return timed_store


def add(store, experiment_id, *groups, left_out=(), labeler="Ada", request_id=None):
    ranking = NewRanking(labeler, request_id or uuid4(), groups, left_out)
    store.rankings.add(experiment_id, ranking)
    return ranking.request_id


def current(store, experiment_id):
    return [each for each in store.labels.export(experiment_id) if each.is_current]


def order_of(label):
    """Return the clips of a label from best to worst."""
    sides = (label.left_hash, label.right_hash)
    return sides[::-1] if label.answer == Answer.RIGHT else sides


def counts(store):
    view = store.experiments.get("human-175")
    return view.asked, view.answered, view.waiting


@given(st.lists(st.integers(0, 4), min_size=2, max_size=5))
def test_ordering_yields_consistent_answer_of_every_pair(places):
    place = {f"clip {number}": each for number, each in enumerate(places)}
    clips, num_clips = list(place), len(place)
    groups = [[each for each in clips if place[each] == value] for value in sorted({*places})]
    answers = pairwise_answers(groups)
    assert {frozenset(each) for each in answers} == set(map(frozenset, combinations(clips, 2)))
    assert len(answers) == num_clips * (num_clips - 1) // 2
    for (left, right), answer in answers.items():
        expected = Answer.EQUAL if place[left] == place[right] else Answer.LEFT
        assert (place[left] <= place[right], answer) == (True, expected)


class TestAdding:
    def test_ranking_answers_held_comparisons_and_adds_the_other_pairs(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 0, 1, step=700)
        store.leases.claim(experiment_id, "Ada", 2)
        (a, b), (c, d) = pair(0), pair(1)
        ranking_id = add(store, experiment_id, [d], [a, b], [c])
        labels = current(store, experiment_id)
        assert {each.comparison_id for each in labels if each.lease == "held"} == set(ids)
        assert sorted(each.comparison_number for each in labels) == [1, 2, 3, 4, 5, 6]
        assert {each.asked_at_step for each in labels} == {700}
        assert {each.details["ranking"] for each in labels} == {str(ranking_id)}
        decided = {order_of(each) for each in labels if each.answer != Answer.EQUAL}
        assert decided == {(d, a), (d, b), (d, c), (a, c), (b, c)}
        assert counts(store) == (6, 6, 0)
        assert store.leases.claim(experiment_id, "Ada", 9) == []

    def test_comparison_with_clip_left_out_cannot_be_told(self, store, experiment_id):
        [first, second] = ask_and_show(store, experiment_id, 0, 1)
        store.leases.claim(experiment_id, "Ada", 2)
        (a, b), (c, d) = pair(0), pair(1)
        add(store, experiment_id, [a], [b], [c], left_out=[d])
        answers = {each.comparison_id: each.answer for each in current(store, experiment_id)}
        assert len(answers) == 4
        assert (answers[first], answers[second]) == (Answer.LEFT, Answer.CANNOT_TELL)

    def test_pair_that_was_asked_in_other_order_is_not_added_again(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 0, 1)
        (a, b), (c, d) = pair(0), pair(1)
        for each in (a, b, c, d):
            store.clips.publish({each: shown(each)})
        [reverse] = store.comparisons.add(experiment_id, [(c, a)], ENV_ID, 30, 10)
        assert len(store.leases.claim(experiment_id, "Ada", 2)) == 2
        add(store, experiment_id, [a], [b], [c], [d])
        labels = {each.comparison_id: each for each in current(store, experiment_id)}
        assert len(labels) == 6
        assert set(ids) < set(labels)
        assert labels[reverse].answer == Answer.RIGHT

    def test_repeated_request_is_stored_once(self, store, experiment_id):
        ask_and_show(store, experiment_id, 0, 1)
        store.leases.claim(experiment_id, "Ada", 2)
        ranking = NewRanking("Ada", uuid4(), [[each] for each in (*pair(0), *pair(1))])
        first = store.rankings.add(experiment_id, ranking)
        assert store.rankings.add(experiment_id, ranking) == first
        assert len(store.labels.export(experiment_id)) == 6

    def test_different_ranking_under_known_request_id_is_refused(self, store, experiment_id):
        ask_and_show(store, experiment_id, 0, 1)
        store.leases.claim(experiment_id, "Ada", 2)
        (a, b), (c, d) = pair(0), pair(1)
        ranking_id = add(store, experiment_id, [a], [b], [c], left_out=[d])
        for groups, left_out in (
            (([b], [a], [c]), [d]),
            (([a, b], [c]), [d]),
            (([a], [b]), [c, d]),
            (([a], [b], [c], [d]), []),
        ):
            with pytest.raises(BadRanking, match="request_id"):
                add(store, experiment_id, *groups, left_out=left_out, request_id=ranking_id)
        add(store, experiment_id, [a], [b], [c], left_out=[d], request_id=ranking_id)
        assert len(store.labels.export(experiment_id)) == 4


class TestRefusal:
    @pytest.fixture(autouse=True)
    def _held(self, store, experiment_id):
        ask_and_show(store, experiment_id, *range(4))
        store.leases.claim(experiment_id, "Ada", 3)

    @pytest.mark.parametrize(
        ("groups", "left_out", "reason"),
        [
            ([[pair(0)[0]]], [], "1 clips"),
            ([[], [*pair(0)]], [], "empty"),
            ([[*pair(0)], [pair(0)[0]]], [], "twice"),
            ([[*pair(0)]], [pair(0)[0]], "twice"),
            ([[*pair(0), *pair(1), *pair(2)]], [], "6 clips"),
            ([[*pair(0)], [clip("unknown")]], [], "leased to you"),
            ([[*pair(0)], [pair(3)[0]]], [], "leased to you"),
            ([[pair(0)[0]], [pair(1)[0]]], [], "both clips"),
        ],
    )
    def test_invalid_ranking_is_refused_and_leaves_no_trace(
        self, store, experiment_id, groups, left_out, reason
    ):
        before = counts(store)
        with pytest.raises(BadRanking, match=reason):
            add(store, experiment_id, *groups, left_out=left_out)
        assert store.labels.export(experiment_id) == []
        assert counts(store) == before


class TestWithdrawing:
    def test_withdrawn_ranking_is_leased_and_can_be_ranked_again(self, store, experiment_id):
        ask_and_show(store, experiment_id, 0, 1)
        store.leases.claim(experiment_id, "Ada", 2)
        clips = [*pair(0), *pair(1)]
        ranking_id = add(store, experiment_id, *([each] for each in clips))
        claimed = store.rankings.withdraw(experiment_id, "Ada", ranking_id)
        assert counts(store) == (6, 0, 6)
        assert current(store, experiment_id) == []
        assert len(claimed) == 6
        assert store.leases.claim(experiment_id, "Bob", 9) == []
        again = store.rankings.withdraw(experiment_id, "Ada", ranking_id)
        assert [each.lease for each in again] == [each.lease for each in claimed]
        add(store, experiment_id, *([each] for each in reversed(clips)))
        labels = current(store, experiment_id)
        assert {order_of(each) for each in labels} == set(combinations(clips[::-1], 2))
        assert store.rankings.withdraw(experiment_id, "Ada", ranking_id) == []
        assert current(store, experiment_id) == labels

    def test_answer_given_since_is_kept(self, store, experiment_id):
        [first] = ask_and_show(store, experiment_id, 0)
        store.leases.claim(experiment_id, "Ada", 1)
        ranking_id = add(store, experiment_id, *([each] for each in pair(0)))
        store.labels.add(first, Answer.EQUAL, "Ada")
        store.rankings.withdraw(experiment_id, "Ada", ranking_id)
        assert [each.answer for each in current(store, experiment_id)] == [Answer.EQUAL]

    def test_other_labelers_ranking_is_not_found(self, store, experiment_id):
        ask_and_show(store, experiment_id, 0)
        store.leases.claim(experiment_id, "Ada", 1)
        ranking_id = add(store, experiment_id, *([each] for each in pair(0)))
        for labeler, experiment in (("Bob", experiment_id), ("Ada", experiment_id + 1)):
            with pytest.raises(RankingNotFound):
                store.rankings.withdraw(experiment, labeler, ranking_id)
        assert counts(store) == (1, 1, 0)

    def test_excluded_labeler_who_withdraws_holds_no_comparison(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 0)
        store.leases.claim(experiment_id, "Ada", 1)
        ranking_id = add(store, experiment_id, *([each] for each in pair(0)))
        store.labelers.set_excluded("Ada", is_excluded=True)
        assert store.rankings.withdraw(experiment_id, "Ada", ranking_id) == []
        assert [each.comparison.id for each in store.leases.claim(experiment_id, "Bob", 9)] == ids
