"""Next comparisons and submission of labels."""

import json
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from rl_teacher.clips.answer import Answer, is_swapped
from rl_teacher.store import tables
from rl_teacher.store.store import Store
from rl_teacher.web import serializers
from tests.web.conftest import ENV_ID, NUM_FRAMES, SCENE_HASH, assert_problem, label, post


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request, database, clock):
    """Store in SQLite and in PostgreSQL."""
    url = database if request.param == "sqlite" else request.getfixturevalue("shared_postgres_url")
    with Store.open(url, now=clock) as opened:
        yield opened


def rows(store, *columns):
    with store.database.reading() as connection:
        return connection.execute(select(*columns)).all()


def claim_next(client, **query):
    return client.get("/api/v1/experiments/hopper/comparisons/next", params=query).json()


class TestPractice:
    def test_practice_gives_known_answers_in_the_order_of_sides_shown(self, guest, trainer):
        ids = trainer.ask(12)
        for each in ids:
            trainer.store.labels.add(each, Answer.LEFT, "owner")
        practice = "/api/v1/experiments/hopper/practice"
        assert guest.post(practice).json() == {"instructions": "", "comparisons": []}
        # Comparisons whose sides are shown in their stored order, and exchanged.
        swapped = [each for each in ids if is_swapped(each, "ann")]
        kept = [each for each in ids if not is_swapped(each, "ann")]
        for each in (*swapped[:2], kept[0]):
            trainer.store.comparisons.set_gold(each, Answer.LEFT)
        trainer.store.experiments.describe(trainer.id, "Prefer the higher jump.", 175)
        given = guest.post(practice).json()
        assert given["instructions"] == "Prefer the higher jump."
        answers = {each["id"]: each["answer"] for each in given["comparisons"]}
        assert answers == {swapped[0]: "right", swapped[1]: "right", kept[0]: "left"}
        assert trainer.store.labels.count_of_labeler(trainer.id, "ann") == 0


@pytest.mark.parametrize("request_line", ["POST practice", "GET labels"])
def test_each_clip_of_a_response_is_serialized_once(guest, trainer, monkeypatch, request_line):
    ids = trainer.ask(3)
    post(guest, *map(label, ids))
    for each in ids:
        trainer.store.comparisons.set_gold(each, Answer.LEFT)
    serialize, hashes = serializers.serialize_clip, []
    monkeypatch.setattr(
        serializers,
        "serialize_clip",
        lambda clip: hashes.append(clip.content_hash) or serialize(clip),
    )
    method, path = request_line.split()
    assert guest.request(method, f"/api/v1/experiments/hopper/{path}").status_code == 200
    assert len(hashes) == len(set(hashes)) == 6


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

    def test_newest_comparison_comes_first(self, program, trainer):
        [old] = trainer.ask(step=1)
        [new] = trainer.ask(step=2)
        assert [each["id"] for each in claim_next(program)["comparisons"]] == [new, old]

    def test_comparison_without_clips_is_not_returned(self, program, trainer):
        trainer.ask(rendered=False)
        assert claim_next(program)["comparisons"] == []

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

    @pytest.mark.parametrize(
        "query",
        [
            "limit=0",
            "limit=21",
            "limit=many",
            "limit=" + "9" * 5000,
            "exclude=x",
            "exclude=-1",
            "exclude=99999999999999999999",
            "&".join(f"exclude={n}" for n in range(1, 600)),
        ],
    )
    @pytest.mark.usefixtures("trainer")
    def test_invalid_query_is_rejected(self, program, query):
        response = program.get(f"/api/v1/experiments/hopper/comparisons/next?{query}")
        assert_problem(response, 422)


class TestSides:
    def test_sides_of_comparison_are_stable(self, program, trainer):
        trainer.ask(8)
        first, again = claim_next(program, limit=8), claim_next(program, limit=8)
        assert first == again

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

    def test_answer_is_returned_in_shown_order(self, program, trainer):
        ids = trainer.ask(12)
        post(program, *[label(each, "left") for each in ids])
        for each in ids:
            assert program.get(f"/api/v1/comparisons/{each}").json()["answer"] == "left"


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

    def test_repeated_request_id_has_no_effect(self, program, trainer, store):
        first, other = trainer.ask(2)
        submitted = label(first)
        replayed = submitted | {"comparison_id": other, "answer": "equal"}
        accepted = [post(program, each).json()["accepted"] for each in (submitted, submitted)]
        assert accepted == [[submitted["request_id"]]] * 2
        assert post(program, replayed).json()["accepted"] == []
        assert rows(store, tables.Label.comparison_id) == [(first,)]

    def test_repeated_request_id_in_one_batch_stores_one_label(self, program, trainer, store):
        submitted = label(trainer.ask()[0])
        assert len(post(program, submitted, submitted).json()["accepted"]) == 2
        assert len(rows(store, tables.Label.id)) == 1

    def test_answer_can_be_changed(self, program, trainer):
        [comparison_id] = trainer.ask()
        post(program, label(comparison_id, "equal"))
        post(program, label(comparison_id, "cannot_tell"))
        assert trainer.store.labels.answers([comparison_id]) == {comparison_id: Answer.CANNOT_TELL}

    def test_answer_can_be_withdrawn(self, program, trainer):
        [comparison_id] = trainer.ask()
        post(program, label(comparison_id, "equal"))
        post(program, label(comparison_id, None))
        assert trainer.store.labels.answers([comparison_id]) == {}
        assert [each["id"] for each in claim_next(program)["comparisons"]] == [comparison_id]
        assert program.get("/api/v1/experiments/hopper/labels").json() == {"labels": []}

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

    @pytest.mark.parametrize("comparison_id", [10_000, 2**31 - 1])
    def test_label_for_unknown_comparison_is_not_found(self, program, comparison_id):
        [refused] = post(program, label(comparison_id)).json()["rejected"]
        assert refused["problem"]["status"] == 404

    def test_label_for_deleted_experiment_is_not_found(self, program, trainer):
        [stale] = trainer.ask()
        trainer.store.experiments.delete("hopper")
        [refused] = post(program, label(stale)).json()["rejected"]
        assert refused["problem"]["status"] == 404
        assert_problem(program.get(f"/api/v1/comparisons/{stale}"), 404)

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

    def test_label_for_comparison_without_clips_is_rejected(self, program, trainer):
        [comparison_id] = trainer.ask(rendered=False)
        [refused] = post(program, label(comparison_id)).json()["rejected"]
        assert refused["problem"]["status"] == 409
        assert_problem(program.get(f"/api/v1/comparisons/{comparison_id}"), 409)

    @pytest.mark.parametrize(
        "fault",
        [
            {"request_id": "not a uuid"},
            {"request_id": None},
            {"request_id": "\ud800"},
            {"comparison_id": "1"},
            {"comparison_id": True},
            {"comparison_id": 1.5},
            {"comparison_id": 0},
            {"comparison_id": 2**63},
            {"answer": "LEFT"},
            {"answer": 1},
            {"answer": []},
            {"response_ms": "soon"},
            {"details": []},
            {"details": {"note": "x" * 5000}},
            {"details": {"null": "\0"}},
            {"details": {"half": "\ud800"}},
            {"details": {"ranking": "7f3c2a51-6f0e-4a52-9d4e-0c8a5b0e7d11"}},
            {"details": {"deep": [[[[[[[[[[]]]]]]]]]]}},
        ],
    )
    def test_invalid_field_is_named_in_the_rejection(self, program, trainer, fault):
        [comparison_id] = trainer.ask()
        response = post_as_python_json(program, [label(comparison_id) | fault])
        [refused] = response.json()["rejected"]
        assert refused["problem"]["status"] == 422
        assert next(iter(fault)) in refused["problem"]["detail"]
        assert trainer.store.labels.answers([comparison_id]) == {}

    def test_omitted_answer_does_not_withdraw_label(self, program, trainer):
        [comparison_id] = trainer.ask()
        post(program, label(comparison_id, "equal"))
        without = label(comparison_id)
        del without["answer"]
        assert len(post(program, without).json()["rejected"]) == 1
        assert trainer.store.labels.answers([comparison_id]) == {comparison_id: Answer.EQUAL}

    @pytest.mark.parametrize("response_ms", [-5, 2**31, 10**30])
    def test_impossible_response_time_is_dropped(self, program, trainer, store, response_ms):
        [comparison_id] = trainer.ask()
        submitted = label(comparison_id, response_ms=response_ms)
        assert len(post(program, submitted).json()["accepted"]) == 1
        assert rows(store, tables.Label.response_ms) == [(None,)]

    def test_empty_batch_is_accepted(self, program):
        assert post(program).json() == {"accepted": [], "rejected": [], "warning": None}

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

    def test_label_with_nan_is_rejected_alone(self, program, trainer):
        [comparison_id] = trainer.ask()
        response = post_as_python_json(program, [label(comparison_id, details={"x": float("nan")})])
        assert len(response.json()["rejected"]) == 1


def post_as_python_json(client, labels):
    """Post labels as Python's JSON, which permits NaN and Infinity."""
    headers = {"Content-Type": "application/json"}
    content = json.dumps({"labels": labels}).encode()
    return client.post("/api/v1/labels", content=content, headers=headers)


class TestGivenLabels:
    def test_own_labels_are_newest_first(self, program, trainer, clock):
        one, two = trainer.ask(2)
        post(program, label(one, "left"))
        clock.advance(60)
        second = label(two, "equal")
        post(program, second)
        newest, oldest = program.get("/api/v1/experiments/hopper/labels").json()["labels"]
        assert newest["request_id"] == second["request_id"]
        assert newest["comparison"]["answer"] == "equal"
        assert newest["answered_at"] == "2026-11-03T12:01:00Z"
        assert oldest["comparison"]["id"] == one
        assert oldest["comparison"]["answer"] == "left"

    def test_label_of_a_damaged_clip_does_not_hide_the_others(self, program, trainer):
        one, two = trainer.ask(2)
        post(program, label(one, "left"))
        post(program, label(two, "right"))
        damaged = trainer.store.comparisons.get(two).left.content_hash
        with trainer.store.database.writing() as connection:
            of_clip = tables.Clip.content_hash == damaged
            connection.execute(update(tables.Clip).where(of_clip).values(fps=0.0))
        listed = program.get("/api/v1/experiments/hopper/labels")
        assert listed.status_code == 200
        assert [each["comparison"]["id"] for each in listed.json()["labels"]] == [one]

    def test_labels_of_others_are_not_listed(self, program, trainer):
        [comparison_id] = trainer.ask()
        trainer.store.labels.add(comparison_id, Answer.LEFT, "guest")
        assert program.get("/api/v1/experiments/hopper/labels").json() == {"labels": []}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
ALMOST_A_LABEL = st.fixed_dictionaries(
    {},
    optional={
        "request_id": st.uuids().map(str) | JSON,
        "comparison_id": st.integers(-2, 5) | st.integers() | JSON,
        "answer": st.sampled_from(["left", "right", "equal", "cannot_tell", None, "up"]) | JSON,
        "response_ms": st.integers() | JSON,
        "details": st.dictionaries(st.text(), JSON, max_size=3) | JSON,
        "labeler": JSON,
    },
)


@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(labels=st.lists(ALMOST_A_LABEL | JSON, max_size=4) | JSON)
def test_arbitrary_labels_never_cause_server_errors(program, trainer, labels):
    if not trainer.store.experiments.get("hopper").asked:
        trainer.ask(3)
    response = post_as_python_json(program, labels)
    if response.status_code != 200:
        assert response.status_code == 422
        assert_problem(response, 422)
        return
    receipt = response.json()
    assert len(receipt["accepted"]) + len(receipt["rejected"]) == len(labels)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=300), content_type=st.sampled_from(["application/json", "x", ""]))
def test_arbitrary_bytes_never_cause_server_errors(program, body, content_type):
    headers = {"Content-Type": content_type}
    response = program.post("/api/v1/labels", content=body, headers=headers)
    assert response.status_code in (400, 422)
    assert_problem(response, response.status_code)


def test_request_ids_are_compared_by_value(program, trainer, store):
    [comparison_id] = trainer.ask()
    submitted = uuid4()
    for spelling in (
        str(submitted),
        str(submitted).upper(),
        submitted.hex,
        f"urn:uuid:{submitted}",
    ):
        post(program, label(comparison_id) | {"request_id": spelling})
    assert len(rows(store, tables.Label.id)) == 1


def test_comparison_that_is_deleted_during_its_request_is_not_found(
    guest, trainer, store, monkeypatch
):
    [comparison_id] = trainer.ask(1)
    find = store.leases.find

    def delete_and_find(answered):
        store.experiments.delete("hopper")
        return find(answered)

    monkeypatch.setattr(store.leases, "find", delete_and_find)
    assert_problem(guest.get(f"/api/v1/comparisons/{comparison_id}"), 404)
