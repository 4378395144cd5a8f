import numpy as np
import pytest

from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.predictor.random_features import (
    IMAGES_PER_CALL,
    keypoints,
    profiles,
    random_features_for,
    subtract_background,
)

ATARI = ImageLayout((4, 84, 84), 0)


def places_of(found):
    return keypoints(found.sum(2), found.sum(1))


def test_a_place_is_the_centre_of_what_a_filter_says_and_how_much_it_says():
    x = np.zeros((1, 3, 5, 2), np.float32)
    x[0, 2, 0, 0] = 6  # at the bottom on the left
    x[0, 0, 3, 1], x[0, 0, 4, 1] = 3, 1  # at the top, three quarters in column 3
    # Of 15 cells the means are 6 / 15 = 0.4 and 4 / 15 = 0.267, above which are 5.6 in one cell,
    # and 2.733 and 0.733 in two. Rows lie at -1, 0, 1 and columns at -1, -0.5, 0, 0.5, 1, so the
    # second filter's centre is (2.733 * 0.5 + 0.733 * 1) / 3.467 = 2.1 / 3.467 across.
    expected = [[1, -1, -1, 2.1 / 3.46667, 5.6 / 15, 3.46667 / 15]]
    np.testing.assert_allclose(places_of(subtract_background(x)), expected, atol=1e-5)


def test_a_filter_that_finds_nothing_finds_it_in_the_middle():
    np.testing.assert_array_equal(places_of(np.zeros((2, 4, 4, 3), np.float32)), np.zeros((2, 9)))


def test_what_moves_by_a_cell_moves_its_place_as_much_wherever_it_is():
    x = np.zeros((9, 9, 9, 1), np.float32)
    for column in range(9):
        x[column, 4, column, 0] = 2
    moves = np.diff(places_of(subtract_background(x)), axis=0)
    np.testing.assert_allclose(moves, np.tile([0, 0.25, 0], (8, 1)), atol=1e-5)


def test_a_background_that_is_everywhere_draws_no_place_to_the_middle():
    x = np.full((1, 9, 9, 1), 7, np.float32)
    x[0, 2, 8, 0] = 9
    y, across, _ = places_of(subtract_background(x))[0]
    assert y == pytest.approx(-0.5, abs=1e-5)
    assert across == pytest.approx(1, abs=1e-5)


def test_a_line_is_told_the_logarithm_of_how_much_is_in_it():
    sums = np.array([[[0, 1], [np.e - 1, 3], [np.e**2 - 1, 0]]], np.float32)
    # Line by line, of both filters: log(1 + 0), log(1 + 1), 1, log(1 + 3), 2, 0.
    np.testing.assert_allclose(profiles(sums), [[0, np.log(2), 1, np.log(4), 2, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "channel_axis"),
    [((4, 84, 84), 0), ((30, 25, 3), 2), ((8, 11), None), ((2, 43, 44), 0), ((210, 160, 3), 2)],
)
def test_places_are_those_of_what_a_convolution_by_hand_says(shape, channel_axis):
    picture = ImageLayout(shape, channel_axis)
    seen = random_features_for(picture)
    pictures = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)
    width, stride = len(seen._filters), seen._stride
    last = picture.channels_last(pictures).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(last, (width, width), axis=(1, 2))
    windows = windows[:, ::stride, ::stride]
    said = np.einsum("bhwcyx,yxcf->bhwf", windows, seen._filters)
    assert said.shape[1:3] == tuple((size - width) // stride + 1 for size in picture.size)
    found = subtract_background(np.maximum(said, 0))
    of_lines = [profiles(found.sum(2)), profiles(found.sum(1))]
    by_hand = np.concatenate([places_of(found), *of_lines], axis=1)
    assert seen(pictures).shape == (2, seen.num_features)
    np.testing.assert_allclose(seen(pictures), by_hand, atol=1e-4)


def test_each_filter_has_the_same_say():
    lengths = np.sqrt((random_features_for(ATARI)._filters ** 2).sum((0, 1, 2)))
    np.testing.assert_allclose(lengths * 255, 1, rtol=1e-5)


def test_a_dot_is_told_where_it_is_and_in_the_lines_that_it_is_in():
    seen = random_features_for(ATARI)
    dots = np.zeros((2, 4, 84, 84), np.uint8)
    dots[0, :, 4:8, 8:12] = dots[1, :, 76:80, 72:76] = 255
    told = seen(dots)
    of_places = told[:, : seen.num_keypoints].reshape(2, 3, -1)
    finds = (of_places[:, 2] > 0).all(0)  # the filters that a dot makes say something
    assert finds.any()
    assert (of_places[0, :2, finds] < -0.7).all()  # at the top on the left
    assert (of_places[1, :2, finds] > 0.7).all()
    # Filters of 8 pixels begin every 4: rows 0 and 1, and columns 1 and 2, see the first dot.
    in_lines = told[:, seen.num_keypoints :].reshape(2, 2, 20, -1).max(-1)
    assert [np.flatnonzero(each).tolist() for each in in_lines[0]] == [[0, 1], [1, 2]]
    assert [np.flatnonzero(each).tolist() for each in in_lines[1]] == [[18, 19], [17, 18]]


def test_pictures_are_told_alike_alone_and_among_many():
    seen = random_features_for(ATARI)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (IMAGES_PER_CALL + 3, 4, 84, 84), np.uint8)
    told = seen(pictures)
    assert told.shape == (IMAGES_PER_CALL + 3, seen.num_features)
    assert told.dtype == np.float32
    np.testing.assert_allclose(seen(pictures[-1:]), told[-1:], atol=1e-5)
    assert seen(pictures[:0]).shape == (0, seen.num_features)


def test_each_kind_of_place_weighs_as_much_as_one_number_and_so_do_all_lines():
    seen = random_features_for(ATARI)
    of_places = seen.scales[: seen.num_keypoints].reshape(3, -1)  # down, across, how much
    np.testing.assert_allclose((of_places**2).sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose((seen.scales[seen.num_keypoints :] ** 2).sum(), 1, rtol=1e-6)
    assert seen.num_features == 3 * 8 + (20 + 20) * 8


def test_the_filters_are_the_same_numbers_in_every_process():
    # A predictor that was saved has learned from what these filters say.
    filters = random_features_for(ATARI)._filters
    known = [0.00834261, -0.00869909, 0.04072216]
    np.testing.assert_allclose(filters[0, 0, 0, :3] * 255, known, atol=1e-7)
    assert filters.sum() * 255 == pytest.approx(-3.617273, abs=1e-4)
