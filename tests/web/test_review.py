"""A study as its owner runs it."""

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.store.records import Control
from rl_teacher.web import label_quality
from tests.web.conftest import ENV_ID, assert_problem, label, post

URL = "/api/v1/experiments/hopper"


def listed(program, **query):
    return program.get(f"{URL}/comparisons", params=query).json()


def ids(page):
    return [each["id"] for each in page["comparisons"]]


@pytest.fixture
def answered(trainer, guest, other_guest, store):
    """Four comparisons: one disputed, one agreed upon, one with one answer, one with none."""
    asked = trainer.ask(4)
    disputed, agreed, single, _ = asked
    for client, answer in ((guest, "equal"), (other_guest, "cannot_tell")):
        post(client, label(disputed, answer))
        post(client, label(agreed, "equal"))
    store.labels.add(disputed, Answer.LEFT, "ann")
    store.labels.add(disputed, Answer.RIGHT, "bob")
    post(guest, label(single, "equal"))
    return asked


class TestComparisons:
    def test_come_with_what_everybody_says_of_them(self, program, answered):
        disputed, *_ = answered
        [shown] = listed(program, disputed=True)["comparisons"]
        assert shown["id"] == disputed
        assert shown["is_disputed"]
        assert {each["labeler"]: each["answer"] for each in shown["answers"]} == {
            "ann": "left",
            "bob": "right",
        }
        assert shown["left"]["url"].startswith("/api/v1/clips/")

    def test_can_be_filtered(self, program, answered, store):
        disputed, agreed, single, none = answered
        store.comparisons.set_gold(single, Answer.LEFT)
        assert ids(listed(program, status="answered")) == [single, agreed, disputed]
        assert ids(listed(program, status="open")) == [none]
        assert ids(listed(program, labeler="bob")) == [agreed, disputed]
        assert ids(listed(program, labeler="bob", answer="right")) == [disputed]
        assert ids(listed(program, gold=True)) == [single]
        assert ids(listed(program, gold=False, disputed=False)) == [none, agreed]
        assert ids(listed(program, labeler="nobody")) == []

    @pytest.mark.parametrize("sort", ["newest", "oldest", "labels", "disputed"])
    def test_come_a_page_at_a_time_in_one_order(self, program, answered, sort):
        whole = ids(listed(program, sort=sort))
        assert sorted(whole) == answered
        found, after = [], None
        for _ in range(4):
            page = listed(program, sort=sort, limit=1, **({"after": after} if after else {}))
            found += ids(page)
            after = page["next"]
        assert found == whole
        assert after is None

    def test_that_cannot_be_shown_yet_have_no_clips(self, program, trainer):
        trainer.ask(shown=False)
        [shown] = listed(program)["comparisons"]
        assert shown["left"] is None

    @pytest.mark.parametrize(
        "query",
        [
            "status=lost",
            "sort=answer%3B+DROP+TABLE+labels",
            "sort=created_at",
            "labelers=ann",
            "where=1%3D1",
            "answer=both",
            "disputed=perhaps",
            "gold=2",
            "after=x",
            "after=WzFd",
            "after=%00",
            "after=" + "x" * 300,
            "after=WzFlOTk5XQ",
            "labeler=%00",
            "limit=0",
            "limit=201",
        ],
    )
    @pytest.mark.parametrize("sort", ["&sort=labels", ""])
    def test_are_not_asked_for_in_ways_that_are_made_up(self, program, trainer, query, sort):
        response = program.get(f"{URL}/comparisons?{query}{'' if 'sort' in query else sort}")
        if query == "after=WzFd" and not sort:
            assert response.status_code == 200
            return
        assert_problem(response, 422)

    def test_are_filtered_by_text_that_no_database_runs(self, program, answered):
        for name in ("' OR 1=1 --", '"; DROP TABLE labels; --', "%", "ann' --"):
            assert ids(listed(program, labeler=name)) == []
        assert len(ids(listed(program))) == 4


class TestGold:
    def test_is_set_and_taken_back(self, program, trainer):
        [comparison_id] = trainer.ask()
        for answer in ("left", None):
            given = {"answer": answer}
            response = program.put(f"/api/v1/comparisons/{comparison_id}/gold", json=given)
            assert response.status_code == 204
            assert listed(program)["comparisons"][0]["gold"] == answer

    def test_is_nothing_that_a_labeler_is_told(self, program, guest, trainer):
        [comparison_id] = trainer.ask()
        before = guest.get(f"/api/v1/comparisons/{comparison_id}").json()
        program.put(f"/api/v1/comparisons/{comparison_id}/gold", json={"answer": "left"})
        assert guest.get(f"/api/v1/comparisons/{comparison_id}").json() == before

    @pytest.mark.parametrize("given", [{}, {"answer": "both"}, {"answer": 1}, None])
    def test_that_is_no_answer_is_refused(self, program, trainer, given):
        [comparison_id] = trainer.ask()
        url = f"/api/v1/comparisons/{comparison_id}/gold"
        assert_problem(program.put(url, json=given), 422)

    def test_of_nothing_is_refused(self, program):
        url = "/api/v1/comparisons/4242/gold"
        assert_problem(program.put(url, json={"answer": "left"}), 404)


class TestAdjudicating:
    def test_keeps_the_owners_own_answer_in_the_comparisons_own_order(
        self, program, answered, store
    ):
        disputed, *_ = answered
        for answer in ("left", "right"):
            url = f"/api/v1/comparisons/{disputed}/adjudicate"
            assert program.post(url, json={"answer": answer}).status_code == 204
            [shown] = listed(program, labeler="owner")["comparisons"]
            assert {each["labeler"]: each["answer"] for each in shown["answers"]} == {
                "ann": "left",
                "bob": "right",
                "owner": answer,
            }

    def test_nothing_is_refused(self, program):
        url = "/api/v1/comparisons/4242/adjudicate"
        assert_problem(program.post(url, json={"answer": "left"}), 404)


class TestLibrary:
    def test_has_the_clips_of_an_environment(self, program, trainer):
        trainer.ask(2)
        url = f"/api/v1/environments/{ENV_ID}/clips"
        first = program.get(url, params={"limit": 3}).json()
        rest = program.get(url, params={"limit": 3, "after": first["next"]}).json()
        clips = first["clips"] + rest["clips"]
        assert len({each["hash"] for each in clips}) == 4
        assert {each["num_comparisons"] for each in clips} == {1}
        assert rest["next"] is None

    @pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "ALE%2FPong-v5", "nothing"])
    def test_of_an_environment_that_nobody_taught_is_empty(self, program, env_id):
        url = f"/api/v1/environments/{env_id}/clips"
        assert program.get(url).json() == {"clips": [], "next": None}

    def test_is_not_asked_for_what_no_database_can_compare(self, program):
        assert_problem(program.get("/api/v1/environments/a%00b/clips"), 422)


class TestChanging:
    def test_what_is_said_is_changed_and_nothing_else(self, program, trainer, store):
        said = program.patch(URL, json={"instructions": "Higher.", "target_labels": 50}).json()
        assert (said["instructions"], said["control"]["target_labels"]) == ("Higher.", 50)
        program.patch(URL, json={"seconds_between": 2, "study": {"overlap": 0.25}})
        said = program.patch(URL, json={"study": {"repeats": 0.1}}).json()
        assert said["study"] == {
            "overlap": 0.25,
            "overlap_labelers": 2,
            "repeats": 0.1,
            "gold": 0.0,
        }
        assert said["instructions"] == "Higher."
        assert store.experiments.control(trainer.id) == Control("run", 2.0, 50)

    def test_null_empties_and_what_is_left_out_stays(self, program, trainer, store):
        program.patch(URL, json={"target_labels": 50, "seconds_between": 2})
        said = program.patch(URL, json={"target_labels": None}).json()
        assert (said["control"]["target_labels"], said["progress"]["target"]) == (None, None)
        assert store.experiments.control(trainer.id) == Control("run", 2.0)
        program.patch(URL, json={"seconds_between": None, "instructions": None})
        assert store.experiments.control(trainer.id) == Control("run")
        assert program.patch(URL, json={}).json()["control"]["seconds_between"] is None

    def test_labelers_are_told_the_new_instructions(self, program, guest, trainer):
        program.patch(URL, json={"instructions": "<b>Higher</b>"})
        assert guest.get(URL).json()["instructions"] == "<b>Higher</b>"

    @pytest.mark.parametrize("state", ["pause", "stop", "run"])
    def test_the_trainer_is_told_what_to_do(self, program, trainer, store, state):
        said = program.post(f"{URL}/control", json={"state": state}).json()
        assert said["control"]["state"] == state
        assert store.experiments.control(trainer.id).state == state

    @pytest.mark.parametrize(
        "given",
        [
            {"instructions": "x" * 2_001},
            {"instructions": "\0"},
            {"instructions": 1},
            {"target_labels": 0},
            {"target_labels": 1.5},
            {"target_labels": 2**31},
            {"seconds_between": 0},
            {"seconds_between": "soon"},
            {"seconds_between": 1e9},
            {"study": {"overlap": 1.5}},
            {"study": {"overlap_labelers": 0}},
            {"study": {"repeats": 0.6, "gold": 0.6}},
            {"study": {"overlaps": 0.5}},
            {"env_id": "Reacher-v1"},
            [],
        ],
    )
    def test_what_makes_no_sense_is_refused_and_changes_nothing(self, program, trainer, given):
        before = program.get(URL).json()
        assert_problem(program.patch(URL, json=given), 422)
        assert program.get(URL).json() == before

    def test_a_state_that_is_none_is_refused(self, program, trainer):
        assert_problem(program.post(f"{URL}/control", json={"state": "explode"}), 422)

    def test_what_is_not_there_cannot_be_changed(self, program):
        assert_problem(program.patch(URL, json={"instructions": "x"}), 404)
        assert_problem(program.post(f"{URL}/control", json={"state": "run"}), 404)


class TestQuality:
    def test_of_nothing_says_nothing(self, program, trainer):
        said = program.get(f"{URL}/quality").json()
        assert (said["num_labels"], said["labelers"], said["alpha"]["alpha"]) == (0, [], None)

    def test_of_very_many_labels_is_that_of_the_newest_and_says_so(
        self, program, answered, monkeypatch
    ):
        monkeypatch.setattr(label_quality, "MAX_LABELS", 3)
        said = program.get(f"{URL}/quality").json()
        assert (said["is_complete"], said["num_labels"], said["num_shared"]) == (False, 3, 1)
        assert [each["num_answers"] for each in said["labelers"]] == [3, 2]

    def test_says_how_much_labelers_agree_and_what_each_does(self, program, answered):
        said = program.get(f"{URL}/quality").json()
        # Of two comparisons that both answered, they agree about one.
        assert said["num_shared"] == 2
        assert said["agreement"]["share"] == 0.5
        ann, bob = said["labelers"]
        assert (ann["name"], ann["num_answers"]) == ("ann", 3)
        assert (bob["name"], bob["num_answers"]) == ("bob", 2)
        assert bob["agreement"]["count"] == 2
        assert bob["periods"][0]["num_answers"] == 2

    def test_is_computed_anew_after_a_while(self, program, trainer, guest, clock):
        one, two = trainer.ask(2)
        post(guest, label(one))
        assert program.get(f"{URL}/quality").json()["num_labels"] == 1
        post(guest, label(two))
        assert program.get(f"{URL}/quality").json()["num_labels"] == 1
        clock.advance(10)
        assert program.get(f"{URL}/quality").json()["num_labels"] == 2


class TestFindings:
    def test_are_empty_until_there_are_some(self, program, trainer):
        empty = {"step": None, "highest": [], "lowest": [], "calibration": []}
        assert program.get(f"{URL}/diagnostics").json() == empty

    def test_name_the_clips_that_the_predictor_likes(self, program, trainer, store):
        liked = trainer.hang("liked")
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
        said = program.get(f"{URL}/diagnostics").json()
        [best] = said["highest"]
        assert (best["clip"]["hash"], best["predicted_return"]) == (liked, 1.5)
        assert said["calibration"] == [{"predicted": 0.25, "observed": None, "count": 0}]


class TestWhatLabelersSee:
    def test_of_an_experiment_is_no_setting_and_no_figure(self, program, guest, trainer, store):
        store.metrics.append(trainer.id, 1, {"true_return": 0.5})
        episode = {"clip": trainer.hang("latest"), "predicted_rewards": [1.0], "true_return": 3.0}
        store.experiments.set_latest_episode(trainer.id, episode | {"step": 2})
        assert program.get(URL).json()["config"] == {"seed": 3}
        for shown in (
            guest.get(URL).json(),
            *guest.get("/api/v1/experiments").json()["experiments"],
        ):
            assert shown.get("config", {}) == shown.get("metrics", {}) == {}
            assert shown["sparkline"] == []
            assert shown["latest_episode"]["true_return"] is None
            assert shown["latest_episode"]["predicted_rewards"] is None
            assert not {"study", "control"} & set(shown)

    def test_of_a_comparison_is_their_own_answer_alone(self, guest, other_guest, program, trainer):
        [comparison_id] = trainer.ask()
        post(other_guest, label(comparison_id, "equal"))
        url = f"/api/v1/comparisons/{comparison_id}"
        assert guest.get(url).json()["answer"] is None
        assert program.get(url).json()["answer"] is None
        assert other_guest.get(url).json()["answer"] == "equal"
