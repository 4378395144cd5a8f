import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.errors import BadConfig
from rl_teacher.predictor.inputs import InputSpace

BOX = gym.spaces.Box(-1, 1, (3,))


def test_a_continuous_action_follows_the_observation():
    space = InputSpace.of(BOX, gym.spaces.Box(-1, 1, (2,)))
    rows = space.rows(np.array([[1.0, 2.0, 3.0]]), np.array([[4.0, 5.0]]))
    np.testing.assert_array_equal(rows, [[1, 2, 3, 4, 5]])


def test_a_discrete_action_is_one_hot():
    space = InputSpace.of(BOX, gym.spaces.Discrete(3))
    rows = space.rows(np.zeros((2, 3)), np.array([2, 0]))
    np.testing.assert_array_equal(rows[:, 3:], [[0, 0, 1], [1, 0, 0]])


def test_discrete_actions_may_begin_anywhere():
    space = InputSpace.of(BOX, gym.spaces.Discrete(3, start=5))
    np.testing.assert_array_equal(space.rows(np.zeros((1, 3)), np.array([6]))[:, 3:], [[0, 1, 0]])


def test_any_batch_axes_are_kept():
    space = InputSpace.of(BOX, gym.spaces.Box(-1, 1, (2,)))
    assert space.rows(np.zeros((4, 5, 3)), np.zeros((4, 5, 2))).shape == (4, 5, 5)


def test_wrong_shapes_are_refused_in_words():
    space = InputSpace.of(BOX, gym.spaces.Box(-1, 1, (2,)))
    with pytest.raises(BadConfig, match="was made for"):
        space.rows(np.zeros((4, 2)), np.zeros((4, 2)))


def test_a_dict_of_observations_is_refused_in_words():
    with pytest.raises(BadConfig, match="Flatten it"):
        InputSpace.of(gym.spaces.Dict(a=BOX), gym.spaces.Discrete(2))


def test_plain_values_round_trip():
    space = InputSpace.of(BOX, gym.spaces.Discrete(3, start=5))
    assert InputSpace.from_json(space.to_json()) == space
