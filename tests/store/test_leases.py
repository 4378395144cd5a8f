"""Tests of leases of comparisons, on SQLite and on PostgreSQL."""

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event, insert, select, text, update

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import RankingNotFound
from rl_teacher.store import sql
from rl_teacher.store.assignment import NUM_RECENT
from rl_teacher.store.labels import row_of
from rl_teacher.store.leases import END, KEPT_AFTER_EXPIRY, LOCK_LEASES, MAX_LEASES
from rl_teacher.store.records import AssignmentPolicy, ClaimRequest, Control, NewLabel
from rl_teacher.store.sql import lock_labels
from rl_teacher.store.store import Store
from rl_teacher.store.tables import Comparison, Experiment, Label, Labeler, Lease
from tests.store.comparisons import ENV_ID, ask, ask_and_show, pair, rows_of, shown

NUM_RACES = 500


@pytest.fixture
def store(timed_store):
    return timed_store


def claimed_ids(claimed):
    return [each.comparison.id for each in claimed]


def answer(store, claimed, labeler, choice=Answer.LEFT):
    store.labels.add_many(
        [NewLabel(each.comparison.id, choice, labeler, lease=each.lease) for each in claimed]
    )


def kept(store, *columns):
    return rows_of(store, select(*columns).order_by(Label.id))


class TestClaiming:
    def test_comparison_is_leased_to_one_labeler(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(4))
        mine = store.leases.claim(experiment_id, "Ada", 2)
        theirs = store.leases.claim(experiment_id, "Bob", 9)
        assert (claimed_ids(mine), claimed_ids(theirs)) == (ids[:2], ids[2:])

    def test_claims_are_sorted_by_latest_step_then_order_asked(self, store, experiment_id):
        early = ask_and_show(store, experiment_id, 1, 2, step=100)
        late = ask_and_show(store, experiment_id, 3, 4, step=10**10)
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 9)) == [*late, *early]

    def test_reloaded_page_gets_same_leases(self, store, clock, experiment_id):
        ask_and_show(store, experiment_id, *range(5))
        before = store.leases.claim(experiment_id, "Ada", 2, lease_s=300.0)
        clock.advance(200)
        again = store.leases.claim(experiment_id, "Ada", 3, lease_s=300.0)
        assert [each.lease for each in again[:2]] == [each.lease for each in before]
        assert {each.expires_at - clock() for each in again} == {timedelta(seconds=300)}

    def test_excluded_comparison_is_left_out_and_stays_leased(self, store, clock, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(4))
        store.leases.claim(experiment_id, "Ada", 2)
        clock.advance(298.9)
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 1, exclude=ids[:2])) == ids[2:3]
        clock.advance(298.9)
        assert claimed_ids(store.leases.claim(experiment_id, "Bob", 9)) == ids[3:]

    def test_held_comparison_whose_clip_was_hidden_is_not_returned(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 1, 2)
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 1)) == ids[:1]
        store.clips.hide([pair(1)[0]])
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 1)) == ids[1:]

    def test_unrendered_comparison_is_not_leased(self, store, experiment_id):
        ask(store, experiment_id, 1)
        assert store.leases.claim(experiment_id, "Ada", 9) == []

    def test_experiments_are_claimed_separately(self, store, experiment_id):
        other_id = store.experiments.ensure("other", ENV_ID, {})
        [mine] = ask_and_show(store, experiment_id, 1)
        [other] = ask_and_show(store, other_id, 2)
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 9)) == [mine]
        assert claimed_ids(store.leases.claim(other_id, "Ada", 9)) == [other]
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 9)) == [mine]

    def test_comparison_for_two_labelers_is_leased_to_two_and_no_third(self, store, experiment_id):
        policy = AssignmentPolicy(overlap=1.0, overlap_labelers=2)
        store.experiments.set_assignment(experiment_id, policy)
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        first = store.leases.claim(experiment_id, "Ada", 9)
        assert claimed_ids(store.leases.claim(experiment_id, "Bob", 9)) == [comparison_id]
        assert store.leases.claim(experiment_id, "Eve", 9) == []
        answer(store, first, "Ada")
        assert store.leases.claim(experiment_id, "Eve", 9) == []
        assert store.leases.claim(experiment_id, "Ada", 9) == []

    def test_number_of_leases_per_labeler_is_bounded(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(MAX_LEASES + 5))
        held = claimed_ids(store.leases.claim(experiment_id, "Eve", 10**6))
        assert store.leases.claim(experiment_id, "Eve", 10, exclude=held) == []
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 10)) == ids[MAX_LEASES:]

    def test_unknown_experiment_has_nothing_to_claim(self, store):
        assert store.leases.claim(999, "Ada", 9) == []


LABELERS = ("Ada", "Bob", "Eve", "Zoë")


def prepare_claims(store, name, seed):
    """Create an experiment with random answers, leases and gold comparisons.

    Returns:
        The ids of its comparisons, and requests of all labelers.
    """
    rng = random.Random(seed)
    policy = AssignmentPolicy(
        overlap=float(rng.random() < 0.6),
        overlap_labelers=rng.randint(2, 3),
        gold=rng.choice([0.0, 0.4]),
    )
    experiment_id = store.experiments.ensure(name, ENV_ID, {})
    store.experiments.set_assignment(experiment_id, policy)
    ids = [
        each
        for step in range(4)
        for each in ask_and_show(store, experiment_id, *range(6 * step, 6 * step + 6), step=step)
    ]
    store.comparisons.set_gold(ids[3], Answer.LEFT)
    for labeler in LABELERS:
        for each in rng.sample(ids, rng.randint(0, 8)):
            store.labels.add(each, Answer.LEFT, labeler)
        store.leases.claim(experiment_id, labeler, rng.randint(0, 2))
    return ids, [
        ClaimRequest(experiment_id, labeler, rng.randint(1, 6), rng.sample(ids, rng.randint(0, 6)))
        for labeler in rng.sample(LABELERS, len(LABELERS))
    ]


class TestClaimsTogether:
    @pytest.mark.parametrize(
        "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))]
    )
    def test_claims_together_choose_what_claims_in_turn_choose(self, store, seed):
        in_turn, requests = prepare_claims(store, "in turn", seed)
        expected = [
            store.leases.claim(each.experiment_id, each.labeler, each.limit, each.exclude)
            for each in requests
        ]
        together, requests = prepare_claims(store, "together", seed)
        chosen = store.leases.claim_many(requests)
        assert [[together.index(each) for each in claimed_ids(these)] for these in chosen] == [
            [in_turn.index(each) for each in claimed_ids(these)] for these in expected
        ]
        assert sum(map(len, chosen)) > 0

    def test_experiments_are_claimed_together(self, store, experiment_id):
        other_id = store.experiments.ensure("other", ENV_ID, {})
        [mine], [other] = (ask_and_show(store, each, 1) for each in (experiment_id, other_id))
        requests = [
            ClaimRequest(other_id, "Ada", 9),
            ClaimRequest(999, "Bob", 9),
            ClaimRequest(experiment_id, "Eve", 9),
        ]
        claimed = store.leases.claim_many(requests)
        assert list(map(claimed_ids, claimed)) == [[other], [], [mine]]

    def test_two_requests_of_one_labeler_get_the_same_leases(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(5))
        requests = [ClaimRequest(experiment_id, name, 2) for name in ("Ada", "Bob", "Ada")]
        first, theirs, again = store.leases.claim_many(requests)
        assert [each.lease for each in again] == [each.lease for each in first]
        assert claimed_ids(first) + claimed_ids(theirs) == ids[:4]

    def test_excluded_labeler_takes_nothing_from_the_others(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 1)
        store.labelers.add("Eve")
        store.labelers.set_excluded("Eve", is_excluded=True)
        requests = [ClaimRequest(experiment_id, name, 1) for name in ("Eve", "Ada")]
        assert list(map(claimed_ids, store.leases.claim_many(requests))) == [[], ids]

    def test_leases_in_other_experiments_are_not_extended(self, store, clock, experiment_id):
        other_id = store.experiments.ensure("other", ENV_ID, {})
        for each in (experiment_id, other_id):
            ask_and_show(store, each, *range(4))
        [before] = store.leases.claim(other_id, "Ada", 1)
        clock.advance(100)
        store.leases.claim_many(
            [ClaimRequest(experiment_id, "Ada", 1), ClaimRequest(other_id, "Bob", 1)]
        )
        [(expires_at,)] = rows_of(
            store, select(Lease.expires_at).where(Lease.token == before.lease)
        )
        assert expires_at == before.expires_at

    def test_no_requests_claim_nothing(self, store):
        assert store.leases.claim_many([]) == []


class TestTime:
    def test_expired_lease_returns_comparison_to_queue(self, store, clock, experiment_id):
        ids = ask_and_show(store, experiment_id, 1)
        store.leases.claim(experiment_id, "Ada", 1, lease_s=300.0)
        clock.advance(299.999)
        assert store.leases.claim(experiment_id, "Bob", 1) == []
        clock.advance(0.001)
        assert claimed_ids(store.leases.claim(experiment_id, "Bob", 1)) == ids

    def test_renewal_extends_lease(self, store, clock, experiment_id):
        ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1, lease_s=300.0)
        clock.advance(298.9)
        renewed = store.leases.renew("Ada", [mine.lease], lease_s=300.0)
        assert renewed[mine.lease] > mine.expires_at
        clock.advance(298.9)
        assert store.leases.claim(experiment_id, "Bob", 1) == []

    def test_lease_is_not_renewed_in_its_last_second(self, store, clock, experiment_id):
        """Another machine, whose clock is ahead, may be leasing it to another labeler."""
        ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1, lease_s=300.0)
        clock.advance(299.5)
        assert store.leases.renew("Ada", [mine.lease]) == {}
        assert store.leases.claim(experiment_id, "Ada", 1) == []
        answer(store, [mine], "Ada")
        assert kept(store, Label.lease) == [("held",)]

    def test_expired_lease_cannot_be_renewed(self, store, clock, experiment_id):
        ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1, lease_s=300.0)
        clock.advance(300)
        assert store.leases.renew("Ada", [mine.lease, uuid4()]) == {}

    def test_lease_is_not_renewed_for_ever(self, store, clock, experiment_id):
        """After an hour the comparison is free for others, and then for the same labeler again."""
        ids = ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1)
        for _ in range(59):
            clock.advance(60)
            assert store.leases.renew("Ada", [mine.lease])
            store.leases.release("Ada", [mine.lease])
            assert claimed_ids(store.leases.claim(experiment_id, "Ada", 1)) == ids
        clock.advance(60)
        assert store.leases.renew("Ada", [mine.lease]) == {}
        assert store.leases.claim(experiment_id, "Ada", 1) == []
        clock.advance(300)
        assert store.leases.claim(experiment_id, "Ada", 1) == []
        [theirs] = store.leases.claim(experiment_id, "Bob", 1)
        assert theirs.comparison.id == mine.comparison.id
        store.leases.release("Bob", [theirs.lease])
        clock.advance(301)
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 1)) == ids

    def test_expired_lease_is_renewed_under_same_token(self, store, clock, experiment_id):
        ask_and_show(store, experiment_id, 1)
        [before] = store.leases.claim(experiment_id, "Ada", 1)
        clock.advance(10_000)
        [again] = store.leases.claim(experiment_id, "Ada", 1)
        assert again.lease == before.lease
        answer(store, [before], "Ada")
        assert kept(store, Label.lease) == [("held",)]

    def test_old_leases_are_deleted(self, store, clock, experiment_id):
        first, _ = ask_and_show(store, experiment_id, 1, 2)
        store.leases.claim(experiment_id, "Ada", 9)
        clock.advance(KEPT_AFTER_EXPIRY.total_seconds() + 301)
        store.labels.add(first, Answer.LEFT, "Bob")
        assert rows_of(store, select(Lease.token)) == []


class TestPendingClips:
    def test_clips_are_pending_until_labeler_answers(self, store, experiment_id):
        answered, _, _ = ask_and_show(store, experiment_id, *range(3))
        store.labels.add(answered, Answer.LEFT, "Ada")
        rest = {*pair(1), *pair(2)}
        assert store.leases.pending_clips(experiment_id, "Ada") == rest
        # One label is wanted, so no other labeler is asked about the answered comparison.
        assert store.leases.pending_clips(experiment_id, "Bob") == rest
        store.labels.add(answered, None, "Ada")
        assert store.leases.pending_clips(experiment_id, "Ada") == rest | {*pair(0)}

    def test_shared_and_gold_comparisons_are_pending_for_labelers_without_answer(
        self, store, experiment_id
    ):
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(1.0, 2))
        [shared] = ask_and_show(store, experiment_id, 0)
        store.experiments.set_assignment(experiment_id, AssignmentPolicy())
        [gold] = ask_and_show(store, experiment_id, 1)
        store.comparisons.set_gold(gold, Answer.LEFT)
        for each in (shared, gold):
            store.labels.add(each, Answer.LEFT, "Ada")
        assert store.leases.pending_clips(experiment_id, "Ada") == set()
        assert store.leases.pending_clips(experiment_id, "Bob") == {*pair(0), *pair(1)}

    def test_leased_repeat_is_pending_until_lease_expires(self, store, clock, experiment_id):
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(repeats=1.0))
        ids = ask_and_show(store, experiment_id, *range(NUM_RECENT + 1))
        for each in ids:
            store.labels.add(each, Answer.LEFT, "Ada")
        assert store.leases.pending_clips(experiment_id, "Ada") == set()
        [repeat] = store.leases.claim(experiment_id, "Ada", 1, lease_s=300.0)
        assert repeat.comparison.id == ids[0]
        assert store.leases.pending_clips(experiment_id, "Ada") == {*pair(0)}
        clock.advance(300)
        assert store.leases.pending_clips(experiment_id, "Ada") == set()


class TestAnswering:
    def test_answer_ends_lease(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 1, 2)
        mine = store.leases.claim(experiment_id, "Ada", 1)
        answer(store, mine, "Ada")
        assert kept(store, Label.lease, Label.purpose) == [("held", "answer")]
        assert rows_of(store, select(Lease.token)) == []
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 9)) == ids[1:]

    def test_late_answer_and_intermediate_answer_are_both_stored(self, store, clock, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        late = store.leases.claim(experiment_id, "Ada", 1)
        clock.advance(301)
        answer(store, store.leases.claim(experiment_id, "Bob", 1), "Bob", Answer.RIGHT)
        answer(store, late, "Ada", Answer.LEFT)
        assert kept(store, Label.answer, Label.lease) == [("right", "held"), ("left", "late")]
        votes = store.labels.votes([comparison_id])[comparison_id]
        assert sorted(votes.values()) == ["left", "right"]

    def test_answer_without_lease_is_stored_as_such(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "Ada")
        assert kept(store, Label.lease) == [("none",)]

    def test_lease_of_another_labeler_is_not_ended(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        [adas] = store.leases.claim(experiment_id, "Ada", 1)
        answer(store, [adas], "Eve")
        assert kept(store, Label.lease) == [("late",)]
        assert store.leases.renew("Ada", [adas.lease]) != {}
        assert store.leases.renew("Eve", [adas.lease]) == {}
        store.leases.release("Eve", [adas.lease])
        assert store.leases.renew("Ada", [adas.lease]) != {}
        assert lease_and_purpose(store, "Eve", comparison_id) == (None, None)
        assert comparison_id in store.labels.votes([comparison_id])

    def test_second_answer_under_one_lease_is_refused(self, store, experiment_id):
        ask_and_show(store, experiment_id, 1)
        [held] = store.leases.claim(experiment_id, "Ada", 1)
        labels = [
            NewLabel(held.comparison.id, choice, "Ada", lease=held.lease)
            for choice in (Answer.LEFT, Answer.RIGHT)
        ]
        assert store.labels.add_many(labels) == {labels[1].request_id: Answer.LEFT}
        assert kept(store, Label.answer, Label.lease) == [("left", "held")]

    def test_find_returns_lease_of_each_labeler(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 1, 2)
        [adas], [eves] = (store.leases.claim(experiment_id, name, 1) for name in ("Ada", "Eve"))
        found = store.leases.find(
            [
                ("Ada", adas.comparison.id),
                ("Ada", eves.comparison.id),
                ("Eve", eves.comparison.id),
                ("Ada", 10_000),
                ("Ada", -1),
            ]
        )
        assert {each: about.lease for each, about in found.items()} == {
            ("Ada", adas.comparison.id): adas.lease,
            ("Eve", eves.comparison.id): eves.lease,
            ("Ada", eves.comparison.id): None,
        }
        assert {about.comparison.id for about in found.values()} == set(ids)

    def test_lease_of_another_comparison_is_ignored(self, store, experiment_id):
        first, second = ask_and_show(store, experiment_id, 1, 2)
        [mine] = store.leases.claim(experiment_id, "Ada", 1)
        assert mine.comparison.id == first
        store.labels.add_many([NewLabel(second, Answer.LEFT, "Ada", lease=mine.lease)])
        assert kept(store, Label.lease) == [("late",)]
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 9)) == [first]

    def test_second_answer_after_used_lease_changes_nothing(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        mine = store.leases.claim(experiment_id, "Ada", 1)
        answer(store, mine, "Ada", Answer.LEFT)
        answer(store, mine, "Ada", Answer.RIGHT)
        assert kept(store, Label.lease) == [("held",)]
        assert store.labels.answers([comparison_id]) == {comparison_id: Answer.LEFT}
        [ada] = store.labelers.all()
        assert ada.num_labels == 1

    def test_resent_answer_changes_nothing(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1)
        label = NewLabel(comparison_id, Answer.LEFT, "Ada", UUID(int=1), lease=mine.lease)
        for _ in range(3):
            store.labels.add_many([label])
        assert kept(store, Label.lease) == [("held",)]
        [ada] = store.labelers.all()
        assert ada.num_labels == 1

    def test_label_that_is_sent_twice_at_once_is_stored(self, store, experiment_id):
        """A page that is reloaded while it sends a label sends it again."""
        ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1)
        label = NewLabel(mine.comparison.id, Answer.LEFT, "Ada", lease=mine.lease)
        assert store.labels.add_many([label, label]) == {}
        assert kept(store, Label.request_id, Label.lease) == [(label.request_id, "held")]

    def test_different_labels_with_one_request_id_are_refused(self, store, experiment_id):
        ask_and_show(store, experiment_id, 1, 2)
        claimed = store.leases.claim(experiment_id, "Ada", 2)
        request_id = uuid4()
        labels = [
            NewLabel(each.comparison.id, Answer.LEFT, "Ada", request_id, lease=each.lease)
            for each in claimed
        ]
        assert store.labels.add_many(labels) == {request_id: None}
        assert kept(store, Label.id) == []
        assert store.leases.claim(experiment_id, "Ada", 2) == claimed

    def test_withdrawn_comparison_can_be_claimed_again(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        answer(store, store.leases.claim(experiment_id, "Ada", 1), "Ada")
        assert store.leases.claim(experiment_id, "Ada", 1) == []
        store.labels.add(comparison_id, None, "Ada")
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 1)) == [comparison_id]

    def test_released_comparison_can_be_claimed_at_once(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1)
        store.leases.release("Ada", [mine.lease])
        assert claimed_ids(store.leases.claim(experiment_id, "Bob", 1)) == ids

    def test_excluded_labeler_has_no_leases_and_gets_none(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, 1)
        store.leases.claim(experiment_id, "Ada", 1)
        store.labelers.set_excluded("Ada", is_excluded=True)
        assert store.leases.claim(experiment_id, "Ada", 1) == []
        assert claimed_ids(store.leases.claim(experiment_id, "Bob", 1)) == ids


def lease_and_purpose(store, labeler, comparison_id):
    """Return the lease of a comparison by a labeler, and its purpose."""
    found = store.leases.find([(labeler, comparison_id)])[labeler, comparison_id]
    return found.lease, found.purpose


class TestRepeatsAndGold:
    def test_repeat_is_older_answered_comparison(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(NUM_RECENT + 3))
        for each in ids[:-1]:
            store.labels.add(each, Answer.LEFT, "Ada")
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(repeats=1.0))
        claimed = store.leases.claim(experiment_id, "Ada", 3)
        assert [each.purpose for each in claimed] == ["repeat", "repeat", "answer"]
        assert set(claimed_ids(claimed[:2])) == set(ids[:2])
        for each, purpose in ((claimed[0], "repeat"), (claimed[2], "answer")):
            held = lease_and_purpose(store, "Ada", each.comparison.id)
            assert held == (each.lease, purpose)

    def test_repeat_is_claimed_once_and_not_counted(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(NUM_RECENT + 1))
        for each in ids:
            store.labels.add(each, Answer.LEFT, "Ada")
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(repeats=1.0))
        repeated = store.leases.claim(experiment_id, "Ada", 9)
        assert claimed_ids(repeated) == ids[:1]
        answer(store, repeated, "Ada", Answer.RIGHT)
        assert store.labels.answers(ids) == dict.fromkeys(ids, Answer.LEFT)
        assert kept(store, Label.purpose)[-1] == ("repeat",)
        assert len(store.labels.since(experiment_id, 0)) == len(ids)
        assert store.labels.count_of_labeler(experiment_id, "Ada") == len(ids)
        # The repeat is now among her most recent comparisons, so that another one is old enough.
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 9)) == ids[1:2]

    def test_late_repeat_remains_repeat(self, store, clock, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(NUM_RECENT + 1))
        for each in ids:
            store.labels.add(each, Answer.LEFT, "Ada")
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(repeats=1.0))
        repeated = store.leases.claim(experiment_id, "Ada", 1)
        clock.advance(10_000)
        assert lease_and_purpose(store, "Ada", ids[0]) == (repeated[0].lease, "repeat")
        answer(store, repeated, "Ada", Answer.RIGHT)
        assert kept(store, Label.purpose, Label.lease)[-1] == ("repeat", "late")
        assert store.labels.answers(ids[:1]) == {ids[0]: Answer.LEFT}

    def test_unsolicited_answer_does_not_end_repeat(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(NUM_RECENT + 1))
        for each in ids:
            store.labels.add(each, Answer.LEFT, "Ada")
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(repeats=1.0))
        [repeated] = store.leases.claim(experiment_id, "Ada", 1)
        store.labels.add(ids[0], None, "Ada")
        store.labels.add(ids[0], Answer.EQUAL, "Ada")
        assert repeated.lease in store.leases.renew("Ada", [repeated.lease])

    def repeated(self, store, experiment_id):
        """Ask Ada a repeat of a comparison and return her differing second label."""
        ids = ask_and_show(store, experiment_id, *range(NUM_RECENT + 1))
        for each in ids:
            store.labels.add(each, Answer.LEFT, "Ada")
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(repeats=1.0))
        [repeated] = store.leases.claim(experiment_id, "Ada", 1)
        label = NewLabel(ids[0], Answer.RIGHT, "Ada", lease=repeated.lease)
        store.labels.add_many([label])
        return label

    def purposes(self, store, comparison_id):
        return rows_of(
            store,
            select(Label.purpose, Label.answer)
            .where(Label.comparison_id == comparison_id)
            .order_by(Label.id),
        )

    def test_withdrawing_repeat_keeps_first_answer(self, store, experiment_id):
        repeat = self.repeated(store, experiment_id)
        store.labels.add(repeat.comparison_id, None, "Ada")
        store.labels.add(repeat.comparison_id, Answer.EQUAL, "Ada")
        assert self.purposes(store, repeat.comparison_id) == [
            ("answer", "left"),
            ("repeat", "right"),
            ("repeat", None),
            ("repeat", "equal"),
        ]
        assert store.labels.answers([repeat.comparison_id]) == {repeat.comparison_id: Answer.LEFT}
        assert store.labels.count_of_labeler(experiment_id, "Ada") == NUM_RECENT + 1

    def test_repeat_can_be_withdrawn_in_same_request(self, store, experiment_id):
        repeat = self.repeated(store, experiment_id)
        # The first label is sent again, as after a lost connection.
        withdrawal = NewLabel(repeat.comparison_id, None, "Ada")
        for _ in range(2):
            store.labels.add_many([repeat, withdrawal])
            assert self.purposes(store, repeat.comparison_id)[1:] == [
                ("repeat", "right"),
                ("repeat", None),
            ]

    def test_second_withdrawal_after_repeat_withdraws_first_answer(self, store, experiment_id):
        repeat = self.repeated(store, experiment_id)
        store.labels.add_many([NewLabel(repeat.comparison_id, None, "Ada") for _ in range(2)])
        assert self.purposes(store, repeat.comparison_id)[2:] == [
            ("repeat", None),
            ("answer", None),
        ]
        assert store.labels.answers([repeat.comparison_id]) == {}

    def test_answer_changed_after_repeat_is_stored(self, store, experiment_id):
        repeat = self.repeated(store, experiment_id)
        store.labels.add(repeat.comparison_id, Answer.EQUAL, "Ada")
        assert self.purposes(store, repeat.comparison_id)[-1] == ("answer", "equal")

    def test_repeat_of_another_labeler_is_independent(self, store, experiment_id):
        repeat = self.repeated(store, experiment_id)
        store.labels.add(repeat.comparison_id, Answer.LEFT, "Bob")
        store.labels.add(repeat.comparison_id, None, "Bob")
        assert self.purposes(store, repeat.comparison_id)[2:] == [
            ("answer", "left"),
            ("answer", None),
        ]

    def test_gold_comparison_is_claimed_by_every_labeler_once(self, store, experiment_id):
        gold, plain = ask_and_show(store, experiment_id, 1, 2)
        store.comparisons.set_gold(gold, Answer.LEFT)
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(gold=1.0))
        for labeler in ("Ada", "Bob", "Eve"):
            [first, *_] = store.leases.claim(experiment_id, labeler, 1)
            assert (first.comparison.id, first.purpose) == (gold, "answer")
            answer(store, [first], labeler)
        assert len(store.labels.votes([gold])[gold]) == 3
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 9)) == [plain]

    def test_labeler_is_not_checked_with_gold_comparisons_of_the_practice(
        self, store, experiment_id
    ):
        ids = ask_and_show(store, experiment_id, *range(5))
        for each in ids:
            store.labels.add(each, Answer.LEFT, "owner")
        for each in ids[:4]:
            store.comparisons.set_gold(each, Answer.RIGHT)
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(gold=1.0))
        for _ in range(2):
            practised = store.comparisons.practise(experiment_id, "Ada")
            assert [view.id for view, _ in practised] == ids[:3]
            assert [gold for _, gold in practised] == [Answer.RIGHT] * 3
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 9)) == [ids[3]]
        assert claimed_ids(store.leases.claim(experiment_id, "Bob", 9)) == ids[:4]

    def test_practice_needs_three_gold_comparisons_with_all_labels(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(3))
        for each in ids:
            store.comparisons.set_gold(each, Answer.LEFT)
        for each in ids[:2]:
            store.labels.add(each, Answer.LEFT, "owner")
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(gold=1.0))
        assert store.comparisons.practise(experiment_id, "Ada") == []
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 9)) == ids

    def test_repeated_claim_returns_same_comparisons(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(40))
        for each in ids[:20]:
            store.labels.add(each, Answer.LEFT, "Ada")
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(repeats=0.3))
        one_by_one = []
        for _ in range(6):
            exclude = claimed_ids(one_by_one)
            one_by_one += store.leases.claim(experiment_id, "Ada", 1, exclude=exclude)
        store.leases.release("Ada", [each.lease for each in one_by_one])
        at_once = store.leases.claim(experiment_id, "Ada", 6)
        assert [each.purpose for each in at_once] == [each.purpose for each in one_by_one]
        assert {each.purpose for each in at_once} == {"answer", "repeat"}

    def test_share_of_repeats_matches_policy(self, store, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(260))
        for each in ids[:60]:
            store.labels.add(each, Answer.LEFT, "Ada")
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(repeats=0.2))
        purposes = Counter()
        for _ in range(20):
            claimed = store.leases.claim(experiment_id, "Ada", 10)
            purposes.update(each.purpose for each in claimed)
            answer(store, claimed, "Ada")
        # 200 draws at 0.2: mean 40, standard deviation 5.7; three deviations are allowed.
        assert 23 <= purposes["repeat"] <= 57


@pytest.mark.parametrize("wanted", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_racing_labelers_neither_duplicate_nor_lose_labels(url, wanted):
    """Each labeler uses a separate store, as two processes of a service do."""
    with Store.open(url, is_synced=False) as store:
        experiment_id = store.experiments.ensure("race", ENV_ID, {})
        store.experiments.set_assignment(
            experiment_id, AssignmentPolicy(overlap=float(wanted > 1), overlap_labelers=wanted)
        )
        ids = ask_and_show(store, experiment_id, *range(NUM_RACES // wanted))
        given = {"Ada": [], "Bob": []}
        both_are_there = threading.Barrier(len(given))

        def race(name):
            with Store.open(url, is_synced=False) as own:
                both_are_there.wait()
                while own.experiments.get("race").waiting and len(given[name]) < len(ids):
                    claimed = own.leases.claim(experiment_id, name, 2)
                    answer(own, claimed, name)
                    given[name] += claimed_ids(claimed)

        racers = [threading.Thread(target=race, args=(name,)) for name in given]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert Counter(given["Ada"] + given["Bob"]) == dict.fromkeys(ids, wanted)
        assert all(len(set(own)) == len(own) > 0 for own in given.values())
        assert kept(store, Label.lease) == [("held",)] * NUM_RACES
        view = store.experiments.get("race")
        assert (view.asked, view.answered, view.waiting) == (len(ids), len(ids), 0)


def test_concurrent_claims_are_disjoint(url):
    labelers = [f"labeler {number}" for number in range(8)]
    with Store.open(url, is_synced=False) as store:
        experiment_id = store.experiments.ensure("rush", ENV_ID, {})
        ids = ask_and_show(store, experiment_id, *range(24))
        claimed_by = {}
        all_are_there = threading.Barrier(6)

        def claim(*names):
            requests = [ClaimRequest(experiment_id, name, 3) for name in names]
            all_are_there.wait()
            for name, claimed in zip(names, store.leases.claim_many(requests), strict=True):
                claimed_by[name] = claimed_ids(claimed)

        # Half of the labelers claim alone, half in two batches.
        groups = [labelers[:2], labelers[2:4], *([name] for name in labelers[4:])]
        threads = [threading.Thread(target=claim, args=group) for group in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = sorted(each for ids_of_labeler in claimed_by.values() for each in ids_of_labeler)
        assert len(claimed_by) == len(labelers)
        assert len(taken) == len(set(taken))
        left_over = claimed_ids(store.leases.claim(experiment_id, "late", 99))
        assert sorted([*taken, *left_over]) == ids


def num_pages_of_claim(store, experiment_id, labeler):
    """Claim a comparison, and return the number of pages that finding it reads."""
    found = []

    def explain(connection, cursor, statement, parameters, *_):
        if "FOR NO KEY UPDATE OF comparisons" in statement:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
            [[[plan]]] = cursor.fetchall()
            found.append(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])

    event.listen(store.database.engine, "before_cursor_execute", explain)
    store.leases.claim(experiment_id, labeler, 1)
    event.remove(store.database.engine, "before_cursor_execute", explain)
    [num_pages] = found
    return num_pages


@pytest.mark.postgres
def test_claim_reads_few_pages_of_a_database_without_statistics(postgres_url):
    """With a join of labels and comparisons it would read 19,000."""
    labelers = [f"labeler {each}" for each in range(8)]
    with Store.open(postgres_url) as store:
        experiment_id = store.experiments.ensure("human-175", ENV_ID, {})
        ask_and_show(store, experiment_id, *range(1000))
        for _ in range(10):
            requests = [ClaimRequest(experiment_id, each, 1) for each in labelers]
            for labeler, claimed in zip(labelers, store.leases.claim_many(requests), strict=True):
                answer(store, claimed, labeler)
        assert num_pages_of_claim(store, experiment_id, labelers[0]) < 200


@pytest.mark.postgres
def test_postgresql_does_not_compile_queries(postgres_url):
    with Store.open(postgres_url) as store:
        assert store.database.scalar(text("SHOW jit")) == "off"


# --- order of locks ---


@pytest.fixture
def postgres_store(shared_postgres_url):
    with Store.open(shared_postgres_url) as opened:
        yield opened


@contextmanager
def waiting_call(connection, call):
    """Start a call in a thread, and let it reach the lock that a transaction holds."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        wait_for_lock(connection)
        yield future


def wait_for_lock(connection):
    """Wait until another transaction waits for a lock."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    deadline_s = time.monotonic() + 30
    while not connection.execute(waiting).scalar():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def ended_lease(store):
    """Return an expired lease of Ada."""
    experiment_id = store.experiments.ensure("human-175", ENV_ID, {})
    ask_and_show(store, experiment_id, 1)
    [claimed] = store.leases.claim(experiment_id, "Ada", 1, lease_s=-1.0)
    return experiment_id, claimed


def test_claim_does_not_wait_for_a_late_answer_that_is_being_stored(postgres_store):
    """The transaction of the answer waits for comparisons that the claim has locked."""
    experiment_id, claimed = ended_lease(postgres_store)
    with postgres_store.database.writing() as answering:
        answering.execute(END, {"tokens": [claimed.lease]})
        with ThreadPoolExecutor(1) as pool:
            claim = pool.submit(postgres_store.leases.claim, experiment_id, "Ada", 1)
            assert claim.result(timeout=30) == []
    [again] = postgres_store.leases.claim(experiment_id, "Ada", 1)
    assert again.comparison.id == claimed.comparison.id


def test_deleted_experiment_waits_for_labels_that_are_being_stored(postgres_store):
    _, claimed = ended_lease(postgres_store)
    label = NewLabel(claimed.comparison.id, Answer.LEFT, "Ada", lease=claimed.lease)
    row = row_of(label, postgres_store.labelers.id_of("Ada"), datetime.now(UTC))
    with postgres_store.database.writing() as answering:
        lock_labels(answering)
        answering.execute(select(Lease).with_for_update())
        with waiting_call(
            answering, lambda: postgres_store.experiments.delete("human-175")
        ) as gone:
            refused = postgres_store.labels.write(answering, [row], [label], datetime.now(UTC))
            assert refused == {}
            answering.commit()
            assert gone.result(timeout=30)


def test_withdrawn_ranking_does_not_block_an_exclusion(postgres_store):
    experiment_id, _ = ended_lease(postgres_store)
    store = postgres_store
    with store.database.writing() as excluding:
        lock_labels(excluding)

        def withdraw():
            with pytest.raises(RankingNotFound):
                store.rankings.withdraw(experiment_id, "Ada", uuid4())

        with waiting_call(excluding, withdraw) as withdrawn:
            excluding.execute(update(Labeler).values(excluded_at=datetime.now(UTC)))
            excluding.commit()
            withdrawn.result(timeout=30)


def test_withdrawal_locks_leases_in_the_order_of_their_tokens(postgres_store, monkeypatch):
    """Leases are renewed without `lock_labels`."""
    store = postgres_store
    monkeypatch.setattr(sql, "CHUNK", 1)
    experiment_id = store.experiments.ensure("human-175", ENV_ID, {})
    ask_and_show(store, experiment_id, 1, 2)
    claimed = store.leases.claim(experiment_id, "Ada", 2)
    first, last = sorted(claimed, key=lambda each: each.lease)
    ids = [last.comparison.id, first.comparison.id]
    with store.database.writing() as renewing:
        renewing.execute(LOCK_LEASES, {"tokens": [first.lease]})
        with waiting_call(renewing, lambda: store.comparisons.withdraw(ids)) as withdrawn:
            renewing.execute(LOCK_LEASES, {"tokens": [last.lease]})
            renewing.execute(select(Comparison.id).with_for_update(nowait=True))
            renewing.commit()
            assert withdrawn.result(timeout=30) == ids


def test_deleted_experiment_waits_for_a_claim(postgres_store):
    _, claimed = ended_lease(postgres_store)
    store = postgres_store
    with store.database.writing() as claiming:
        claiming.execute(LOCK_LEASES, {"tokens": [claimed.lease]})
        with waiting_call(claiming, lambda: store.experiments.delete("human-175")) as gone:
            # As the insertion of another lease does.
            claiming.execute(select(Comparison.id).with_for_update(read=True, key_share=True))
            claiming.commit()
            assert gone.result(timeout=30)


def test_commands_that_are_given_at_once_are_all_kept(postgres_store):
    store = postgres_store
    experiment_id = store.experiments.ensure("human-175", ENV_ID, {})

    def pause():
        store.experiments.set_control(experiment_id, Control(state="pause"))

    with store.database.writing() as commanding:
        of_experiment = update(Experiment).where(Experiment.id == experiment_id)
        commanding.execute(of_experiment.values(control={"target_labels": 9}))
        with waiting_call(commanding, pause) as paused:
            commanding.commit()
            paused.result(timeout=30)
    control = store.experiments.control(experiment_id)
    assert (control.state, control.target_labels) == ("pause", 9)


def test_practice_in_two_experiments_at_once_is_remembered(postgres_store):
    store = postgres_store
    experiment_id = store.experiments.ensure("human-175", ENV_ID, {})
    ids = ask_and_show(store, experiment_id, *range(3))
    for each in ids:
        store.labels.add(each, Answer.LEFT, "owner")
        store.comparisons.set_gold(each, Answer.LEFT)
    me = Labeler.id == store.labelers.id_of("Ada")
    with store.database.writing() as practising:
        practising.execute(update(Labeler).where(me).values(practised=[7_000]))
        with waiting_call(
            practising, lambda: store.comparisons.practise(experiment_id, "Ada")
        ) as practised:
            practising.commit()
            assert len(practised.result(timeout=30)) == 3
    with store.database.reading() as connection:
        assert connection.execute(select(Labeler.practised).where(me)).scalar() == [*ids, 7_000]


def test_clip_of_a_comparison_that_is_being_added_is_kept(postgres_store):
    """`Comparisons.add` inserts the clips, which may exist, before the comparison."""
    store = postgres_store
    experiment_id = store.experiments.ensure("human-175", ENV_ID, {})
    left, right = pair(1)
    store.clips.publish({left: shown(left), right: shown(right)})
    with store.database.writing() as adding:
        lock_labels(adding)
        with waiting_call(adding, lambda: store.clips.delete_unused(left)) as deleted:
            number = {"number": 1, "asked_at_step": 0, "created_at": datetime.now(UTC)}
            row = {"experiment_id": experiment_id, "left_hash": left, "right_hash": right}
            adding.execute(insert(Comparison).values(**row, **number))
            adding.commit()
            assert deleted.result(timeout=30) is None
