"""Tests of assignment policies, run control, gold answers and diagnostics."""

import pytest
from sqlalchemy import select

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadConfig
from rl_teacher.store.records import AssignmentPolicy, Control
from rl_teacher.store.tables import Comparison
from tests.store.comparisons import ask, ask_and_show, recorded_events, rows_of


class TestAssignmentPolicy:
    def test_policy_is_stored_and_audited(self, store, experiment_id):
        policy = AssignmentPolicy(overlap=0.25, overlap_labelers=3, repeats=0.1, gold=0.05)
        store.experiments.set_assignment(experiment_id, policy, by="Zoë")
        store.experiments.set_assignment(experiment_id, policy, by="Zoë")
        assert store.experiments.assignment(experiment_id) == policy
        changed = {
            "overlap": {"from": 0.0, "to": 0.25},
            "overlap_labelers": {"from": 2, "to": 3},
            "repeats": {"from": 0.0, "to": 0.1},
            "gold": {"from": 0.0, "to": 0.05},
        }
        assert recorded_events(store) == [("assignment", changed, "Zoë")]

    def test_repeats_and_gold_of_more_than_all_are_refused(self, store, experiment_id):
        with pytest.raises(BadConfig, match="repeats"):
            store.experiments.set_assignment(experiment_id, AssignmentPolicy(repeats=0.6, gold=0.6))
        assert store.experiments.assignment(experiment_id) == AssignmentPolicy()

    def test_overlapping_share_is_assigned_to_several_labelers(self, store, experiment_id):
        policy = AssignmentPolicy(overlap=0.2, overlap_labelers=3)
        store.experiments.set_assignment(experiment_id, policy)
        ask(store, experiment_id, *range(1000))
        wanted = [each for (each,) in rows_of(store, select(Comparison.wanted))]
        # Mean 200 of 1,000, standard deviation 12.6; three deviations are allowed.
        assert set(wanted) == {1, 3}
        assert 162 <= wanted.count(3) <= 238

    def test_repeated_pair_keeps_number_of_labelers(self, store, experiment_id):
        ask(store, experiment_id, 1)
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(overlap=1.0))
        ask(store, experiment_id, 1, 2)
        assert rows_of(store, select(Comparison.wanted).order_by(Comparison.id)) == [(1,), (2,)]


class TestControl:
    def test_unset_command_stays_unchanged(self, store, experiment_id):
        store.experiments.set_control(experiment_id, Control(seconds_between=2.5))
        store.experiments.set_control(experiment_id, Control("pause"))
        store.experiments.set_control(experiment_id, Control(target_labels=700))
        assert store.experiments.control(experiment_id) == Control("pause", 2.5, 700)
        assert store.experiments.get("human-175").target_labels == 700

    def test_cleared_setting_returns_to_none(self, store, experiment_id):
        store.experiments.set_control(experiment_id, Control("pause", 2.5, 700))
        cleared = ["seconds_between", "target_labels"]
        store.experiments.set_control(experiment_id, Control(), cleared=cleared)
        assert store.experiments.control(experiment_id) == Control("pause")
        assert store.experiments.get("human-175").target_labels is None
        emptied = {
            "seconds_between": {"from": 2.5, "to": None},
            "target_labels": {"from": 700, "to": None},
        }
        assert recorded_events(store)[0] == ("control", emptied, "owner")

    @pytest.mark.parametrize(
        ("kind", "before", "value"),
        [("instructions", "", "Run <fast>."), ("tags", None, ["thesis"])],
    )
    def test_description_is_stored_and_audited(self, store, experiment_id, kind, before, value):
        store.experiments.set_description(experiment_id, kind, value, by="Zoë")
        store.experiments.set_description(experiment_id, kind, value, by="Zoë")
        assert getattr(store.experiments.get("human-175"), kind) == value
        details = {kind: {"from": before, "to": value}}
        assert recorded_events(store) == [(kind, details, "Zoë")]


class TestGold:
    def test_gold_answer_can_be_set_and_cleared(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        store.comparisons.set_gold(comparison_id, Answer.LEFT)
        [row] = store.comparisons.page(experiment_id).rows
        assert row.gold is Answer.LEFT
        store.comparisons.set_gold(comparison_id, None)
        [row] = store.comparisons.page(experiment_id).rows
        assert row.gold is None
        details = [details for _, details, _ in recorded_events(store)]
        assert details == [
            {"comparison": 1, "answer": {"from": "left", "to": None}},
            {"comparison": 1, "answer": {"from": None, "to": "left"}},
        ]
