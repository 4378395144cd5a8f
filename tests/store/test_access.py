"""Who may do what: labelers, credentials and invites, on SQLite and on PostgreSQL."""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import select

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import (
    BadConfig,
    BadLabelerName,
    ExperimentNotFound,
    InviteNotFound,
    InviteUnusable,
    LabelerExists,
    LabelerNotFound,
)
from rl_teacher.store.records import Identity
from rl_teacher.store.store import Counts
from rl_teacher.store.tables import Credential, Event, Invite
from tests.store.comparisons import ENV_ID, ask, ask_and_show, ids_of, rows_of

BAD_NAMES = ["", " ", "x" * 101, "a\nb", "a\x00b", "\u202egnp", "owner", "OWNER", "synthetic:me"]

STRANGE_TOKENS = ["", "rlt_", "\x00", "rlt_\ud800", "rlt_" + "x" * 10**6, "'; --"]


@pytest.fixture
def store(timed_store):
    return timed_store


@pytest.fixture
def tomorrow(clock):
    return clock() + timedelta(days=1)


@pytest.fixture
def experiment_id(store):
    return store.ensure_experiment("human-175", ENV_ID, {"seed": 3})


def kinds(store):
    return [kind for (kind,) in rows_of(store, select(Event.kind).order_by(Event.id))]


def kept_text(store):
    """Whatever is in the database of credentials, invites and events."""
    return "".join(
        str(rows_of(store, select(*table.__table__.columns)))
        for table in (Credential, Invite, Event)
    )


class TestLabelers:
    def test_one_that_was_added_can_be_listed(self, store, clock):
        labeler_id = store.add_labeler("Zoë")
        [view] = store.labelers()
        assert (view.id, view.name, view.role, view.created_at) == (
            labeler_id,
            "Zoë",
            "labeler",
            clock(),
        )
        assert (view.excluded_at, view.num_labels, view.last_label_at) == (None, 0, None)

    def test_a_name_is_given_once(self, store):
        store.add_labeler("Zoë")
        with pytest.raises(LabelerExists, match="'Zoë'"):
            store.add_labeler(" Zoe\u0308 ")

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_a_name_that_nobody_may_have_is_refused(self, store, name):
        with pytest.raises(BadLabelerName):
            store.add_labeler(name)
        assert store.labelers() == []

    def test_markup_in_a_name_is_kept_as_it_is(self, store):
        store.add_labeler("<script>alert(1)</script> & Söhne")
        assert store.labelers()[0].name == "<script>alert(1)</script> & Söhne"

    def test_nobody_is_added_as_a_synthetic_teacher(self, store):
        with pytest.raises(BadConfig, match="'teacher' is no role"):
            store.add_labeler("Zoë", "teacher")

    def test_whoever_answers_is_known_by_their_name(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        for name in ("owner", "synthetic:oracle", "Zoë"):
            store.answer(comparison_id, Answer.LEFT, name)
        assert {each.name: each.role for each in store.labelers()} == {
            "owner": "owner",
            "synthetic:oracle": "teacher",
            "Zoë": "labeler",
        }

    def test_their_labels_are_counted_over_all_experiments(self, store, clock, experiment_id):
        other_id = store.ensure_experiment("other", ENV_ID, {})
        ids = ask(store, experiment_id, 1, 2) + ask(store, other_id, 1)
        for each in [*ids, ids[0]]:
            clock.pass_by(1)
            store.answer(each, Answer.LEFT, "Zoë")
        store.answer(ids[1], None, "Zoë")
        [view] = store.labelers()
        assert (view.num_labels, view.last_label_at) == (2, clock())


class TestExcluding:
    def test_nothing_learns_from_an_excluded_labeler_and_their_labels_stay(
        self, store, experiment_id
    ):
        first, second = ask_and_show(store, experiment_id, 1, 2)
        store.answer(first, Answer.LEFT, "Zoë")
        store.answer(second, Answer.LEFT, "Zoë")
        store.answer(second, Answer.RIGHT, "owner")
        store.exclude_labeler("Zoë", is_excluded=True)
        assert store.answers([first, second]) == {second: Answer.RIGHT}
        assert [list(each.values()) for each in store.votes([first, second]).values()] == [
            [Answer.RIGHT]
        ]
        assert store.counts(experiment_id) == Counts(2, 1)
        assert ids_of(store.waiting(experiment_id, 9)) == [first]
        assert len(store.label_rows(experiment_id)) == 3
        assert store.excluded_ids() == {store.labelers()[0].id}

    def test_including_brings_their_labels_back(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        store.answer(comparison_id, Answer.LEFT, "Zoë")
        store.exclude_labeler("Zoë", is_excluded=True)
        store.exclude_labeler("Zoë", is_excluded=True)
        store.exclude_labeler("Zoë", is_excluded=False)
        assert store.answers([comparison_id]) == {comparison_id: Answer.LEFT}
        assert store.counts(experiment_id) == Counts(1, 1)
        assert store.excluded_ids() == frozenset()
        assert kinds(store) == ["exclude", "include"]

    def test_nobody_cannot_be_excluded(self, store):
        with pytest.raises(LabelerNotFound, match="no labeler 'Zoë'"):
            store.exclude_labeler("Zoë", is_excluded=True)
        assert kinds(store) == []


class TestCredentials:
    def test_a_token_says_whose_it_is(self, store):
        labeler_id = store.add_labeler("Zoë")
        token = store.issue_credential("Zoë")
        assert store.who_has(token) == Identity(labeler_id, "Zoë", "labeler")
        assert token.startswith("rlt_")
        assert len(token) == 4 + 43

    def test_two_tokens_of_one_labeler_are_different(self, store):
        store.add_labeler("Zoë")
        assert len({store.issue_credential("Zoë") for _ in range(50)}) == 50

    @pytest.mark.parametrize(
        "change", [lambda t: t[:-1], lambda t: t + "A", str.swapcase, str.upper]
    )
    def test_a_token_that_is_not_quite_right_is_nobodys(self, store, change):
        store.add_labeler("Zoë")
        assert store.who_has(change(store.issue_credential("Zoë"))) is None

    @pytest.mark.parametrize(
        "token", ["", "rlt_", "\x00", "rlt_\ud800", "rlt_" + "x" * 10**6, "'; --"]
    )
    def test_a_strange_token_is_nobodys(self, store, token):
        assert store.who_has(token) is None

    def test_an_expired_token_is_nobodys(self, store, clock, tomorrow):
        store.add_labeler("Zoë")
        token = store.issue_credential("Zoë", tomorrow)
        clock.pass_by(86_399)
        assert store.who_has(token) is not None
        clock.pass_by(1)
        assert store.who_has(token) is None

    def test_a_token_for_one_experiment_says_so(self, store):
        store.ensure_experiment("walker", "ShortWalker-v1", {})
        store.add_labeler("Zoë")
        token = store.issue_credential("Zoë", experiment="walker")
        assert store.who_has(token).experiment == "walker"

    def test_no_token_is_issued_for_an_experiment_that_there_is_not_or_to_an_owner_for_one(
        self, store
    ):
        store.ensure_experiment("walker", "ShortWalker-v1", {})
        store.add_labeler("Zoë")
        store.add_labeler("Olga", "owner")
        with pytest.raises(ExperimentNotFound):
            store.issue_credential("Zoë", experiment="hopper")
        with pytest.raises(BadConfig, match="every experiment"):
            store.issue_credential("Olga", experiment="walker")
        assert store.credentials("Zoë") == store.credentials("Olga") == []

    def test_revoking_takes_every_token_of_one_labeler_and_nobody_elses(self, store):
        for name in ("Zoë", "Ada"):
            store.add_labeler(name)
        tokens = [store.issue_credential(name) for name in ("Zoë", "Zoë", "Ada")]
        assert store.revoke_credentials("Zoë") == 2
        assert [store.who_has(token) is None for token in tokens] == [True, True, False]
        assert store.revoke_credentials("Zoë") == 0

    def test_use_is_noted_once_a_minute(self, store, clock):
        store.add_labeler("Zoë")
        token = store.issue_credential("Zoë")
        noted = []
        for _ in range(4):
            store.who_has(token)
            noted.append(store.credentials("Zoë")[0].last_used_at)
            clock.pass_by(30)
        assert noted[0] == noted[1] < noted[2] == noted[3]

    def test_a_list_of_credentials_has_no_secret(self, store):
        store.add_labeler("Zoë")
        token = store.issue_credential("Zoë")
        [view] = store.credentials("Zoë")
        assert (view.hint, view.revoked_at) == (token[:8], None)
        assert token not in repr(view)

    def test_no_secret_is_in_the_database(self, store, tomorrow):
        invite = store.invite("labeler", expires_at=tomorrow).token
        _, token = store.accept_invite(invite, "Zoë")
        assert token not in kept_text(store)
        assert invite not in kept_text(store)

    def test_nobody_has_no_credential(self, store):
        with pytest.raises(LabelerNotFound):
            store.issue_credential("Zoë")
        with pytest.raises(LabelerNotFound):
            store.revoke_credentials("Zoë")
        assert store.credentials("Zoë") == []


class TestInvites:
    def test_an_invite_lets_somebody_new_in(self, store, tomorrow):
        invite = store.invite("labeler", expires_at=tomorrow).token
        identity, token = store.accept_invite(invite, "Zoë")
        assert (identity.name, identity.role) == ("Zoë", "labeler")
        assert store.who_has(token) == identity
        [view] = store.invites()
        assert (view.status, view.used_by) == ("used", "Zoë")
        assert kinds(store) == ["invite", "accept"]

    def test_an_invite_is_used_once(self, store, tomorrow):
        invite = store.invite("labeler", expires_at=tomorrow).token
        store.accept_invite(invite, "Zoë")
        with pytest.raises(InviteUnusable, match="used already") as caught:
            store.accept_invite(invite, "Ada")
        assert caught.value.reason == "used"
        assert [each.name for each in store.labelers() if each.role == "labeler"] == ["Zoë"]

    def test_of_several_who_use_an_invite_at_once_one_is_let_in(self, store, tomorrow):
        invite = store.invite("labeler", expires_at=tomorrow).token
        let_in, refused = [], []
        all_are_there = threading.Barrier(6)

        def accept(name):
            all_are_there.wait()
            try:
                let_in.append(store.accept_invite(invite, name))
            except InviteUnusable as error:
                refused.append(error.reason)

        guests = [threading.Thread(target=accept, args=(f"guest {i}",)) for i in range(6)]
        for guest in guests:
            guest.start()
        for guest in guests:
            guest.join()
        assert (len(let_in), refused) == (1, ["used"] * 5)

    def test_an_expired_invite_says_so(self, store, clock, tomorrow):
        invite = store.invite("labeler", expires_at=tomorrow).token
        clock.pass_by(86_400)
        with pytest.raises(InviteUnusable) as caught:
            store.accept_invite(invite, "Zoë")
        assert caught.value.reason == "expired"
        assert store.invites()[0].status == "expired"

    def test_a_revoked_invite_says_so(self, store, tomorrow):
        invite = store.invite("labeler", expires_at=tomorrow).token
        store.revoke_invite(store.invites()[0].id)
        with pytest.raises(InviteUnusable) as caught:
            store.accept_invite(invite, "Zoë")
        assert caught.value.reason == "revoked"

    @pytest.mark.parametrize("token", STRANGE_TOKENS)
    def test_an_unknown_invite_says_so(self, store, token):
        with pytest.raises(InviteUnusable) as caught:
            store.accept_invite(token, "Zoë")
        assert caught.value.reason == "unknown"

    @pytest.mark.parametrize(("name", "error"), [("Ada", LabelerExists), ("owner", BadLabelerName)])
    def test_with_a_name_that_is_taken_it_can_be_tried_again(self, store, tomorrow, name, error):
        store.add_labeler("Ada")
        invite = store.invite("labeler", expires_at=tomorrow).token
        with pytest.raises(error):
            store.accept_invite(invite, name)
        identity, _ = store.accept_invite(invite, "Zoë")
        assert identity.name == "Zoë"

    def test_an_invite_for_somebody_known_gives_them_another_token(self, store, tomorrow):
        labeler_id = store.add_labeler("Zoë")
        invite = store.invite("labeler", "Zoë", expires_at=tomorrow).token
        identity, _ = store.accept_invite(invite, "Mallory")
        assert identity == Identity(labeler_id, "Zoë", "labeler")

    def test_an_invite_names_its_experiment(self, store, experiment_id, tomorrow):
        store.invite("labeler", experiment="human-175", expires_at=tomorrow)
        assert store.invites()[0].experiment == "human-175"
        with pytest.raises(ExperimentNotFound):
            store.invite("labeler", experiment="other", expires_at=tomorrow)
        store.delete_experiment("human-175")
        assert store.invites()[0].experiment == "human-175"

    def test_whoever_was_invited_to_an_experiment_sees_no_other(
        self, store, experiment_id, tomorrow
    ):
        invite = store.invite(experiment="human-175", expires_at=tomorrow).token
        identity, token = store.accept_invite(invite, "Zoë")
        assert store.who_has(token) == identity
        assert (identity.sees("human-175"), identity.sees("other")) == (True, False)
        by_hand = store.who_has(store.issue_credential("Zoë"))
        assert by_hand is not None
        assert by_hand.sees("other")

    def test_an_experiment_begun_anew_is_there_for_whoever_was_invited_to_it(
        self, store, experiment_id, tomorrow
    ):
        invite = store.invite(experiment="human-175", expires_at=tomorrow).token
        store.delete_experiment("human-175")
        identity, _ = store.accept_invite(invite, "Zoë")
        assert identity.experiment == "human-175"

    def test_an_owner_is_invited_to_all_experiments(self, store, experiment_id, tomorrow):
        with pytest.raises(BadConfig, match="every experiment"):
            store.invite("owner", experiment="human-175", expires_at=tomorrow)
        store.add_labeler("Olga", "owner")
        made = store.invite("labeler", "Olga", "human-175", expires_at=tomorrow)
        assert store.accept_invite(made.token)[0].experiment is None

    def test_what_was_made_is_said_with_its_secret_apart(self, store, experiment_id, tomorrow):
        made = store.invite("labeler", "Zoë", "human-175", expires_at=tomorrow)
        assert [made.invite] == store.invites()
        assert made.token not in repr(made)

    @pytest.mark.parametrize("invite_id", [0, 999, 2**40, -1])
    def test_an_invite_that_is_not_there_cannot_be_revoked(self, store, invite_id):
        with pytest.raises(InviteNotFound):
            store.revoke_invite(invite_id)

    def test_revoking_what_was_used_changes_nothing(self, store, tomorrow):
        _, token = store.accept_invite(store.invite("labeler", expires_at=tomorrow).token, "Zoë")
        store.revoke_invite(store.invites()[0].id)
        assert store.invites()[0].status == "used"
        assert store.who_has(token) is not None

    def test_no_invite_makes_a_synthetic_teacher(self, store, tomorrow):
        with pytest.raises(BadConfig):
            store.invite("teacher", expires_at=tomorrow)
