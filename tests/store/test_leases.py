"""Tests of leases of comparisons, on SQLite and on PostgreSQL."""

import threading
from collections import Counter
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import select

from rl_teacher.clips.answer import Answer
from rl_teacher.store.leases import KEPT_AFTER_EXPIRY, MAX_LEASES, NUM_RECENT
from rl_teacher.store.records import AssignmentPolicy, ClaimRequest, NewLabel
from rl_teacher.store.store import Store
from rl_teacher.store.tables import Label, Lease
from tests.store.comparisons import ENV_ID, ask_and_show, num_labels_of, pair, rows_of
from tests.store.conftest import BOTH, new_database

NUM_RACES = 120


@pytest.fixture(params=BOTH)
def url(request):
    return new_database(request)


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
        before = store.leases.claim(experiment_id, "Ada", 2)
        clock.advance(200)
        again = store.leases.claim(experiment_id, "Ada", 3)
        assert [each.lease for each in again[:2]] == [each.lease for each in before]
        assert {each.expires_at - clock() for each in again} == {timedelta(seconds=300)}

    def test_excluded_comparison_is_left_out_and_stays_leased(self, store, clock, experiment_id):
        ids = ask_and_show(store, experiment_id, *range(4))
        store.leases.claim(experiment_id, "Ada", 2)
        clock.advance(299)
        assert claimed_ids(store.leases.claim(experiment_id, "Ada", 1, exclude=ids[:2])) == ids[2:3]
        clock.advance(299)
        assert claimed_ids(store.leases.claim(experiment_id, "Bob", 9)) == ids[3:]

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


class TestClaimsTogether:
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


class TestTime:
    def test_expired_lease_returns_comparison_to_queue(self, store, clock, experiment_id):
        ids = ask_and_show(store, experiment_id, 1)
        store.leases.claim(experiment_id, "Ada", 1)
        clock.advance(299.999)
        assert store.leases.claim(experiment_id, "Bob", 1) == []
        clock.advance(0.001)
        assert claimed_ids(store.leases.claim(experiment_id, "Bob", 1)) == ids

    def test_expired_lease_cannot_be_renewed(self, store, clock, experiment_id):
        ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1)
        clock.advance(300)
        assert store.leases.renew("Ada", [mine.lease, uuid4()]) == {}

    def test_lease_is_not_renewed_after_an_hour(self, store, clock, experiment_id):
        ids = ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1)
        for _ in range(59):
            clock.advance(60)
            assert store.leases.renew("Ada", [mine.lease])
        clock.advance(60)
        assert store.leases.renew("Ada", [mine.lease]) == {}
        clock.advance(300)
        assert claimed_ids(store.leases.claim(experiment_id, "Bob", 1)) == ids

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

    def test_second_answer_after_used_lease_changes_nothing(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        mine = store.leases.claim(experiment_id, "Ada", 1)
        answer(store, mine, "Ada", Answer.LEFT)
        answer(store, mine, "Ada", Answer.RIGHT)
        assert kept(store, Label.lease) == [("held",)]
        assert store.labels.answers([comparison_id]) == {comparison_id: Answer.LEFT}
        [ada] = store.labelers.all()
        assert ada.num_labels == 1

    def test_label_that_is_sent_twice_at_once_is_stored(self, store, experiment_id):
        """A page that is reloaded while it sends a label sends it again."""
        ask_and_show(store, experiment_id, 1)
        [mine] = store.leases.claim(experiment_id, "Ada", 1)
        label = NewLabel(mine.comparison.id, Answer.LEFT, "Ada", lease=mine.lease)
        assert store.labels.add_many([label, label]) == {}
        assert kept(store, Label.request_id, Label.lease) == [(label.request_id, "held")]

    def test_different_label_with_known_request_id_is_refused(self, store, experiment_id):
        ask_and_show(store, experiment_id, 1, 2)
        claimed = store.leases.claim(experiment_id, "Ada", 2)
        request_id = uuid4()
        labels = [
            NewLabel(each.comparison.id, Answer.LEFT, "Ada", request_id, lease=each.lease)
            for each in claimed
        ]
        assert store.labels.add_many(labels) == {request_id: None}
        assert kept(store, Label.comparison_id) == [(labels[0].comparison_id,)]
        assert store.leases.claim(experiment_id, "Ada", 2) == claimed[1:]

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
        assert num_labels_of(store, experiment_id, "Ada") == len(ids)
        assert store.leases.claim(experiment_id, "Ada", 9) == []

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
        assert num_labels_of(store, experiment_id, "Ada") == NUM_RECENT + 1

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


def test_racing_labelers_neither_duplicate_nor_lose_labels(url):
    """Each labeler uses a separate store, as two processes of a service do."""
    wanted = 2
    with Store.open(url, is_synced=False) as store:
        experiment_id = store.experiments.ensure("race", ENV_ID, {})
        store.experiments.set_assignment(
            experiment_id, AssignmentPolicy(overlap=1.0, overlap_labelers=wanted)
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
