import numpy as np
import pytest

from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet

SPACE = InputSpace((1,), (1,), 0)


def pair(target=1.0, num_left=3, num_right=3):
    left, right = np.full((num_left, 2), 1, np.float32), np.full((num_right, 2), 2, np.float32)
    return LabelledPair(left, right, target)


def test_targets_may_lie_between_where_labelers_disagree():
    labels = LabelSet(3, SPACE, 3, seed=0)
    for target in (1.0, 0.0, 0.5, 0.75):
        labels.add(pair(target))
    np.testing.assert_array_equal(labels.targets, [1, 0, 0.5, 0.75])


def test_whether_lengths_are_compared_is_known():
    labels = LabelSet(3, SPACE, 3, seed=0)
    labels.add(pair())
    labels.add(pair(num_left=2, num_right=2))
    assert not labels.has_unequal_lengths
    labels.add(pair(num_left=1))
    assert labels.has_unequal_lengths


def test_a_changed_target_keeps_its_place_and_who_held_it_out():
    labels = LabelSet(3, SPACE, 3, seed=0)
    places = [labels.add(pair()) for _ in range(3)]
    counts = labels.counts.copy()
    labels.set_target(places[1], 0.25)
    np.testing.assert_array_equal(labels.targets, [1, 0.25, 1])
    np.testing.assert_array_equal(labels.counts, counts)


def test_shorter_segments_are_padded_and_masked():
    labels = LabelSet(3, SPACE, 3, seed=0)
    labels.add(pair(num_right=2))
    np.testing.assert_array_equal(labels.weights[0], [[1, 1, 1], [1, 1, 0]])
    assert labels.rows[0, 1, 2].sum() == 0


def test_later_steps_may_count_less():
    labels = LabelSet(3, SPACE, 3, seed=0, discount=0.5)
    labels.add(pair(num_right=2))
    np.testing.assert_allclose(labels.weights[0], [[1, 0.5, 0.25], [1, 0.5, 0]])


def test_it_grows_without_losing_anything():
    labels = LabelSet(3, SPACE, 3, seed=0)
    for index in range(200):
        labels.add(pair(float(index % 2)))
    np.testing.assert_array_equal(labels.targets, np.arange(200) % 2)


def test_about_one_label_in_e_is_held_out_from_each_member():
    labels = LabelSet(1, SPACE, 3, seed=0)
    for _ in range(3000):
        labels.add(pair(num_left=1, num_right=1))
    held_out = (labels.counts == 0).mean(axis=1)
    assert held_out == pytest.approx(np.full(3, 1 / np.e), abs=0.03)


def test_what_is_held_out_does_not_change_as_labels_arrive():
    labels = LabelSet(1, SPACE, 3, seed=0)
    for _ in range(10):
        labels.add(pair(num_left=1, num_right=1))
    before = labels.counts.copy()
    for _ in range(300):
        labels.add(pair(num_left=1, num_right=1))
    np.testing.assert_array_equal(labels.counts[:, :10], before)


def test_the_input_moments_are_those_of_all_labelled_steps():
    labels = LabelSet(3, SPACE, 3, seed=0)
    labels.add(pair(num_left=3, num_right=1))
    assert labels.input_stats.mean == pytest.approx([1.25, 1.25], rel=1e-3)


def test_the_newest_take_the_place_of_the_oldest_where_only_so_many_are_kept():
    labels = LabelSet(3, SPACE, 3, seed=0, capacity=4)
    numbers = [labels.add(pair(target)) for target in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    assert (len(labels), labels.num_added, numbers) == (4, 6, [0, 1, 2, 3, 4, 5])
    assert [labels.index_of(number) for number in numbers] == [None, None, 2, 3, 0, 1]
    np.testing.assert_allclose(labels.targets, [0.5, 0.6, 0.3, 0.4])


def test_nothing_of_a_forgotten_comparison_is_left_over():
    labels = LabelSet(3, SPACE, 3, seed=0, capacity=1)
    labels.add(pair())
    labels.add(pair(num_left=1, num_right=2))
    np.testing.assert_array_equal(labels.weights[0], [[1, 0, 0], [1, 1, 0]])


def test_a_new_answer_to_a_forgotten_comparison_changes_no_other():
    labels = LabelSet(3, SPACE, 3, seed=0, capacity=2)
    for target in (0.0, 0.0, 1.0):
        labels.add(pair(target))
    labels.set_target(0, 0.5)
    labels.set_target(1, 0.25)
    np.testing.assert_array_equal(labels.targets, [1, 0.25])


def test_who_held_a_comparison_out_is_the_same_with_a_buffer():
    everything = LabelSet(3, SPACE, 3, seed=0)
    newest = LabelSet(3, SPACE, 3, seed=0, capacity=5)
    for _ in range(8):
        everything.add(pair())
        newest.add(pair())
    np.testing.assert_array_equal(newest.counts[:, [3, 4, 0, 1, 2]], everything.counts[:, 3:])
