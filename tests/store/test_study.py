"""What an owner decides: study, control, gold; and what the trainer finds out."""

import pytest
from sqlalchemy import select

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadConfig, ComparisonNotFound, ExperimentNotFound
from rl_teacher.store.records import AssignmentPolicy, Control
from rl_teacher.store.tables import Comparison
from tests.store.comparisons import ENV_ID, ask, ask_and_show, rows_of


@pytest.fixture
def experiment_id(store):
    return store.experiments.ensure("human-175", ENV_ID, {"seed": 3})


def told(store):
    return [(each.kind, each.details, each.labeler) for each in store.events.page().rows]


class TestStudy:
    def test_default_policy_gives_labelers_different_comparisons(self, store, experiment_id):
        assert store.experiments.assignment(experiment_id) == AssignmentPolicy(0.0, 2, 0.0, 0.0)

    def test_policy_is_stored_and_audited(self, store, experiment_id):
        study = AssignmentPolicy(overlap=0.25, overlap_labelers=3, repeats=0.1, gold=0.05)
        store.experiments.set_assignment(experiment_id, study, by="Zoë")
        store.experiments.set_assignment(experiment_id, study, by="Zoë")
        assert store.experiments.assignment(experiment_id) == study
        assert told(store) == [("study", vars(study), "Zoë")]

    @pytest.mark.parametrize(
        "study",
        [
            AssignmentPolicy(overlap=1.1),
            AssignmentPolicy(repeats=-0.1),
            AssignmentPolicy(gold=float("nan")),
            AssignmentPolicy(repeats=0.6, gold=0.6),
            AssignmentPolicy(overlap_labelers=0),
            AssignmentPolicy(overlap_labelers=10**9),
        ],
    )
    def test_invalid_policy_is_refused(self, store, experiment_id, study):
        with pytest.raises(BadConfig):
            store.experiments.set_assignment(experiment_id, study)
        assert store.experiments.assignment(experiment_id) == AssignmentPolicy()

    def test_the_overlapping_share_is_wanted_of_several(self, store, experiment_id):
        policy = AssignmentPolicy(overlap=0.2, overlap_labelers=3)
        store.experiments.set_assignment(experiment_id, policy)
        ask(store, experiment_id, *range(1000))
        wanted = [each for (each,) in rows_of(store, select(Comparison.wanted))]
        # Note: 200 of 1,000 are expected, give or take 12.6; three times that is allowed.
        assert set(wanted) == {1, 3}
        assert 162 <= wanted.count(3) <= 238

    def test_adding_again_keeps_the_number_of_labelers(self, store, experiment_id):
        ask(store, experiment_id, 1)
        store.experiments.set_assignment(experiment_id, AssignmentPolicy(overlap=1.0))
        ask(store, experiment_id, 1, 2)
        assert rows_of(store, select(Comparison.wanted).order_by(Comparison.id)) == [(1,), (2,)]

    def test_setting_gold_of_unknown_comparison_raises_not_found(self, store):
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
        assert told(store)[0] == ("control", emptied, "owner")

    def test_instructions_are_the_experiments(self, store, experiment_id):
        store.experiments.set_control(experiment_id, Control(instructions="Run <fast>."), by="Zoë")
        assert store.experiments.get("human-175").instructions == "Run <fast>."
        assert told(store) == [("instructions", {"instructions": "Run <fast>."}, "Zoë")]

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
        assert told(store) == []

    def test_setting_gold_of_unknown_comparison_raises_not_found(self, store):
        with pytest.raises(ExperimentNotFound):
            store.experiments.set_control(999, Control("stop"))
        assert told(store) == []


class TestGold:
    def test_gold_answer_can_be_set_and_cleared(self, store, experiment_id):
        [comparison_id] = ask_and_show(store, experiment_id, 1)
        store.comparisons.set_gold(comparison_id, Answer.LEFT)
        [row] = store.comparisons.page(experiment_id).rows
        assert row.gold is Answer.LEFT
        store.comparisons.set_gold(comparison_id, None)
        [row] = store.comparisons.page(experiment_id).rows
        assert row.gold is None
        assert [details["answer"] for _, details, _ in told(store)] == [None, "left"]

    @pytest.mark.parametrize("comparison_id", [0, 999, 2**40])
    def test_unknown_comparison_is_named_in_the_error(self, store, comparison_id):
        with pytest.raises(ComparisonNotFound):
            store.comparisons.set_gold(comparison_id, Answer.LEFT)


class TestAdjudicating:
    def test_the_owners_answer_is_one_more_label_and_an_event(self, store, experiment_id):
        [comparison_id] = ask(store, experiment_id, 1)
        store.labels.add(comparison_id, Answer.LEFT, "Ada")
        store.labels.add(comparison_id, Answer.RIGHT, "Bob")
        store.labels.adjudicate(comparison_id, Answer.RIGHT)
        said = list(store.labels.votes([comparison_id])[comparison_id].values())
        assert said == [Answer.LEFT, Answer.RIGHT, Answer.RIGHT]
        assert told(store) == [
            ("adjudicate", {"comparison": comparison_id, "answer": "right"}, "owner")
        ]

    def test_unknown_comparison_is_named_in_the_error(self, store):
        with pytest.raises(ComparisonNotFound):
            store.labels.adjudicate(999, Answer.LEFT)
        assert told(store) == []


class TestFindings:
    def test_latest_commands_are_stored(self, store, experiment_id):
        assert store.experiments.diagnostics(experiment_id) is None
        store.experiments.set_diagnostics(experiment_id, {"best": [1, float("nan")]})
        assert store.experiments.diagnostics(experiment_id) == {"best": [1, None]}
