"""Leases of comparisons."""

from uuid import uuid4

import pytest
from sqlalchemy import select

from rl_teacher.common.errors import BadExperimentName, CorruptClip, ExperimentNotFound
from rl_teacher.store import tables
from rl_teacher.store.records import AssignmentPolicy, Identity, Role
from rl_teacher.web import label_intake
from rl_teacher.web.label_intake import LabelUpload
from rl_teacher.web.next_comparisons import NextRequest, next_comparisons
from rl_teacher.web.schemas.labelling import NextComparisons
from rl_teacher.web.serializers import serialize_comparison
from tests.web.conftest import label, post


def claim_next(client, **query):
    response = client.get("/api/v1/experiments/hopper/comparisons/next", params=query)
    return response.json()["comparisons"]


def identity(name, role: Role = "labeler"):
    return Identity(1, name, role)


def test_unknown_experiment_fails_alone_in_a_batch(trainer, app):
    [comparison_id] = trainer.ask()
    services = app.state.services
    requests = [
        NextRequest(name, identity("ann"), (), 4) for name in ("nowhere", "hopper", "NO/NAME")
    ]
    unknown, found, invalid = next_comparisons(services.store, services.experiments, requests)
    assert isinstance(found, NextComparisons)
    assert [each.id for each in found.comparisons] == [comparison_id]
    assert (type(unknown), type(invalid)) == (ExperimentNotFound, BadExperimentName)


def test_damaged_clip_rejects_its_label_and_no_other_of_the_batch(trainer, app, monkeypatch):
    comparison_ids = trainer.ask(2)
    store = app.state.services.store

    def serialize(view, labeler):
        if view.id == comparison_ids[0]:
            raise CorruptClip("its frames are missing")
        return serialize_comparison(view, labeler)

    monkeypatch.setattr(label_intake, "serialize_comparison", serialize)
    uploads = [
        LabelUpload(Identity(1, name, "owner"), [label(comparison_id, "left")])
        for name, comparison_id in zip(("ann", "ben"), comparison_ids, strict=True)
    ]
    rejected, accepted = label_intake.store_uploads(store, uploads)
    assert [each.problem.type for each in rejected.rejected] == ["urn:rl-teacher:damaged"]
    assert (len(accepted.accepted), accepted.rejected) == (1, [])


def ids(comparisons):
    return [each["id"] for each in comparisons]


def renew(client, *leases):
    return client.post("/api/v1/leases/renew", json={"leases": leases}).json()


def lease_states(store):
    with store.database.reading() as connection:
        rows = connection.execute(select(tables.Label.lease).order_by(tables.Label.id))
        return list(rows.scalars())


NOT_LEASED = "urn:rl-teacher:not-leased"


def rejected_types(client, *labels):
    """Post labels as they are, and return the types of the problems of the rejected ones."""
    response = client.post("/api/v1/labels", json={"labels": labels})
    return [each["problem"]["type"] for each in response.json()["rejected"]]


class TestLeases:
    def test_lease_of_other_labeler_looks_missing(self, guest, other_guest, trainer):
        trainer.ask()
        [mine] = claim_next(guest)
        nothing = str(uuid4())
        assert renew(other_guest, mine["lease"], nothing) == {
            "renewed": {},
            "lost": [mine["lease"], nothing],
        }
        other_guest.post("/api/v1/leases/release", json={"leases": [mine["lease"]]})
        assert renew(guest, mine["lease"])["lost"] == []


class TestLabelsWithLease:
    @pytest.mark.parametrize("shown_left", ["left", "right"])
    def test_answer_of_second_tab_is_refused_with_stored_answer(
        self, guest, trainer, store, shown_left
    ):
        trainer.ask()
        [one], [other] = claim_next(guest), claim_next(guest)
        assert one["lease"] == other["lease"]
        post(guest, label(one["id"], "left", lease=one["lease"], left_hash=one["left"]["hash"]))
        again = label(other["id"], "equal", lease=other["lease"])
        again["left_hash"] = other[shown_left]["hash"]
        receipt = post(guest, again).json()
        assert receipt["accepted"] == []
        [rejected] = receipt["rejected"]
        assert rejected["request_id"] == again["request_id"]
        assert rejected["problem"]["status"] == 409
        assert rejected["problem"]["type"] == "urn:rl-teacher:already-answered"
        assert rejected["stored_answer"] == shown_left
        assert f"with {shown_left} in another tab" in rejected["problem"]["detail"]
        assert lease_states(store) == ["held"]


class TestLabelsWithoutLease:
    def test_comparison_that_was_never_leased_cannot_be_answered(self, guest, trainer, store):
        ids = trainer.ask(3)
        labels = [label(ids[0]), label(ids[1], lease=str(uuid4())), label(ids[2], None)]
        assert rejected_types(guest, *labels) == [NOT_LEASED] * 3
        assert lease_states(store) == []

    def test_invented_lease_of_leased_comparison_is_rejected(self, guest, trainer, store):
        trainer.ask()
        [mine] = claim_next(guest)
        assert rejected_types(guest, label(mine["id"], lease=str(uuid4()))) == [NOT_LEASED]
        assert rejected_types(guest, label(mine["id"], lease=mine["lease"])) == []
        assert lease_states(store) == ["held"]

    def test_own_answer_can_be_changed_and_withdrawn(self, guest, trainer, store):
        trainer.ask()
        [mine] = claim_next(guest)
        answers = [("left", mine["lease"]), ("right", None), (None, None), ("equal", None)]
        for answer, lease in answers:
            assert rejected_types(guest, label(mine["id"], answer, lease=lease)) == []


class TestReusedRequestIds:
    def test_other_label_under_a_used_request_id_is_rejected(self, guest, trainer, store):
        trainer.ask(2)
        one, other = claim_next(guest)
        sent = label(one["id"], "equal", lease=one["lease"])
        assert rejected_types(guest, sent) == []
        replayed = {**sent, "comparison_id": other["id"], "lease": other["lease"]}
        for changed in ({**sent, "answer": "cannot_tell"}, {**sent, "answer": None}, replayed):
            assert rejected_types(guest, changed) == ["urn:rl-teacher:request-reused"]
        assert rejected_types(guest, sent) == []
        assert [each.answer for each in store.labels.export(trainer.id)] == ["equal"]
        assert ids(claim_next(guest)) == [other["id"]]


class TestTooFastLabels:
    """The clips of the trainer last 1.5 s."""

    def test_answer_before_half_of_the_clips_is_marked(self, guest, trainer, store):
        trainer.ask(3)
        times = [749, 750, None]
        for each, response_ms in zip(claim_next(guest), times, strict=True):
            sent = label(each["id"], "left", lease=each["lease"], response_ms=response_ms)
            assert (post(guest, sent).json()["warning"] is None) == (response_ms != 749)
        marks = [each.is_too_fast for each in store.labels.export(trainer.id)]
        assert marks == [True, False, False]

    def test_unknown_left_hash_is_rejected(self, guest, trainer):
        [comparison_id] = trainer.ask()
        [refused] = post(guest, label(comparison_id, left_hash="0" * 64)).json()["rejected"]
        assert refused["problem"]["status"] == 422
        assert "left_hash" in refused["problem"]["detail"]

    def test_left_hash_determines_side(self, guest, trainer, store):
        [comparison_id] = trainer.ask()
        comparison = guest.get(f"/api/v1/comparisons/{comparison_id}").json()
        right = comparison["right"]["hash"]
        post(guest, label(comparison_id, "left", left_hash=right))
        assert guest.get(f"/api/v1/comparisons/{comparison_id}").json()["answer"] == "right"


class TestRepeats:
    @pytest.fixture
    def repeated(self, guest, trainer, store):
        """Comparison as it was shown first, and as it is repeated."""
        trainer.ask(12)
        first = {each["id"]: each for each in claim_next(guest, limit=12)}
        post(
            guest,
            *[
                label(each["id"], "left", lease=each["lease"], left_hash=each["left"]["hash"])
                for each in first.values()
            ],
        )
        store.experiments.set_assignment(trainer.id, AssignmentPolicy(repeats=1.0))
        again = claim_next(guest, limit=1)[0]
        return first[again["id"]], again

    def test_repeat_swaps_sides_and_hides_previous_answer(self, repeated):
        first, again = repeated
        assert again["left"] == first["right"]
        assert again["right"] == first["left"]
        assert again["answer"] is None
        assert set(again) == set(first)

    def test_link_to_a_repeat_shows_it_as_repeat_until_it_is_answered(self, guest, repeated):
        first, again = repeated
        shown = guest.get(f"/api/v1/comparisons/{again['id']}").json()
        assert [shown[key] for key in ("left", "right", "answer")] == [
            *(first["right"], first["left"]),
            None,
        ]
        post(guest, label(again["id"], "left", lease=again["lease"]))
        shown = guest.get(f"/api/v1/comparisons/{again['id']}").json()
        assert (shown["left"], shown["answer"]) == (first["left"], "left")

    @pytest.mark.parametrize("says_left", [True, False])
    def test_repeat_is_stored_unswapped_and_keeps_first_answer(
        self, guest, store, repeated, says_left
    ):
        first, again = repeated
        before = store.labels.votes([first["id"]])
        more = {"left_hash": again["left"]["hash"]} if says_left else {}
        post(guest, label(again["id"], "left", lease=again["lease"], **more))
        assert store.labels.votes([first["id"]]) == before
        rows = [each for each in store.labels.export(1) if each.comparison_id == first["id"]]
        assert [each.purpose for each in rows] == ["answer", "repeat"]
        assert rows[0].answer != rows[1].answer
        assert rows[0].is_swapped != rows[1].is_swapped
