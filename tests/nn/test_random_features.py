import numpy as np
import pytest

from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.nn.random_features import (
    keypoints,
    profiles,
    random_features_for,
    subtract_background,
)

ATARI = ImageLayout((4, 84, 84), 0)


def keypoints_of(response):
    return keypoints(response.sum(2), response.sum(1))


def test_keypoint_is_centre_and_mean_of_response():
    x = np.zeros((1, 3, 5, 2), np.float32)
    x[0, 2, 0, 0] = 6  # bottom left
    x[0, 0, 3, 1], x[0, 0, 4, 1] = 3, 1  # top row, three quarters in column 3
    # The means over 15 cells are 6 / 15 = 0.4 and 4 / 15 = 0.267, above which are 5.6 in one cell,
    # and 2.733 and 0.733 in two. Rows lie at -1, 0, 1 and columns at -1, -0.5, 0, 0.5, 1, so the
    # second filter's centre is (2.733 * 0.5 + 0.733 * 1) / 3.467 = 2.1 / 3.467 across.
    expected = [[1, -1, -1, 2.1 / 3.46667, 5.6 / 15, 3.46667 / 15]]
    np.testing.assert_allclose(keypoints_of(subtract_background(x)), expected, atol=1e-5)


def test_keypoint_shift_does_not_depend_on_position():
    x = np.zeros((9, 9, 9, 1), np.float32)
    for column in range(9):
        x[column, 4, column, 0] = 2
    moves = np.diff(keypoints_of(subtract_background(x)), axis=0)
    np.testing.assert_allclose(moves, np.tile([0, 0.25, 0], (8, 1)), atol=1e-5)


def test_uniform_background_does_not_shift_keypoints():
    x = np.full((1, 9, 9, 1), 7, np.float32)
    x[0, 2, 8, 0] = 9
    y, across, _ = keypoints_of(subtract_background(x))[0]
    assert y == pytest.approx(-0.5, abs=1e-5)
    assert across == pytest.approx(1, abs=1e-5)


def test_profile_is_logarithm_of_summed_response():
    sums = np.array([[[0, 1], [np.e - 1, 3], [np.e**2 - 1, 0]]], np.float32)
    # For each line, both filters: log(1 + 0), log(1 + 1), 1, log(1 + 3), 2, 0.
    np.testing.assert_allclose(profiles(sums), [[0, np.log(2), 1, np.log(4), 2, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "channel_axis"),
    [((4, 84, 84), 0), ((30, 25, 3), 2), ((8, 11), None), ((2, 43, 44), 0), ((210, 160, 3), 2)],
)
def test_features_match_hand_computed_convolution(shape, channel_axis):
    image = ImageLayout(shape, channel_axis)
    seen = random_features_for(image)
    images = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)
    width, stride = len(seen.filters), seen.stride
    last = image.channels_last(images).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(last, (width, width), axis=(1, 2))
    windows = windows[:, ::stride, ::stride]
    maps = np.einsum("bhwcyx,yxcf->bhwf", windows, seen.filters)
    assert maps.shape[1:3] == tuple((size - width) // stride + 1 for size in image.size)
    response = subtract_background(np.maximum(maps, 0))
    of_profiles = [profiles(response.sum(2)), profiles(response.sum(1))]
    by_hand = np.concatenate([keypoints_of(response), *of_profiles], axis=1)
    assert seen(images).shape == (2, seen.num_features)
    np.testing.assert_allclose(seen(images), by_hand, atol=1e-4)
    bands = [
        profiles(band.sum(axis)) for axis in (2, 1) for band in np.array_split(response, 4, axis)
    ]
    assert seen.bands(images).shape == (2, seen.num_bands)
    np.testing.assert_allclose(seen.bands(images), np.concatenate(bands, axis=1), atol=1e-4)


def test_dot_moves_keypoints_and_marks_its_rows_and_columns():
    seen = random_features_for(ATARI)
    dots = np.zeros((2, 4, 84, 84), np.uint8)
    dots[0, :, 4:8, 8:12] = dots[1, :, 76:80, 72:76] = 255
    features = seen(dots)
    of_keypoints = features[:, : seen.num_keypoints].reshape(2, 3, -1)
    responds = (of_keypoints[:, 2] > 0).all(0)  # filters that respond to a dot
    assert responds.any()
    assert (of_keypoints[0, :2, responds] < -0.7).all()  # top left
    assert (of_keypoints[1, :2, responds] > 0.7).all()
    # Filters are 8 pixels wide with stride 4: rows 0 and 1 and columns 1 and 2 see the first dot.
    in_profiles = features[:, seen.num_keypoints :].reshape(2, 2, 20, -1).max(-1)
    assert [np.flatnonzero(each).tolist() for each in in_profiles[0]] == [[0, 1], [1, 2]]
    assert [np.flatnonzero(each).tolist() for each in in_profiles[1]] == [[18, 19], [17, 18]]


def test_each_keypoint_kind_and_all_profiles_weigh_as_one_feature():
    seen = random_features_for(ATARI)
    of_keypoints = seen.scales[: seen.num_keypoints].reshape(3, -1)  # y, x, mean response
    np.testing.assert_allclose((of_keypoints**2).sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose((seen.scales[seen.num_keypoints :] ** 2).sum(), 1, rtol=1e-6)
    assert seen.num_features == 3 * 8 + (20 + 20) * 8
