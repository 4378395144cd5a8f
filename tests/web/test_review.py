"""Review and control of experiments by their owner."""

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.store.records import Control, RenderedClip
from tests.web.conftest import ENV_ID, assert_problem, label, post

URL = "/api/v1/experiments/hopper"


def listed(program, **query):
    return program.get(f"{URL}/comparisons", params=query).json()


def ids(page):
    return [each["id"] for each in page["rows"]]


@pytest.fixture
def answered(trainer, guest, other_guest, store):
    """Comparisons: one disputed, one agreed, one with a single answer and one without."""
    comparison_ids = trainer.ask(4)
    disputed, agreed, single, _ = comparison_ids
    for client, answer in ((guest, "equal"), (other_guest, "cannot_tell")):
        post(client, label(disputed, answer))
        post(client, label(agreed, "equal"))
    store.labels.add(disputed, Answer.LEFT, "ann")
    store.labels.add(disputed, Answer.RIGHT, "bob")
    post(guest, label(single, "equal"))
    return comparison_ids


class TestComparisons:
    def test_comparisons_are_filtered(self, program, answered, store):
        disputed, agreed, single, none = answered
        store.comparisons.set_gold(single, Answer.LEFT)
        assert ids(listed(program, status="answered")) == [single, agreed, disputed]
        assert ids(listed(program, status="open")) == [none]
        assert ids(listed(program, labeler="bob")) == [agreed, disputed]
        assert ids(listed(program, labeler="bob", answer="right")) == [disputed]
        assert ids(listed(program, gold=True)) == [single]
        assert ids(listed(program, gold=False, disputed=False)) == [none, agreed]
        assert ids(listed(program, labeler="nobody")) == []

    def test_pages_are_newest_first(self, program, answered):
        found, after = [], None
        for _ in range(4):
            page = listed(program, limit=1, **({"after": after} if after else {}))
            found += ids(page)
            after = page["next"]
        assert found == ids(listed(program)) == answered[::-1]
        assert after is None

    @pytest.mark.parametrize(
        "query",
        [
            "status=lost",
            "sort=newest",
            "labelers=ann",
            "where=1%3D1",
            "answer=both",
            "disputed=perhaps",
            "gold=2",
            "after=x",
            "after=0",
            "after=%00",
            "after=" + "x" * 300,
            "after=1e999",
            "labeler=%00",
            "limit=0",
            "limit=201",
        ],
    )
    def test_invalid_query_is_rejected(self, program, trainer, query):
        assert_problem(program.get(f"{URL}/comparisons?{query}"), 422)


class TestGold:
    def test_gold_answer_is_set_and_removed(self, program, trainer):
        [comparison_id] = trainer.ask()
        for answer in ("left", None):
            payload = {"answer": answer}
            response = program.put(f"/api/v1/comparisons/{comparison_id}/gold", json=payload)
            assert response.status_code == 204
            assert listed(program)["rows"][0]["gold"] == answer

    @pytest.mark.parametrize("payload", [{}, {"answer": "both"}, {"answer": 1}, None])
    def test_invalid_gold_answer_is_rejected(self, program, trainer, payload):
        [comparison_id] = trainer.ask()
        url = f"/api/v1/comparisons/{comparison_id}/gold"
        assert_problem(program.put(url, json=payload), 422)


class TestAdjudication:
    def test_owner_labels_in_stored_order_and_withdraws(self, program, answered):
        disputed, *_ = answered
        [comparison] = [each for each in listed(program)["rows"] if each["id"] == disputed]
        for answer in ("left", "right", None):
            own = label(disputed, answer, left_hash=comparison["left"]["hash"])
            assert post(program, own).json()["rejected"] == []
            [found] = [each for each in listed(program)["rows"] if each["id"] == disputed]
            given = {each["labeler"]: each["answer"] for each in found["answers"]}
            assert given == {"ann": "left", "bob": "right"} | ({"owner": answer} if answer else {})


class TestUpdates:
    def test_update_changes_only_given_fields(self, program, trainer, store):
        response = program.patch(URL, json={"instructions": "Higher.", "target_labels": 50}).json()
        assert (response["instructions"], response["control"]["target_labels"]) == ("Higher.", 50)
        program.patch(URL, json={"seconds_between": 2, "assignment": {"overlap": 0.25}})
        response = program.patch(URL, json={"assignment": {"repeats": 0.1}}).json()
        assert response["assignment"] == {
            "overlap": 0.25,
            "overlap_labelers": 2,
            "repeats": 0.1,
            "gold": 0.0,
        }
        assert response["instructions"] == "Higher."
        assert store.experiments.control(trainer.id) == Control("run", 2.0, 50)

    def test_null_removes_value_and_omitted_field_is_kept(self, program, trainer, store):
        program.patch(URL, json={"target_labels": 50, "seconds_between": 2})
        response = program.patch(URL, json={"target_labels": None}).json()
        assert (response["control"]["target_labels"], response["progress"]["target"]) == (
            None,
            None,
        )
        assert store.experiments.control(trainer.id) == Control("run", 2.0)
        program.patch(URL, json={"seconds_between": None, "instructions": None})
        assert store.experiments.control(trainer.id) == Control("run")
        assert program.patch(URL, json={}).json()["control"]["seconds_between"] is None

    def test_owner_switches_reward_of_run_with_labels(self, program, store):
        store.experiments.ensure("taught", "ShortHopper-v1", {"predictor": "synth"})
        url = "/api/v1/experiments/taught"
        assert program.get(url).json()["control"]["reward"] == "predicted"
        response = program.patch(url, json={"reward": "true", "target_labels": 50}).json()
        assert (response["control"]["reward"], response["control"]["target_labels"]) == ("true", 50)
        event = program.get("/api/v1/audit").json()["rows"][-2:]
        changed = {"reward": {"from": None, "to": "true"}}
        assert changed in [each["details"] for each in event]

    def test_reward_without_alternative_is_not_switched(self, program, trainer, store):
        assert program.get(URL).json()["control"]["reward"] is None
        problem = program.patch(URL, json={"reward": "true", "instructions": "Higher."})
        assert_problem(problem, 422)
        assert "switch_to_true_reward()" in problem.json()["detail"]
        assert store.experiments.get("hopper").instructions != "Higher."
        assert_problem(program.patch(URL, json={"reward": "mine"}), 422)

    @pytest.mark.parametrize("state", ["pause", "stop", "run"])
    def test_control_request_sets_requested_state(self, program, trainer, store, state):
        response = program.post(f"{URL}/control", json={"state": state}).json()
        assert response["control"]["state"] == state
        assert store.experiments.control(trainer.id).state == state

    @pytest.mark.parametrize(
        "payload",
        [
            {"instructions": "x" * 2_001},
            {"instructions": "\0"},
            {"instructions": 1},
            {"target_labels": 0},
            {"target_labels": 1.5},
            {"target_labels": 2**31},
            {"target_steps": 0},
            {"seconds_between": 0},
            {"seconds_between": 0.09},
            {"seconds_between": 1e-320},
            {"seconds_between": "soon"},
            {"seconds_between": 1e9},
            {"assignment": {"overlap": 1.5}},
            {"assignment": {"overlap_labelers": 0}},
            {"assignment": {"repeats": 0.6, "gold": 0.6}, "instructions": "x", "target_labels": 7},
            {"assignment": {"overlaps": 0.5}},
            {"env_id": "Reacher-v1"},
            [],
        ],
    )
    def test_invalid_update_changes_nothing(self, program, trainer, payload):
        before = program.get(URL).json()
        assert_problem(program.patch(URL, json=payload), 422)
        assert program.get(URL).json() == before


class TestQuality:
    def test_quality_without_labels_is_empty(self, program, trainer):
        response = program.get(f"{URL}/quality").json()
        assert (response["num_labels"], response["labelers"], response["alpha"]["alpha"]) == (
            0,
            [],
            None,
        )

    def test_quality_reports_agreement_and_labelers(self, program, answered):
        response = program.get(f"{URL}/quality").json()
        # Both labelers answered two comparisons and agree on one.
        assert response["num_shared"] == 2
        assert response["agreement"]["share"] == 0.5
        ann, bob = response["labelers"]
        assert (ann["name"], ann["num_answers"]) == ("ann", 3)
        assert (bob["name"], bob["num_answers"]) == ("bob", 2)
        assert bob["agreement"]["count"] == 2
        assert sum(bob["activity"]) == 3


class TestDiagnostics:
    def test_diagnostics_list_displayable_clips(self, program, trainer, store):
        liked = trainer.add_clip("liked")
        diagnostics = {
            "step": 7,
            "best": [
                {"clip": liked, "predicted_return": 1.5},
                {"clip": "0" * 64, "predicted_return": 1.0},
            ],
            "least": [],
            "calibration": [{"predicted": 0.25, "observed": float("nan"), "count": 0}],
        }
        store.experiments.set_diagnostics(trainer.id, diagnostics)
        response = program.get(f"{URL}/diagnostics").json()
        [best] = response["highest"]
        assert (best["clip"]["hash"], best["predicted_return"]) == (liked, 1.5)
        assert response["calibration"] == [{"predicted": 0.25, "observed": None, "count": 0}]


class TestLabelerView:
    def test_labelers_see_no_settings_or_metrics(self, program, guest, trainer, store):
        store.metrics.append(trainer.id, 1, {"true_return": 0.5})
        episode = {
            "clip": trainer.add_clip("latest"),
            "predicted_rewards": [1.0],
            "true_return": 3.0,
        }
        store.experiments.set_latest_episode(trainer.id, episode | {"step": 2})
        assert program.get(URL).json()["config"] == {"seed": 3}
        for comparison in (
            guest.get(URL).json(),
            *guest.get("/api/v1/experiments").json(),
        ):
            assert comparison.get("config", {}) == comparison.get("metrics", {}) == {}
            assert comparison["sparkline"] == []
            assert comparison["latest_episode"]["true_return"] is None
            assert comparison["latest_episode"]["predicted_rewards"] is None
            assert not {"assignment", "control"} & set(comparison)


class TestLibrary:
    def test_clips_of_environment_are_paged_newest_first(self, program, trainer):
        trainer.ask(2)
        url = f"/api/v1/environments/{ENV_ID}/clips"
        whole = program.get(url).json()
        first = program.get(url, params={"limit": 3}).json()
        rest = program.get(url, params={"limit": 3, "after": first["next"]}).json()
        assert first["rows"] + rest["rows"] == whole["rows"]
        assert len({each["hash"] for each in whole["rows"]}) == 4
        assert (whole["next"], rest["next"]) == (None, None)

    def test_clips_of_experiment_are_those_that_it_compares_or_keeps(self, program, trainer, store):
        trainer.ask(1)
        url = f"/api/v1/environments/{ENV_ID}/clips"
        compared = {each["hash"] for each in program.get(url).json()["rows"]}
        clip = RenderedClip(ENV_ID, 8, "video", "clips/a.mp4", None, num_frames=8, fps=10.0)
        store.clips.publish({"episode": clip, "of another": clip})
        store.episodes.add(trainer.id, {"clip": "episode", "step": 1})
        page = program.get(url, params={"experiment": "hopper", "limit": 2}).json()
        rest = program.get(url, params={"experiment": "hopper", "after": page["next"]}).json()
        found = [each["hash"] for each in page["rows"] + rest["rows"]]
        assert sorted(found) == sorted({*compared, "episode"})
        assert_problem(program.get(url, params={"experiment": "none"}), 404)


class TestSettings:
    def test_settings_of_sections_are_described_by_their_full_names(self, program):
        meanings = program.get("/api/v1/settings").json()
        assert meanings["ppo.gamma"] == "discount factor"
        assert meanings["reward.ensemble_size"].startswith("ensemble members")
        assert "gamma" not in meanings
