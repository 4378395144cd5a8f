"""Tests of data sets: targets, subsets and merging."""

from dataclasses import replace

import pytest

from rl_teacher.common.errors import BadInput
from rl_teacher.datasets import Dataset, load
from rl_teacher.predictor.inputs import InputSpace
from tests.datasets.conftest import ENV_ID


def targets(dataset):
    return [each.target for each in dataset]


def pairs(dataset):
    return [each.pair for each in dataset]


def test_targets_are_1_for_left_0_for_right_and_half_for_equal(dataset):
    assert targets(dataset) == [1.0, 0.0, 0.5]
    assert [each.labeler for each in dataset] == ["zoe"] * 3


def test_target_is_share_of_labelers_who_prefer_left(experiment):
    comparison = experiment.ask(0)
    answers = {"a": "left", "b": "left", "c": "equal", "d": "right", "e": "cannot_tell"}
    for labeler, answer in answers.items():
        experiment.answer(comparison, answer, labeler)
    [each] = experiment.dataset()
    assert each.target == pytest.approx((1 + 1 + 0.5 + 0) / 4)
    assert (each.labeler, each.num_labels) == (None, 4)


def test_withdrawn_label_is_left_out_and_changed_label_counts_once(experiment):
    first, second = experiment.ask(0), experiment.ask(1)
    experiment.answer(first, "left")
    experiment.answer(first, None)
    experiment.answer(second, "left")
    experiment.answer(second, "right")
    dataset = experiment.dataset()
    assert targets(dataset) == [0.0]
    assert len(dataset.rows) == 4


def test_labels_of_excluded_labeler_are_left_out(experiment):
    comparison = experiment.ask(0)
    experiment.answer(comparison, "left", "zoe")
    experiment.answer(comparison, "right", "bot")
    experiment.store.labelers.set_excluded("bot", is_excluded=True)
    [each] = experiment.dataset()
    assert (each.target, each.labeler) == (1.0, "zoe")


def test_subset_has_given_comparisons_in_their_order_with_their_segments(dataset):
    first, _, third = dataset
    part = dataset.subset([third, first])
    assert pairs(part) == [third.pair, first.pair]
    assert len(part.segments) == 4


def test_merging_overlapping_parts_restores_data_set(experiment):
    for seed in range(4):
        experiment.answer(experiment.ask(seed), "left" if seed % 2 else "right")
    whole = experiment.dataset()
    merged = Dataset.merged([whole.subset(part) for part in ([*whole][:2], [*whole][1:])])
    assert merged.content_hash == whole.content_hash


def test_withdrawal_in_one_data_set_applies_to_merged_one(experiment):
    comparison = experiment.ask(0)
    experiment.answer(comparison, "left")
    before = experiment.dataset()
    experiment.answer(comparison, None)
    after = experiment.dataset()
    for both in ([before, after], [after, before]):
        assert targets(Dataset.merged(both)) == []


EARLIER, LATER = "2024-05-01T10:00:00+02:00", "2024-05-01T09:00:00+00:00"


def answered(row, answer, moment):
    changes = {"answer": answer, "answered_at": moment, "request_id": f"{moment} {answer}"}
    return {**row, **changes}


def test_newest_answer_is_current_whatever_its_time_zone(dataset):
    one, other = (
        replace(dataset, rows=(answered(dataset.rows[0], answer, moment),))
        for answer, moment in (("left", EARLIER), ("right", LATER))
    )
    for both in ([one, other], [other, one]):
        assert targets(Dataset.merged(both)) == [0.0]


def test_comparison_was_answered_at_its_newest_label_whatever_the_time_zone(dataset):
    first, second = dataset.rows[:2]
    labels = [
        answered(first, "left", EARLIER),
        {**answered(first, "left", LATER), "labeler": "max"},
        answered(second, "right", "2024-05-01T10:30:00+02:00"),
    ]
    several = replace(dataset, rows=tuple(labels))
    assert several[0].answered_at == LATER


def test_data_sets_of_other_environments_or_spaces_are_not_merged(dataset):
    space = InputSpace((10,), (), (2,), (0,))
    for other in (replace(dataset, space=space), replace(dataset, env_id="ShortHopper-v1")):
        with pytest.raises(BadInput, match=ENV_ID):
            Dataset.merged([dataset, other])
    with pytest.raises(BadInput, match="data sets"):
        Dataset.merged([])


def test_content_hash_covers_training_targets(dataset):
    turned = dataset.subset(reversed(list(dataset)))
    assert dataset.content_hash == replace(dataset, rows=dataset.rows).content_hash
    assert dataset.content_hash != turned.content_hash
    assert dataset.env_id == ENV_ID


# --- the held-out part ---


def test_fraction_of_comparisons_is_held_out_by_seed(experiment):
    """A fifth of 10 comparisons are 2."""
    for seed in range(10):
        experiment.answer(experiment.ask(seed), "left")
    dataset = experiment.dataset()
    split = dataset.hold_out(0.2, seed=3)
    assert pairs(split.held_out) == pairs(dataset.hold_out(0.2, seed=3).held_out)
    assert pairs(split.held_out) != pairs(dataset.hold_out(0.2, seed=4).held_out)
    assert set(pairs(split.training)) == set(pairs(dataset)) - set(pairs(split.held_out))
    assert len(split.training) == 8
    assert split.content_hash != dataset.content_hash


@pytest.mark.parametrize("fraction", [0.1, 0.0, 1.5])
def test_unusable_fraction_raises_bad_input(dataset, fraction):
    with pytest.raises(BadInput, match="fraction"):
        dataset.hold_out(fraction)
    with pytest.raises(BadInput, match="held out already"):
        dataset.hold_out(0.6).hold_out(0.5)


def test_comparison_that_is_held_out_in_one_merged_data_set_is_held_out(dataset):
    merged = Dataset.merged([dataset, dataset.subset([dataset[0]]).all_held_out()])
    assert [each.is_held_out for each in merged] == [True, False, False]


def test_comparison_with_exchanged_sides_is_held_out_as_well(dataset):
    row = dataset.rows[0]
    sides = {"left_clip": row["right_clip"], "right_clip": row["left_clip"]}
    other = replace(dataset, rows=({**row, **sides},)).all_held_out()
    merged = Dataset.merged([dataset, other])
    assert len(merged.held_out) == 2
    assert len(merged.training) == 2


def test_saved_data_set_keeps_its_held_out_part(dataset, tmp_path):
    split = dataset.hold_out(0.3)
    split.save(tmp_path / "set")
    assert pairs(load(tmp_path / "set").held_out) == pairs(split.held_out)
