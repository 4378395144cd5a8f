"""Next comparisons and submission of labels."""

from uuid import UUID

import pytest
from sqlalchemy import select

from rl_teacher.clips.answer import Answer
from rl_teacher.store import tables
from tests.web.conftest import ENV_ID, NUM_FRAMES, SCENE_HASH, assert_problem, label, post


def rows(store, *columns):
    with store.database.reading() as connection:
        return connection.execute(select(*columns)).all()


def claim_next(client, **query):
    return client.get("/api/v1/experiments/hopper/comparisons/next", params=query).json()


class TestNext:
    def test_next_comparison_contains_clips_and_lease(self, program, trainer):
        [comparison_id] = trainer.ask(step=7)
        [comparison] = claim_next(program)["comparisons"]
        clip = comparison.pop("left")
        assert comparison.pop("right")["hash"] != clip["hash"]
        assert UUID(comparison.pop("lease"))
        assert comparison == {
            "id": comparison_id,
            "number": 1,
            "experiment": "hopper",
            "asked_at_step": 7,
            "answer": None,
            "lease_expires_at": "2026-11-03T12:05:00Z",
        }
        assert clip == {
            "hash": clip["hash"],
            "kind": "poses",
            "url": f"/api/v1/clips/{clip['hash']}",
            "scene_url": f"/api/v1/scenes/{SCENE_HASH}",
            "num_frames": NUM_FRAMES,
            "fps": 20.0,
            "seconds": 1.5,
            "speed": 1.0,
        }
        assert program.get(clip["url"]).status_code == 200
        assert program.get(clip["scene_url"]).status_code == 200

    def test_next_comparisons_respect_limit_and_exclusions(self, program, trainer):
        ids = trainer.ask(6)
        assert [each["id"] for each in claim_next(program)["comparisons"]] == ids[:4]
        at_hand = {"limit": 3, "exclude": ids[:2]}
        assert [each["id"] for each in claim_next(program, **at_hand)["comparisons"]] == ids[2:5]

    def test_next_comparisons_include_progress(self, program, trainer):
        trainer.store.experiments.describe(trainer.id, "Prefer the higher jump.", 175)
        one, *_ = trainer.ask(3)
        post(program, label(one))
        assert claim_next(program)["progress"] == {
            "mine": 1,
            "answered": 1,
            "asked": 3,
            "target": 175,
            "waiting": 2,
            "clips": None,
            "newest_label": 1,
        }


class TestSides:
    def test_answer_is_stored_in_stored_order(self, program, trainer, store):
        ids = trainer.ask(12)
        clips = dict(rows(store, tables.Comparison.id, tables.Comparison.left_hash))
        shown = {each["id"]: each for each in claim_next(program, limit=12)["comparisons"]}
        post(program, *[label(each, "left") for each in ids])
        answers = trainer.store.labels.answers(ids)
        recorded = dict(rows(store, tables.Label.comparison_id, tables.Label.is_swapped))
        assert len(set(recorded.values())) == 2
        for each in ids:
            was_on_the_left = shown[each]["left"]["hash"] == clips[each]
            assert answers[each] == (Answer.LEFT if was_on_the_left else Answer.RIGHT)
            assert recorded[each] == (not was_on_the_left)


class TestAnswering:
    @pytest.mark.parametrize("answer", ["left", "right", "equal", "cannot_tell"])
    def test_each_answer_is_stored(self, program, trainer, answer):
        [comparison_id] = trainer.ask()
        submitted = label(comparison_id, answer)
        assert post(program, submitted).json() == {
            "accepted": [submitted["request_id"]],
            "rejected": [],
            "warning": None,
        }
        assert program.get(f"/api/v1/comparisons/{comparison_id}").json()["answer"] == answer

    def test_response_time_and_details_are_stored(self, program, trainer, store):
        [comparison_id] = trainer.ask()
        details = {"replays": 2, "viewport": [1280, 720]}
        post(program, label(comparison_id, response_ms=1234, details=details))
        assert rows(store, tables.Label.response_ms, tables.Label.details) == [(1234, details)]

    def test_answer_can_be_withdrawn(self, program, trainer):
        [comparison_id] = trainer.ask()
        post(program, label(comparison_id, "equal"))
        post(program, label(comparison_id, None))
        assert trainer.store.labels.answers([comparison_id]) == {}
        assert [each["id"] for each in claim_next(program)["comparisons"]] == [comparison_id]
        assert program.get("/api/v1/experiments/hopper/labels").json() == []

    def test_invalid_label_is_rejected_alone(self, program, trainer):
        one, two = trainer.ask(2)
        bad = label(one, "both")
        good = [label(one), label(two)]
        receipt = post(program, good[0], bad, good[1]).json()
        assert receipt["accepted"] == [each["request_id"] for each in good]
        [refused] = receipt["rejected"]
        assert refused["request_id"] == bad["request_id"]
        assert refused["problem"]["status"] == 422
        assert "answer" in refused["problem"]["detail"]

    def test_label_for_concurrently_deleted_comparison_is_rejected_alone(
        self, program, trainer, store, monkeypatch
    ):
        gone, there = trainer.ask(2)
        answer_many = store.labels.add_many

        def delete_first(labels):
            store.experiments.delete("doomed")
            return answer_many(labels)

        store.experiments.ensure("doomed", ENV_ID, {})
        pair = (trainer.add_clip("a"), trainer.add_clip("b"))
        [gone] = store.comparisons.add(store.experiments.get("doomed").id, [pair], ENV_ID, 60, 0)
        monkeypatch.setattr(store.labels, "add_many", delete_first)
        receipt = post(program, label(gone), label(there)).json()
        assert len(receipt["accepted"]) == 1
        assert receipt["rejected"][0]["problem"]["status"] == 404
        assert list(store.labels.answers([there])) == [there]

    def test_oversized_batch_is_rejected(self, program, trainer):
        [comparison_id] = trainer.ask()
        response = post(program, *[label(comparison_id) for _ in range(101)])
        assert_problem(response, 422)
        assert trainer.store.labels.answers([comparison_id]) == {}

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"null",
            b"[]",
            b'"labels"',
            b"{}",
            b'{"labels": null}',
            b'{"labels": {}}',
            b"\xff\xfe",
            b'{"labels": [' + b"[" * 200_000,
            b'{"labels": [NaN, Infinity]}x',
        ],
    )
    @pytest.mark.parametrize(
        "content_type", ["application/json", "text/plain", "", "application/x-www-form-urlencoded"]
    )
    def test_malformed_body_is_rejected(self, program, body, content_type):
        headers = {"Content-Type": content_type}
        response = program.post("/api/v1/labels", content=body, headers=headers)
        assert_problem(response, response.status_code)
        assert response.status_code in (400, 422)


class TestGivenLabels:
    def test_labels_of_others_are_not_listed(self, program, trainer):
        [comparison_id] = trainer.ask()
        trainer.store.labels.add(comparison_id, Answer.LEFT, "guest")
        assert program.get("/api/v1/experiments/hopper/labels").json() == []
