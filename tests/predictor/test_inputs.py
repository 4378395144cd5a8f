import json

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.common.errors import BadConfig
from rl_teacher.nn.encoders import ImageBox
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.predictor.inputs import InputSpace

BOX = gym.spaces.Box(-1, 1, (3,))


def test_continuous_action_follows_observation():
    space = InputSpace.from_spaces(BOX, gym.spaces.Box(-1, 1, (2,)))
    rows = space.rows(np.array([[1.0, 2.0, 3.0]]), np.array([[4.0, 5.0]]))
    np.testing.assert_array_equal(rows, [[1, 2, 3, 4, 5]])


def test_discrete_action_is_one_hot():
    space = InputSpace.from_spaces(BOX, gym.spaces.Discrete(3))
    rows = space.rows(np.zeros((2, 3)), np.array([2, 0]))
    np.testing.assert_array_equal(rows[:, 3:], [[0, 0, 1], [1, 0, 0]])


def test_discrete_action_space_with_start_is_shifted():
    space = InputSpace.from_spaces(BOX, gym.spaces.Discrete(3, start=5))
    np.testing.assert_array_equal(space.rows(np.zeros((1, 3)), np.array([6]))[:, 3:], [[0, 1, 0]])


@pytest.mark.parametrize(
    ("action_space", "action"),
    [
        (gym.spaces.Discrete(3), -1),
        (gym.spaces.Discrete(3), 3),
        (gym.spaces.Discrete(3, start=5), 0),
        (gym.spaces.MultiDiscrete([2, 3]), [0, 3]),
    ],
)
def test_discrete_action_out_of_range_is_refused(action_space, action):
    space = InputSpace.from_spaces(BOX, action_space)
    for check in (space.rows, space.check_steps):
        with pytest.raises(BadConfig, match="Discrete actions"):
            check(np.zeros((1, 3)), np.array([action]))
    with pytest.raises(BadConfig, match="whole numbers"):
        space.check_steps(np.zeros((1, 3)), np.ones((1, *space.action_shape)))


def test_multi_discrete_action_is_concatenated_one_hots():
    space = InputSpace.from_spaces(BOX, gym.spaces.MultiDiscrete([2, 3], start=[0, 4]))
    rows = space.rows(np.zeros((2, 3)), np.array([[1, 4], [0, 6]]))
    np.testing.assert_array_equal(rows[:, 3:], [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]])
    assert space.num_features == 8


def test_multi_binary_action_is_one_hot_per_switch():
    space = InputSpace.from_spaces(BOX, gym.spaces.MultiBinary(2))
    rows = space.rows(np.zeros((1, 3)), np.array([[0, 1]]))
    np.testing.assert_array_equal(rows[:, 3:], [[1, 0, 0, 1]])


def test_uint8_vectors_are_scaled_to_0_to_1():
    space = InputSpace.from_spaces(gym.spaces.Box(0, 255, (1, 2), np.uint8), gym.spaces.Discrete(2))
    rows = space.rows(np.array([[[0, 255]]], np.uint8), np.array([0]))
    np.testing.assert_allclose(rows, [[0, 1, 1, 0]])


def test_unsupported_action_space_raises_bad_config():
    with pytest.raises(BadConfig, match="MultiBinary"):
        InputSpace.from_spaces(BOX, gym.spaces.Tuple([gym.spaces.Discrete(2)]))


def test_wrong_shapes_raise_bad_config():
    space = InputSpace.from_spaces(BOX, gym.spaces.Box(-1, 1, (2,)))
    with pytest.raises(BadConfig, match="was made for"):
        space.rows(np.zeros((4, 2)), np.zeros((4, 2)))


def test_dict_observations_raise_bad_config_with_advice():
    with pytest.raises(BadConfig, match="Flatten it"):
        InputSpace.from_spaces(gym.spaces.Dict(a=BOX), gym.spaces.Discrete(2))


SEVERAL = np.array([[2], [4]])
IMAGE = gym.spaces.Box(0, 255, (12, 12, 3), np.uint8)
SPACES = [
    (IMAGE, gym.spaces.Discrete(3, start=5)),
    # By its shape this would be 16x10 pixels with 10 channels.
    (ImageBox(ImageLayout((16, 10, 10), 0)), gym.spaces.MultiBinary(2)),
    (ImageBox(ImageLayout((12, 12), None, 2)), gym.spaces.Discrete(2)),
    (BOX, gym.spaces.MultiDiscrete(SEVERAL, start=3 + SEVERAL)),
]


@pytest.mark.parametrize(("observations", "actions"), SPACES)
def test_space_round_trips_through_json(observations, actions):
    space = InputSpace.from_spaces(observations, actions)
    assert InputSpace.from_json(json.loads(json.dumps(space.to_json()))) == space
    space.check_steps(observations.sample()[None], np.array([actions.sample()]))


@pytest.mark.parametrize(
    "changes",
    [
        {"action_choices": [3, 3]},
        {"action_choices": [0]},
        {"first_choices": []},
        {"first_choices": "a"},
        {"action_shape": [2]},
        {"observation_shape": [0]},
        {"observation_shape": [12, 12]},
        {"observation_scale": float("nan")},
        {"image": {"shape": [12, 12, 3], "channel_axis": 1}},
        {"image": {"shape": [12, 12], "channel_axis": None}},
        {"image": {"shape": [12, 12, 3], "channel_axis": 2, "vector_size": 1}},
        {"image": {"shape": [12, 12, 3], "channel_axis": 2, "vector_size": -1}},
    ],
)
def test_inconsistent_json_is_refused(changes):
    space = InputSpace.from_spaces(*SPACES[0])
    with pytest.raises(ValueError, match=r"."):
        InputSpace.from_json({**space.to_json(), **changes})
