import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten

from rl_teacher.common.errors import BadInput
from rl_teacher.wrappers.views import ObservationView

PARTS = gym.spaces.Dict(a=gym.spaces.Box(-1, 1, (2,), np.float32), b=gym.spaces.Discrete(3))


def test_box_is_copied_as_float32():
    view = ObservationView(gym.spaces.Box(-1, 1, (2,), np.float64), None, None)
    observation = np.array([0.5, -0.5])
    seen = view.one(observation)
    observation[:] = 9
    np.testing.assert_array_equal(seen, [0.5, -0.5])
    assert seen.dtype == np.float32


def test_image_keeps_uint8():
    view = ObservationView(gym.spaces.Box(0, 255, (2, 2, 3), np.uint8), None, None)
    assert view.space.dtype == np.uint8
    assert view.one(np.full((2, 2, 3), 255, np.uint8)).dtype == np.uint8


def test_dict_is_flattened_with_one_hot_discrete():
    view = ObservationView(PARTS, None, None)
    seen = view.one({"a": np.array([0.5, -0.5], np.float32), "b": 1})
    np.testing.assert_array_equal(seen, [0.5, -0.5, 0, 1, 0])
    assert view.space.shape == (5,)


def test_discrete_observations_are_one_hot():
    view = ObservationView(gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([3, 3]), None)
    np.testing.assert_array_equal(view.many(np.array([2, 0])), [[0, 0, 1], [1, 0, 0]])


def test_transform_sets_space_and_keeps_random_state():
    PARTS.seed(0)
    expected = flatten(PARTS, PARTS.sample())
    PARTS.seed(0)
    view = ObservationView(PARTS, None, lambda observation: observation["a"][:1])
    np.testing.assert_array_equal(flatten(PARTS, PARTS.sample()), expected)
    assert view.space.shape == (1,)


def test_unflattenable_space_is_refused():
    with pytest.raises(BadInput, match="Give observation_transform"):
        ObservationView(gym.spaces.Sequence(gym.spaces.Discrete(2)), None, None)


def test_failing_transform_is_refused():
    with pytest.raises(BadInput, match="KeyError"):
        ObservationView(PARTS, None, lambda observation: observation["nothing"])


def test_transform_without_numbers_is_refused():
    with pytest.raises(BadInput, match="numbers are needed"):
        ObservationView(PARTS, None, lambda observation: np.array("word"))


def test_changed_shape_is_refused():
    view = ObservationView(gym.spaces.Box(-1, 1, (2,), np.float32), None, None)
    with pytest.raises(BadInput, match=r"\(3,\)"):
        view.one(np.zeros(3))
