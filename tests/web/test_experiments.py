"""Experiments: status, messages and metrics."""

from uuid import uuid4

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.runs.folder import home
from tests.web.conftest import ENV_ID, FPS, NUM_FRAMES, assert_problem


def detail(client, name="hopper"):
    return client.get(f"/api/v1/experiments/{name}").json()


class TestSummary:
    def test_summary_describes_experiment(self, program, trainer):
        trainer.store.experiments.describe(trainer.id, "Prefer the higher jump.", 175)
        trainer.set_phase("training")
        [summary] = program.get("/api/v1/experiments").json()
        assert summary.pop("progress")["target"] == 175
        assert summary == {
            "name": "hopper",
            "env_id": "ShortHopper-v1",
            "phase": "training",
            "message": "training now",
            "step": 10,
            "num_steps": 100,
            "steps_per_second": 9.5,
            "sparkline": [],
            "instructions": "Prefer the higher jump.",
            "updated_at": "2026-11-03T12:00:00Z",
            "is_running": True,
            "is_archived": False,
            "num_missing": 0,
            "waiting_since": None,
            "warnings": [],
            "is_extendable": False,
            "beats_untrained": False,
            "num_fits": 0,
            "asks_people": False,
            "agent": None,
            "seed": 3,
            "wall_s": None,
            "tags": [],
            "first_episode": None,
            "latest_episode": None,
        }

    @pytest.mark.parametrize(
        ("phase", "later_phase"),
        [
            ("training", "lost"),
            ("waiting", "lost"),
            ("finished", "finished"),
            ("stopped", "stopped"),
        ],
    )
    def test_silent_run_is_lost_unless_it_had_ended(
        self, program, trainer, clock, phase, later_phase
    ):
        trainer.set_phase(phase)
        clock.advance(16)
        shown = detail(program)
        assert (shown["phase"], shown["is_running"]) == (later_phase, False)

    def test_run_with_heartbeat_is_running_until_its_loop_is_stalled(
        self, program, trainer, store, clock
    ):
        trainer.set_phase("training")
        clock.advance(299)
        trainer.beat()
        assert detail(program)["phase"] == "training"
        clock.advance(2)
        trainer.beat()
        shown = detail(program)
        # It still holds its experiment, so that it can be neither renamed nor deleted.
        assert (shown["phase"], shown["is_running"]) == ("lost", True)
        assert "alive" in shown["message"]

    def test_failed_run_has_ended_and_labelers_do_not_see_its_error(
        self, program, guest, trainer, clock
    ):
        trainer.set_phase("failed")
        clock.advance(1_000)
        shown = detail(program)
        assert (shown["phase"], shown["is_running"]) == ("failed", False)
        assert shown["message"] == "failed now"
        assert "The run has failed" in detail(guest)["message"]

    def test_silent_run_of_a_wrapper_is_idle_and_named_as_a_program(self, program, store, clock):
        config = {"spaces": {}, "segment_steps": 20}
        experiment_id = store.experiments.ensure("wrapped", "Pendulum-v1", config)
        store.experiments.set_status(experiment_id, {"phase": "training", "message": "training"})
        assert detail(program, "wrapped")["phase"] == "training"
        clock.advance(16)
        shown = detail(program, "wrapped")
        assert (shown["phase"], shown["is_running"]) == ("idle", False)
        assert "run it again" in shown["message"]


class TestClips:
    def test_clips_are_counted_where_they_are_sorted(self, program, trainer, store):
        assert detail(program)["progress"]["clips"] is None
        config = {"seed": 3, "queries": "sort", "n_clips": 25}
        sorting = store.experiments.ensure("sorting", "ShortHopper-v1", config)
        assert detail(program, "sorting")["progress"]["clips"] == {"compared": 0, "target": 25}
        for pair in (("a", "b"), ("b", "c")):
            hashes = [trainer.add_clip(each) for each in pair]
            store.comparisons.add(sorting, [tuple(hashes)], "ShortHopper-v1", 60, 0)
        assert detail(program, "sorting")["progress"]["clips"] == {"compared": 3, "target": 25}


@pytest.mark.parametrize(("config", "target"), [({"imported": {}}, 1), ({"seed": 3}, None)])
def test_only_a_data_set_aims_at_its_comparisons(config, target, program, trainer, store):
    experiment_id = store.experiments.ensure("other", "ShortHopper-v1", config)
    hashes = [trainer.add_clip(each) for each in "ab"]
    store.comparisons.add(experiment_id, [tuple(hashes)], "ShortHopper-v1", 60, 0)
    assert detail(program, "other")["progress"]["target"] == target


def test_newest_label_rises_with_changed_and_withdrawn_answers(program, trainer, store):
    [comparison_id] = trainer.ask()
    found = [detail(program)["progress"]["newest_label"]]
    for answer in (Answer.LEFT, Answer.RIGHT, None):
        store.labels.add(comparison_id, answer, "ann")
        found.append(detail(program)["progress"]["newest_label"])
    assert found[0] == 0
    assert sorted(set(found)) == found


class TestMetrics:
    def test_metrics_rows_are_oldest_first_and_start_after_cursor(self, program, trainer):
        for step in (1, 2, 3):
            trainer.store.metrics.append(trainer.id, step, {"true_return": step / 2})
        rows = program.get("/api/v1/experiments/hopper/metrics").json()
        assert [row["step"] for row in rows] == [1, 2, 3]
        assert rows[0] == {"id": rows[0]["id"], "step": 1, "true_return": 0.5}
        after = {"after": rows[1]["id"]}
        newer = program.get("/api/v1/experiments/hopper/metrics", params=after).json()
        assert newer == rows[2:]

    def test_sparkline_shows_true_return(self, program, trainer):
        for step in range(100):
            row = {"true_return": float(step) if step > 50 else None, "predicted_return": 1.0}
            trainer.store.metrics.append(trainer.id, step, row)
        spark = detail(program)["sparkline"]
        assert 10 < len(spark) <= 40
        assert spark[-1] == 99
        assert spark == sorted(spark)


class TestLatestEpisode:
    def test_latest_episode_contains_clip_and_predicted_rewards(self, program, trainer):
        clip = trainer.add_clip("latest")
        rewards = [0.123456] * NUM_FRAMES
        episode = {"clip": clip, "predicted_rewards": rewards, "true_return": 3.5, "step": 400}
        trainer.store.experiments.set_latest_episode(trainer.id, episode)
        shown = detail(program)["latest_episode"]
        assert shown["clip"]["hash"] == clip
        assert shown["clip"]["seconds"] == NUM_FRAMES / FPS
        assert shown["predicted_rewards"] == rewards
        assert (shown["true_return"], shown["step"]) == (3.5, 400)

    def test_episodes_of_earlier_agents_are_listed_by_step_with_their_clips(self, program, trainer):
        for step in (20, 3):
            episode = {"clip": trainer.add_clip(f"episode {step}"), "step": step}
            episode |= {"predicted_return": 1.5 * step, "true_return": float("nan")}
            trainer.store.episodes.add(trainer.id, episode)
        response = program.get("/api/v1/experiments/hopper/episodes")
        episodes = response.json()
        assert [(each["step"], each["predicted_return"]) for each in episodes] == [
            (3, 4.5),
            (20, 30),
        ]
        assert [each["true_return"] for each in episodes] == [None, None]
        hashes = [each["clip"]["hash"] for each in episodes]
        assert [trainer.store.clips.delete_unused(each) for each in hashes] == [None, None]

    def test_waiting_run_tells_number_of_missing_labels(self, program, trainer, clock):
        trainer.set_phase("waiting", num_missing=7, waiting_since=clock.now.isoformat())
        shown = detail(program)
        assert (shown["num_missing"], shown["waiting_since"]) == (7, "2026-11-03T12:00:00Z")
        trainer.set_phase("training", num_missing=7)
        assert detail(program)["num_missing"] == 0

    def test_warnings_are_for_the_owner_alone(self, program, guest, trainer):
        problems = {"held_out": "Only 55 % are right.", "reward": "Only 8 % agree."}
        trainer.set_phase("training", problems=problems)
        shown = [{"kind": kind, "text": text} for kind, text in problems.items()]
        assert detail(program)["warnings"] == shown
        assert detail(guest)["warnings"] == []

    def test_labels_need_not_agree_with_the_reward_once_there_are_instructions(
        self, program, trainer
    ):
        trainer.set_phase("training", problems={"reward": "Only 8 % agree."})
        program.patch("/api/v1/experiments/hopper", json={"instructions": "Prefer the backflip."})
        assert detail(program)["warnings"] == []

    def test_finished_run_is_extendable_while_it_reports(self, program, trainer, clock):
        trainer.set_phase("finished", is_extendable=True)
        assert detail(program)["is_extendable"]
        clock.advance(16)
        assert not detail(program)["is_extendable"]

    def test_finished_experiment_offers_no_comparison(self, program, trainer):
        trainer.ask(2)
        url = "/api/v1/experiments/hopper/comparisons/next"
        trainer.set_phase("finished")
        offered = program.get(url).json()
        assert offered["comparisons"] == []
        assert offered["progress"]["waiting"] == detail(program)["progress"]["waiting"] == 0
        trainer.set_phase("training")
        assert len(program.get(url).json()["comparisons"]) == 2
        assert detail(program)["progress"]["waiting"] == 2


def list_experiments(client):
    return client.get("/api/v1/experiments").json()


class TestManagement:
    URL = "/api/v1/experiments/hopper"

    @pytest.fixture
    def ended(self, trainer, clock):
        """Experiment whose trainer does not report any more."""
        clock.advance(60)
        return trainer

    def test_owner_renames_experiment(self, program, ended):
        response = program.post(f"{self.URL}/rename", json={"name": "walker"})
        assert response.json()["name"] == "walker"
        assert_problem(program.get(self.URL), 404)

    def test_archived_experiment_is_listed_for_owner_only(self, program, guest, ended):
        assert program.post(f"{self.URL}/archive").status_code == 204
        listed = [
            [(each["name"], each["is_archived"]) for each in list_experiments(client)]
            for client in (program, guest)
        ]
        assert listed == [[("hopper", True)], []]
        assert program.post(f"{self.URL}/restore").status_code == 204
        assert len(list_experiments(guest)) == 1

    def test_archived_experiment_is_not_found_by_labelers(self, program, guest, ended):
        [comparison] = ended.ask()
        addresses = [
            *(self.URL, f"{self.URL}/labels", f"{self.URL}/effect"),
            f"{self.URL}/comparisons/next",
            *(f"/api/v1/comparisons/{comparison}", "/api/v1/events?experiment=hopper"),
        ]
        assert program.post(f"{self.URL}/archive").status_code == 204
        for address in addresses:
            assert_problem(guest.get(address), 404)
        withdrawn = guest.delete(f"{self.URL}/rankings/{uuid4()}")
        assert "experiment" in assert_problem(withdrawn, 404).lower()
        assert program.get(self.URL).json()["is_archived"]
        assert program.post(f"{self.URL}/restore").status_code == 204
        assert guest.get(self.URL).status_code == 200

    @pytest.mark.parametrize("action", ["delete", "archive", "rename"])
    def test_running_experiment_is_refused(self, program, trainer, action):
        method, path, body = {
            "delete": ("DELETE", self.URL, None),
            "archive": ("POST", f"{self.URL}/archive", None),
            "rename": ("POST", f"{self.URL}/rename", {"name": "walker"}),
        }[action]
        with trainer.store.locks.hold("hopper"):
            response = program.request(method, path, json=body)
        assert "Stop it first" in assert_problem(response, 409)

    def test_invalid_or_taken_name_is_rejected(self, program, ended, store):
        store.experiments.ensure("walker", ENV_ID, {})
        for name, status in (("a/b", 422), ("walker", 409)):
            assert_problem(program.post(f"{self.URL}/rename", json={"name": name}), status)

    def test_damaged_configuration_is_named_and_nothing_is_renamed(self, program, ended):
        folder = home() / "experiments" / "hopper"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{")
        response = program.post(f"{self.URL}/rename", json={"name": "walker"})
        assert_problem(response, 502)
        assert [each["name"] for each in list_experiments(program)] == ["hopper"]
