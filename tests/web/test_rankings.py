"""Rankings of several clips through the API."""

from uuid import uuid4

from tests.web.conftest import assert_problem
from tests.web.test_leases import claim_next, ids

URL = "/api/v1/experiments/hopper/rankings"


def clips_of(comparisons):
    return [each[side]["hash"] for each in comparisons for side in ("left", "right")]


def submit(client, groups, **more):
    payload = {"request_id": str(uuid4()), "groups": groups, **more}
    return payload["request_id"], client.post(URL, json=payload)


def test_ranking_is_stored_as_labels_of_all_pairs(guest, trainer, store):
    trainer.ask(2, step=40)
    claimed = claim_next(guest, limit=2)
    clips = clips_of(claimed)
    details = {"input": "key"}
    request_id, response = submit(
        guest, [[clips[2]], clips[:2], [clips[3]]], response_ms=30_000, details=details
    )
    receipt = response.json()
    assert set(ids(claimed)) < set(receipt["comparison_ids"])
    assert receipt["warning"] is None
    labels = store.labels.export(trainer.id)
    assert [each.comparison_id for each in labels] == receipt["comparison_ids"]
    assert len(labels) == 6
    assert {each.labeler for each in labels} == {"ann"}
    assert all(each.details == {**details, "ranking": request_id} for each in labels)
    answered = {each.comparison_id: each.answer for each in labels}
    assert answered[claimed[0]["id"]] == "equal"
    history = guest.get("/api/v1/experiments/hopper/labels").json()
    assert {each["ranking"] for each in history} == {request_id}


def test_ranking_before_clips_could_play_is_marked_and_warned_of(guest, trainer, store):
    trainer.ask(1)
    _, response = submit(guest, [clips_of(claim_next(guest))], response_ms=5)
    assert response.json()["warning"] is not None
    assert all(each.is_too_fast for each in store.labels.export(trainer.id))


def test_withdrawn_ranking_returns_its_comparisons_with_leases(guest, other_guest, trainer, store):
    trainer.ask(2)
    clips = clips_of(claim_next(guest))
    ranking_id, _ = submit(guest, [[each] for each in clips])
    withdrawn = guest.delete(f"{URL}/{ranking_id}").json()
    assert set(clips_of(withdrawn)) == set(clips)
    assert len(withdrawn) == 6
    assert all(each["lease"] for each in withdrawn)
    assert store.experiments.get("hopper").answered == 0
    assert claim_next(other_guest) == []
    _, response = submit(guest, [clips])
    assert response.status_code == 200
    assert store.experiments.get("hopper").answered == 6


def test_ranking_of_others_clips_is_refused(guest, other_guest, trainer, store):
    trainer.ask(1)
    clips = clips_of(claim_next(guest))
    assert "leased to you" in assert_problem(submit(other_guest, [clips])[1], 422)
    assert_problem(submit(guest, [["0" * 64], clips])[1], 404)
    assert_problem(submit(guest, [["no hash"]])[1], 422)
    assert_problem(submit(guest, [])[1], 422)
    assert_problem(submit(guest, [clips], response_ms="soon")[1], 422)
    assert store.labels.export(trainer.id) == []
