"""Tests of assignment policies, run control, gold answers and diagnostics."""

import pytest
from sqlalchemy import select

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadConfig, ComparisonNotFound, ExperimentNotFound
from rl_teacher.store.records import AssignmentPolicy, Control
from rl_teacher.store.tables import Comparison
from tests.store.comparisons import ask, ask_and_show, recorded_events, rows_of


class TestAssignmentPolicy:
    def test_default_policy_gives_labelers_different_comparisons(self, store, experiment_id):
        assert store.experiments.assignment(experiment_id) == AssignmentPolicy(0.0, 2, 0.0, 0.0)

    def test_policy_is_stored_and_audited(self, store, experiment_id):
        policy = AssignmentPolicy(overlap=0.25, overlap_labelers=3, repeats=0.1, gold=0.05)
        store.experiments.set_assignment(experiment_id, policy, by="Zoë")
        store.experiments.set_assignment(experiment_id, policy, by="Zoë")
        assert store.experiments.assignment(experiment_id) == policy
        assert recorded_events(store) == [("assignment", vars(policy), "Zoë")]

    @pytest.mark.parametrize(
        "policy",
        [
            AssignmentPolicy(overlap=1.1),
            AssignmentPolicy(repeats=-0.1),
            AssignmentPolicy(gold=float("nan")),
            AssignmentPolicy(repeats=0.6, gold=0.6),
            AssignmentPolicy(overlap_labelers=0),
            AssignmentPolicy(overlap_labelers=10**9),
        ],
    )
    def test_invalid_policy_is_refused(self, store, experiment_id, policy):
        with pytest.raises(BadConfig):
            store.experiments.set_assignment(experiment_id, policy)
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

    def test_policy_of_unknown_experiment_raises_not_found(self, store):
        with pytest.raises(ExperimentNotFound):
            store.experiments.set_assignment(999, AssignmentPolicy())
        assert store.experiments.assignment(999) == AssignmentPolicy()


class TestControl:
    def test_default_control_is_run_without_settings(self, store, experiment_id):
        assert store.experiments.control(experiment_id) == Control("run")

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
        emptied = {"seconds_between": None, "target_labels": None}
        assert recorded_events(store)[0] == ("control", emptied, "owner")

    def test_instructions_are_stored_and_audited(self, store, experiment_id):
        store.experiments.set_control(experiment_id, Control(instructions="Run <fast>."), by="Zoë")
        assert store.experiments.get("human-175").instructions == "Run <fast>."
        assert recorded_events(store) == [("instructions", {"instructions": "Run <fast>."}, "Zoë")]

    @pytest.mark.parametrize(
        "control",
        [
            Control(seconds_between=0.0),
            Control(seconds_between=float("inf")),
            Control(target_labels=0),
            Control(target_labels=2**31),
            Control(instructions="x" * 20_001),
        ],
    )
    def test_invalid_control_is_refused(self, store, experiment_id, control):
        with pytest.raises(BadConfig):
            store.experiments.set_control(experiment_id, control)
        assert store.experiments.control(experiment_id) == Control("run")
        assert recorded_events(store) == []

    def test_control_of_unknown_experiment_raises_not_found(self, store):
        with pytest.raises(ExperimentNotFound):
            store.experiments.set_control(999, Control("stop"))
        assert recorded_events(store) == []


class TestGold:
    def test_gold_answer_can_be_set_and_cleared(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        store.comparisons.set_gold(comparison_id, Answer.LEFT)
        [row] = store.comparisons.page(experiment_id).rows
        assert row.gold is Answer.LEFT
        store.comparisons.set_gold(comparison_id, None)
        [row] = store.comparisons.page(experiment_id).rows
        assert row.gold is None
        assert [details["answer"] for _, details, _ in recorded_events(store)] == [None, "left"]

    @pytest.mark.parametrize("comparison_id", [0, 999, 2**40])
    def test_gold_of_unknown_comparison_raises_not_found(self, store, comparison_id):
        with pytest.raises(ComparisonNotFound):
            store.comparisons.set_gold(comparison_id, Answer.LEFT)


class TestAdjudicating:
    def test_adjudication_adds_label_and_event(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "Ada")
        store.labels.add(comparison_id, Answer.RIGHT, "Bob")
        store.labels.adjudicate(comparison_id, Answer.RIGHT)
        answers = list(store.labels.votes([comparison_id])[comparison_id].values())
        assert answers == [Answer.LEFT, Answer.RIGHT, Answer.RIGHT]
        assert recorded_events(store) == [
            ("adjudicate", {"comparison": comparison_id, "answer": "right"}, "owner")
        ]

    def test_withdrawn_adjudication_does_not_count_and_is_recorded(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.adjudicate(comparison_id, Answer.RIGHT)
        store.labels.adjudicate(comparison_id, None)
        assert store.labels.votes([comparison_id]) == {}
        assert store.experiments.get("human-175").answered == 0
        withdrawn = {"comparison": comparison_id, "answer": None}
        assert ("adjudicate", withdrawn, "owner") in recorded_events(store)

    def test_adjudicating_unknown_comparison_raises_not_found(self, store):
        with pytest.raises(ComparisonNotFound):
            store.labels.adjudicate(999, Answer.LEFT)
        assert recorded_events(store) == []


class TestDiagnostics:
    def test_diagnostics_are_stored_with_nan_as_null(self, store, experiment_id):
        assert store.experiments.diagnostics(experiment_id) is None
        store.experiments.set_diagnostics(experiment_id, {"best": [1, float("nan")]})
        assert store.experiments.diagnostics(experiment_id) == {"best": [1, None]}
