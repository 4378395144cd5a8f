from dataclasses import replace

import numpy as np
import pytest

from rl_teacher.envs.interface import environment_seeds
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import (
    CLIP_STREAM,
    HELD_OUT_SHARE,
    LabelledPair,
    LabelSet,
    draw_examples,
)

SPACE = InputSpace((1,), (1,))


def pair(target=1.0, num_left=3, num_right=3):
    left, right = np.full((num_left, 2), 1, np.float32), np.full((num_right, 2), 2, np.float32)
    return LabelledPair(left, right, target)


def test_has_unequal_lengths_detects_segments_of_different_length():
    labels = LabelSet(3, SPACE, 3, seed=0)
    labels.add(pair())
    labels.add(pair(num_left=2, num_right=2))
    assert not labels.has_unequal_lengths
    labels.add(pair(num_left=1))
    assert labels.has_unequal_lengths


def test_set_target_keeps_index_and_held_out_members():
    labels = LabelSet(3, SPACE, 3, seed=0)
    for comparison_id in (7, 8, 9):
        labels.add(pair(), comparison_id)
    is_held_out = labels.is_held_out.copy()
    labels.set_target(8, 0.25)
    np.testing.assert_array_equal(labels.targets, [1, 0.25, 1])
    np.testing.assert_array_equal(labels.is_held_out, is_held_out)


def test_shorter_segments_are_padded_with_zero_weight():
    labels = LabelSet(3, SPACE, 3, seed=0)
    labels.add(pair(num_right=2))
    np.testing.assert_array_equal(labels.weights[0], [[1, 1, 1], [1, 1, 0]])
    assert labels.rows[0, 1, 2].sum() == 0


def test_discount_reduces_weight_of_later_steps():
    labels = LabelSet(3, SPACE, 3, seed=0, discount=0.5)
    labels.add(pair(num_right=2))
    np.testing.assert_allclose(labels.weights[0], [[1, 0.5, 0.25], [1, 0.5, 0]])


def test_discounted_steps_without_weight_are_left_out():
    labels = LabelSet(300, SPACE, 3, seed=0, discount=0.5)
    steps = np.arange(300, dtype=np.float32).repeat(2).reshape(-1, 2)
    labels.add(LabelledPair(steps, steps[:4], 1.0, (steps[:, 0], steps[:4, 0])))
    np.testing.assert_allclose(labels.weights[0, 0], 0.5 ** np.arange(10))
    np.testing.assert_array_equal(labels.rows[0, 0], steps[:10])
    # Predictions normalise all steps.
    assert labels.input_stats.mean[0] == pytest.approx((300 * 149.5 + 4 * 1.5) / 304, rel=1e-3)


def test_held_out_clips_have_stream_of_their_own():
    # NumPy's SeedSequence ignores trailing zeros: [seed, 8, 0] is [seed, 8].
    words = np.random.SeedSequence([5, CLIP_STREAM, 0]).generate_state(4)
    assert environment_seeds(5, 4) != (words >> 1).tolist()


def test_comparisons_that_are_not_held_out_are_drawn_equally_often():
    is_held_out = np.array([[False, True, False, False], [False] * 4])
    drawn = draw_examples(is_held_out, (100, 200), np.random.default_rng(0))
    assert drawn.shape == (2, 100, 200)
    shares = [np.bincount(each.ravel(), minlength=4) / 20_000 for each in drawn]
    np.testing.assert_allclose(shares, [[1 / 3, 0, 1 / 3, 1 / 3], [1 / 4] * 4], atol=0.02)


def test_member_without_other_comparisons_draws_from_those_held_out():
    drawn = draw_examples(np.ones((1, 3), bool), (3_000,), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn[0]) / 3_000, 1 / 3, atol=0.05)


def labels_of_new_clips(num):
    """Return a set of comparisons whose clips all differ."""
    rng = np.random.default_rng(0)
    labels = LabelSet(1, SPACE, 3, seed=0)
    for left, right in rng.normal(size=(num, 2, 1, 2)).astype(np.float32):
        labels.add(LabelledPair(left, right, 1.0))
    return labels


def test_share_of_labels_is_held_out_per_member():
    labels = labels_of_new_clips(3000)
    assert labels.is_held_out.mean(axis=1) == pytest.approx(np.full(3, HELD_OUT_SHARE), abs=0.03)
    independent = labels.is_held_out.all(axis=0).mean()
    assert independent == pytest.approx(HELD_OUT_SHARE**3, abs=0.003)


def test_held_out_labels_stay_held_out_as_labels_arrive():
    before = labels_of_new_clips(10).is_held_out
    np.testing.assert_array_equal(labels_of_new_clips(310).is_held_out[:, :10], before)


def test_no_member_trains_on_both_clips_of_a_comparison_that_it_holds_out():
    """60 clips, each compared with six others, as when a list is sorted."""
    rng = np.random.default_rng(0)
    clips = rng.normal(size=(60, 1, 2)).astype(np.float32)
    labels = LabelSet(1, SPACE, 3, seed=0)
    for gap in (1, 7, 20):
        for left, right in zip(clips, np.roll(clips, gap, 0), strict=True):
            labels.add(LabelledPair(left, right, 1.0))
    for is_held_out in labels.is_held_out:
        assert 0.05 < is_held_out.mean() < 0.4
        is_trained = np.isin(labels.clips, labels.clips[~is_held_out])
        assert not is_trained[is_held_out].all(1).any()


def test_input_stats_cover_all_labelled_steps():
    labels = LabelSet(3, SPACE, 3, seed=0)
    labels.add(pair(num_left=3, num_right=1))
    assert labels.input_stats.mean == pytest.approx([1.25, 1.25], rel=1e-3)


def test_full_set_replaces_oldest_comparison():
    labels = LabelSet(3, SPACE, 3, seed=0, capacity=4)
    for comparison_id, target in enumerate((0.1, 0.2, 0.3, 0.4, 0.5, 0.6)):
        labels.add(pair(target), comparison_id)
    assert (len(labels), labels.num_added, labels.comparison_ids) == (4, 6, [0, 1, 2, 3, 4, 5])
    assert [labels.index_of(i) for i in labels.comparison_ids] == [None, None, 2, 3, 0, 1]
    np.testing.assert_allclose(labels.targets, [0.5, 0.6, 0.3, 0.4])


def test_true_rewards_are_kept_beside_rows_and_nan_if_unknown():
    labels = LabelSet(3, SPACE, 3, seed=0)
    given = (np.array([1, 2, 3], np.float32), np.array([4, 5], np.float32))
    labels.add(replace(pair(num_right=2), true_rewards=given))
    labels.add(pair())
    np.testing.assert_array_equal(labels.true_rewards[0], [[1, 2, 3], [4, 5, 0]])
    assert np.isnan(labels.true_rewards[1]).all()


def test_clip_of_several_comparisons_is_one_clip_and_stays_held_out():
    rng = np.random.default_rng(0)
    first, second, third = rng.normal(size=(3, 3, 2)).astype(np.float32)
    labels = LabelSet(3, SPACE, 4, seed=0)
    labels.add(LabelledPair(first, second, 1.0))
    before = labels.held_out_clips(np.arange(2))
    labels.add(LabelledPair(third, first, 0.0))
    np.testing.assert_array_equal(labels.clips, [[0, 1], [2, 0]])
    np.testing.assert_array_equal(labels.held_out_clips(np.arange(3))[:, :2], before)
