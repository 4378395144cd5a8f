import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten

from rl_teacher.common.errors import BadInput
from rl_teacher.wrappers.views import ObservationView

PARTS = gym.spaces.Dict(a=gym.spaces.Box(-1, 1, (2,), np.float32), b=gym.spaces.Discrete(3))


def test_a_box_is_seen_as_it_is_and_copied():
    view = ObservationView(gym.spaces.Box(-1, 1, (2,), np.float64), None, None)
    observation = np.array([0.5, -0.5])
    seen = view.one(observation)
    observation[:] = 9
    np.testing.assert_array_equal(seen, [0.5, -0.5])
    assert seen.dtype == np.float32


def test_pictures_stay_bytes():
    view = ObservationView(gym.spaces.Box(0, 255, (2, 2, 3), np.uint8), None, None)
    assert view.space.dtype == np.uint8
    assert view.one(np.full((2, 2, 3), 255, np.uint8)).dtype == np.uint8


def test_parts_are_flattened_and_numbers_one_hot():
    view = ObservationView(PARTS, None, None)
    seen = view.one({"a": np.array([0.5, -0.5], np.float32), "b": 1})
    np.testing.assert_array_equal(seen, [0.5, -0.5, 0, 1, 0])
    assert view.space.shape == (5,)


def test_a_number_alone_is_one_hot():
    view = ObservationView(gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([3, 3]), None)
    np.testing.assert_array_equal(view.many(np.array([2, 0])), [[0, 0, 1], [1, 0, 0]])


def test_a_transform_says_what_is_seen_and_does_not_disturb_the_space():
    PARTS.seed(0)
    expected = flatten(PARTS, PARTS.sample())
    PARTS.seed(0)
    view = ObservationView(PARTS, None, lambda observation: observation["a"][:1])
    np.testing.assert_array_equal(flatten(PARTS, PARTS.sample()), expected)
    assert view.space.shape == (1,)


def test_what_cannot_be_flattened_is_refused_in_words():
    with pytest.raises(BadInput, match="Give observation_transform"):
        ObservationView(gym.spaces.Sequence(gym.spaces.Discrete(2)), None, None)


def test_a_transform_that_raises_is_refused_in_words():
    with pytest.raises(BadInput, match="KeyError"):
        ObservationView(PARTS, None, lambda observation: observation["nothing"])


def test_a_transform_that_returns_no_numbers_is_refused_in_words():
    with pytest.raises(BadInput, match="numbers are needed"):
        ObservationView(PARTS, None, lambda observation: np.array("word"))


def test_another_shape_later_is_refused_in_words():
    view = ObservationView(gym.spaces.Box(-1, 1, (2,), np.float32), None, None)
    with pytest.raises(BadInput, match=r"\(3,\)"):
        view.one(np.zeros(3))
