import json

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.common.errors import BadConfig
from rl_teacher.predictor.inputs import InputSpace

BOX = gym.spaces.Box(-1, 1, (3,))


def test_a_continuous_action_follows_the_observation():
    space = InputSpace.from_spaces(BOX, gym.spaces.Box(-1, 1, (2,)))
    rows = space.rows(np.array([[1.0, 2.0, 3.0]]), np.array([[4.0, 5.0]]))
    np.testing.assert_array_equal(rows, [[1, 2, 3, 4, 5]])


def test_a_discrete_action_is_one_hot():
    space = InputSpace.from_spaces(BOX, gym.spaces.Discrete(3))
    rows = space.rows(np.zeros((2, 3)), np.array([2, 0]))
    np.testing.assert_array_equal(rows[:, 3:], [[0, 0, 1], [1, 0, 0]])


def test_discrete_actions_may_begin_anywhere():
    space = InputSpace.from_spaces(BOX, gym.spaces.Discrete(3, start=5))
    np.testing.assert_array_equal(space.rows(np.zeros((1, 3)), np.array([6]))[:, 3:], [[0, 1, 0]])


def test_an_action_of_several_parts_is_one_one_hot_after_the_other():
    space = InputSpace.from_spaces(BOX, gym.spaces.MultiDiscrete([2, 3], start=[0, 4]))
    rows = space.rows(np.zeros((2, 3)), np.array([[1, 4], [0, 6]]))
    np.testing.assert_array_equal(rows[:, 3:], [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]])
    assert space.num_features == 8


def test_switches_are_one_hot_each():
    space = InputSpace.from_spaces(BOX, gym.spaces.MultiBinary(2))
    rows = space.rows(np.zeros((1, 3)), np.array([[0, 1]]))
    np.testing.assert_array_equal(rows[:, 3:], [[1, 0, 0, 1]])


def test_bytes_of_pictures_become_0_to_1():
    space = InputSpace.from_spaces(gym.spaces.Box(0, 255, (1, 2), np.uint8), gym.spaces.Discrete(2))
    rows = space.rows(np.array([[[0, 255]]], np.uint8), np.array([0]))
    np.testing.assert_allclose(rows, [[0, 1, 1, 0]])


def test_actions_of_another_kind_are_refused_in_words():
    with pytest.raises(BadConfig, match="MultiBinary"):
        InputSpace.from_spaces(BOX, gym.spaces.Tuple([gym.spaces.Discrete(2)]))


def test_any_batch_axes_are_kept():
    space = InputSpace.from_spaces(BOX, gym.spaces.Box(-1, 1, (2,)))
    assert space.rows(np.zeros((4, 5, 3)), np.zeros((4, 5, 2))).shape == (4, 5, 5)


def test_wrong_shapes_are_refused_in_words():
    space = InputSpace.from_spaces(BOX, gym.spaces.Box(-1, 1, (2,)))
    with pytest.raises(BadConfig, match="was made for"):
        space.rows(np.zeros((4, 2)), np.zeros((4, 2)))


def test_a_dict_of_observations_is_refused_in_words():
    with pytest.raises(BadConfig, match="Flatten it"):
        InputSpace.from_spaces(gym.spaces.Dict(a=BOX), gym.spaces.Discrete(2))


@pytest.mark.parametrize(
    "actions",
    [gym.spaces.Discrete(3, start=5), gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(2)],
)
def test_plain_values_round_trip(actions):
    space = InputSpace.from_spaces(gym.spaces.Box(0, 255, (2, 2), np.uint8), actions)
    assert InputSpace.from_json(json.loads(json.dumps(space.to_json()))) == space
