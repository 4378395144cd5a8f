"""Tests of labelers, credentials and invites, on SQLite and on PostgreSQL."""

import threading
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import select
from sqlalchemy.exc import StatementError

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import (
    BadConfig,
    BadLabelerName,
    ExperimentNotFound,
    InviteNotFound,
    InviteUnusable,
    LabelerExists,
)
from rl_teacher.store.records import Identity
from rl_teacher.store.tables import Credential, Event, Invite
from tests.store.comparisons import (
    ENV_ID,
    add_labeler,
    ask,
    ask_and_show,
    counts,
    ids_of,
    open_comparisons,
    rows_of,
)
from tests.store.credentials import identify, issue_credential

BAD_NAMES = [
    "",
    " ",
    "x" * 101,
    "a\nb",
    "a\x00b",
    "\u202egnp",
    "owner",
    "OWNER",
    "synthetic:me",
    "ImporTed:me",
    "imported\uff1ame",
]

STRANGE_TOKENS = ["", "rlt_", "\x00", "rlt_\ud800", "rlt_" + "x" * 10**6, "'; --"]


@pytest.fixture
def store(timed_store):
    return timed_store


@pytest.fixture
def tomorrow(clock):
    return clock() + timedelta(days=1)


def kinds(store):
    return [kind for (kind,) in rows_of(store, select(Event.kind).order_by(Event.id))]


def kept_text(store):
    """Return all rows of credentials, invites and events as text."""
    return "".join(
        str(rows_of(store, select(*table.__table__.columns)))
        for table in (Credential, Invite, Event)
    )


class TestLabelers:
    def test_added_labeler_is_listed(self, store, clock):
        labeler_id = add_labeler(store, "Zoë")
        [view] = store.labelers.all()
        assert (view.id, view.name, view.role, view.created_at) == (
            labeler_id,
            "Zoë",
            "labeler",
            clock(),
        )
        assert (view.excluded_at, view.num_labels, view.last_label_at) == (None, 0, None)

    def test_duplicate_name_is_refused(self, store):
        add_labeler(store, "Zoë")
        with pytest.raises(LabelerExists, match="'Zoë'"):
            add_labeler(store, " Zoe\u0308 ")

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_invalid_name_is_refused(self, store, name):
        with pytest.raises(BadLabelerName):
            add_labeler(store, name)
        assert store.labelers.all() == []

    @pytest.mark.parametrize("name", ["ANNA", "\uff21nna", "an  na "])
    def test_name_that_differs_in_case_width_or_spaces_is_refused(self, store, name):
        add_labeler(store, "An na" if " " in name else "Anna")
        with pytest.raises(LabelerExists):
            add_labeler(store, name)
        add_labeler(store, "\u00c1nna")

    @pytest.mark.parametrize("name", ["synthetic:oracle", "imported:zoe"])
    def test_nobody_acts_as_teacher_or_imported_labeler(self, store, tomorrow, name):
        store.labelers.id_of(name)
        with pytest.raises(BadLabelerName, match="reserved"):
            store.access.invite(name=name, expires_at=tomorrow)

    def test_labels_are_counted_over_all_experiments(self, store, clock, experiment_id):
        other_id = store.experiments.ensure("other", ENV_ID, {})
        ids = ask(store, experiment_id, 1, 2) + ask(store, other_id, 1)
        for each in [*ids, ids[0]]:
            clock.advance(1)
            store.labels.add(each, Answer.LEFT, "Zoë")
        store.labels.add(ids[1], None, "Zoë")
        [view] = store.labelers.all()
        assert (view.num_labels, view.last_label_at) == (2, clock())


class TestExcluding:
    def test_labels_of_excluded_labeler_are_kept_but_not_used(self, store, experiment_id):
        first, second = ask_and_show(store, experiment_id, 1, 2)
        store.labels.add(first, Answer.LEFT, "Zoë")
        store.labels.add(second, Answer.LEFT, "Zoë")
        store.labels.add(second, Answer.RIGHT, "owner")
        store.labelers.set_excluded("Zoë", is_excluded=True)
        assert store.labels.answers([first, second]) == {second: Answer.RIGHT}
        assert [list(each.values()) for each in store.labels.votes([first, second]).values()] == [
            [Answer.RIGHT]
        ]
        assert counts(store, experiment_id) == (2, 1)
        assert ids_of(open_comparisons(store, experiment_id, 9)) == [first]
        assert len(store.labels.export(experiment_id)) == 3
        assert store.labelers.excluded_ids() == {store.labelers.all()[0].id}

    def test_included_labeler_regains_labels(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "Zoë")
        store.labelers.set_excluded("Zoë", is_excluded=True)
        store.labelers.set_excluded("Zoë", is_excluded=True)
        store.labelers.set_excluded("Zoë", is_excluded=False)
        assert store.labels.answers([comparison_id]) == {comparison_id: Answer.LEFT}
        assert counts(store, experiment_id) == (1, 1)
        assert store.labelers.excluded_ids() == frozenset()
        assert kinds(store) == ["exclude", "include"]


class TestCredentials:
    def test_token_identifies_holder(self, store):
        labeler_id = add_labeler(store, "Zoë")
        token = issue_credential(store, "Zoë")
        assert identify(store, token) == Identity(labeler_id, "Zoë", "labeler")
        assert token.startswith("rlt_")
        assert len(token) == 4 + 43

    @pytest.mark.parametrize(
        "change", [lambda t: t[:-1], lambda t: t + "A", str.swapcase, str.upper]
    )
    def test_altered_token_has_no_holder(self, store, change):
        add_labeler(store, "Zoë")
        assert identify(store, change(issue_credential(store, "Zoë"))) is None

    def test_expired_token_has_no_holder(self, store, clock, tomorrow):
        _, token = store.access.add_labeler("Zoë", expires_at=tomorrow)
        clock.advance(86_399)
        assert identify(store, token) is not None
        clock.advance(1)
        assert identify(store, token) is None

    def test_scoped_token_is_refused_for_unknown_experiment_and_owner(self, store):
        store.experiments.ensure("walker", "ShortWalker-v1", {})
        with pytest.raises(ExperimentNotFound):
            store.access.add_labeler("Zoë", experiment="hopper")
        with pytest.raises(BadConfig, match="every experiment"):
            store.access.add_labeler("Olga", "owner", experiment="walker")
        assert rows_of(store, select(Credential.id)) == []

    def test_revoking_ends_all_tokens_of_one_labeler_only(self, store):
        for name in ("Zoë", "Ada"):
            add_labeler(store, name)
        tokens = [issue_credential(store, name) for name in ("Zoë", "Zoë", "Ada")]
        assert store.access.revoke_credentials("Zoë") == 2
        assert [identify(store, token) is None for token in tokens] == [True, True, False]
        assert store.access.revoke_credentials("Zoë") == 0

    def test_labeler_is_found_by_the_name_as_it_was_given(self, store):
        given = " Zoe\u0308"
        identity, token = store.access.add_labeler(given)
        assert identity.name == "Zoë"
        assert store.access.revoke_credentials(given) == 1
        assert identify(store, token) is None

    def test_labeler_is_not_added_without_credential(self, store):
        """The time cannot be stored, which the database reports after the labeler was added."""
        with pytest.raises(StatementError):
            store.access.add_labeler("Zoë", expires_at=datetime(2027, 1, 1))
        assert "Zoë" not in {each.name for each in store.labelers.all()}

    def test_database_contains_no_secret(self, store, tomorrow):
        invite = store.access.invite("labeler", expires_at=tomorrow)[1]
        _, token = store.access.accept_invite(invite, "Zoë")
        assert token not in kept_text(store)
        assert invite not in kept_text(store)


class TestInvites:
    def test_invite_admits_new_labeler(self, store, tomorrow):
        invite = store.access.invite("labeler", expires_at=tomorrow)[1]
        identity, token = store.access.accept_invite(invite, "Zoë")
        assert (identity.name, identity.role) == ("Zoë", "labeler")
        assert identify(store, token) == identity
        [view] = store.access.invites()
        assert (view.status, view.used_by) == ("used", "Zoë")
        assert kinds(store) == ["invite", "accept"]

    def test_concurrent_uses_of_invite_admit_one(self, store, tomorrow):
        invite = store.access.invite("labeler", expires_at=tomorrow)[1]
        let_in, refused = [], []
        all_are_there = threading.Barrier(6)

        def accept(name):
            all_are_there.wait()
            try:
                let_in.append(store.access.accept_invite(invite, name))
            except InviteUnusable as error:
                refused.append(error.reason)

        guests = [threading.Thread(target=accept, args=(f"guest {i}",)) for i in range(6)]
        for guest in guests:
            guest.start()
        for guest in guests:
            guest.join()
        assert (len(let_in), refused) == (1, ["used"] * 5)

    def test_repeated_request_gives_same_credential(self, store, tomorrow):
        invite = store.access.invite("labeler", expires_at=tomorrow)[1]
        request_id = uuid4()
        given = store.access.accept_invite(invite, "Zoë", request_id)
        assert store.access.accept_invite(invite, "Zoë", request_id) == given
        identity, token = given
        assert identify(store, token) == identity
        assert len(rows_of(store, select(Credential.id))) == 1
        assert kinds(store) == ["invite", "accept"]

    def test_another_request_gives_no_known_credential(self, store, tomorrow):
        request_id = uuid4()
        invite = store.access.invite(expires_at=tomorrow, max_uses=3)[1]
        first, token = store.access.accept_invite(invite, "Zoë", request_id)
        with pytest.raises(LabelerExists):
            store.access.accept_invite(invite, "Zoë", uuid4())
        second, other = store.access.accept_invite(invite, "Ada", request_id)
        assert (second.name, identify(store, token), identify(store, other)) == (
            "Ada",
            first,
            second,
        )

    def test_revoked_credential_is_not_given_to_repeated_request(self, store, tomorrow):
        invite = store.access.invite("labeler", expires_at=tomorrow)[1]
        request_id = uuid4()
        store.access.accept_invite(invite, "Zoë", request_id)
        store.access.revoke_credentials("Zoë")
        with pytest.raises(InviteUnusable):
            store.access.accept_invite(invite, "Zoë", request_id)

    def test_expired_invite_is_refused_as_expired(self, store, clock, tomorrow):
        invite = store.access.invite("labeler", expires_at=tomorrow)[1]
        clock.advance(86_400)
        with pytest.raises(InviteUnusable) as caught:
            store.access.accept_invite(invite, "Zoë")
        assert caught.value.reason == "expired"
        assert store.access.invites()[0].status == "expired"

    def test_revoked_invite_is_refused_as_revoked(self, store, tomorrow):
        invite = store.access.invite("labeler", expires_at=tomorrow)[1]
        store.access.revoke_invite(store.access.invites()[0].id)
        with pytest.raises(InviteUnusable) as caught:
            store.access.accept_invite(invite, "Zoë")
        assert caught.value.reason == "revoked"

    @pytest.mark.parametrize("token", STRANGE_TOKENS)
    def test_unknown_invite_is_refused_as_unknown(self, store, token):
        with pytest.raises(InviteUnusable) as caught:
            store.access.accept_invite(token, "Zoë")
        assert caught.value.reason == "unknown"

    @pytest.mark.parametrize(("name", "error"), [("Ada", LabelerExists), ("owner", BadLabelerName)])
    def test_invite_remains_valid_after_taken_name(self, store, tomorrow, name, error):
        add_labeler(store, "Ada")
        invite = store.access.invite("labeler", expires_at=tomorrow)[1]
        with pytest.raises(error):
            store.access.accept_invite(invite, name)
        identity, _ = store.access.accept_invite(invite, "Zoë")
        assert identity.name == "Zoë"

    def test_invite_for_labeler_gives_no_rights_of_an_owner(self, store, tomorrow):
        invite = store.access.invite("labeler", "Zoë", expires_at=tomorrow)[1]
        add_labeler(store, "Zoë", "owner")
        with pytest.raises(LabelerExists):
            store.access.accept_invite(invite)
        assert rows_of(store, select(Credential.id)) == []
        with pytest.raises(BadConfig, match="has the role owner"):
            store.access.invite("labeler", "Zoë", expires_at=tomorrow)

    def test_accents_of_an_experiment_may_be_decomposed(self, store, tomorrow):
        composed, decomposed = "\u00e9", "e\u0301"
        store.experiments.ensure(composed, ENV_ID, {})
        store.access.invite(experiment=decomposed, expires_at=tomorrow)
        assert [each.experiment for each in store.access.invites()] == [composed]
        identity, token = store.access.add_labeler("Zoë", experiment=decomposed)
        assert identity.experiment == composed
        assert identify(store, token) == identity
        assert identity.sees(decomposed)

    def test_scoped_invite_hides_other_experiments(self, store, experiment_id, tomorrow):
        invite = store.access.invite(experiment="human-175", expires_at=tomorrow)[1]
        identity, token = store.access.accept_invite(invite, "Zoë")
        assert identify(store, token) == identity
        assert (identity.sees("human-175"), identity.sees("other")) == (True, False)
        by_hand = identify(store, issue_credential(store, "Zoë"))
        assert by_hand is not None
        assert by_hand.sees("other")

    @pytest.mark.parametrize("invite_id", [0, 999, 2**40, -1])
    def test_unknown_invite_cannot_be_revoked(self, store, invite_id):
        with pytest.raises(InviteNotFound):
            store.access.revoke_invite(invite_id)
