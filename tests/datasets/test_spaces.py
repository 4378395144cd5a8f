import json

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.common.errors import BadInput
from rl_teacher.datasets.reading import check_fits
from rl_teacher.datasets.spaces import Spaces
from rl_teacher.nn.encoders import ImageBox, image_layout_of
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.predictor.inputs import InputSpace

SEEN = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = [
    gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
    gym.spaces.Discrete(3, start=5),
    gym.spaces.MultiDiscrete([2, 3]),
    gym.spaces.MultiDiscrete([2, 3], start=[0, 4]),
    gym.spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    gym.spaces.MultiDiscrete(np.array([[2], [4]]), start=np.array([[7], [8]])),
    gym.spaces.MultiBinary(4),
]


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_spaces_round_trip_through_json(action):
    back = Spaces.from_json(Spaces(SEEN, action).to_json())
    assert InputSpace.from_spaces(back.observation, back.action) == InputSpace.from_spaces(
        SEEN, action
    )
    rng = np.random.default_rng(0)
    action.seed(int(rng.integers(100)))
    taken = np.array([action.sample() for _ in range(50)])
    check_fits(taken, back.action, "actions")


@pytest.mark.parametrize(
    "layout",
    [
        # By its shape this would be 16x10 pixels with 10 channels.
        ImageLayout((16, 10, 10), 0),
        ImageLayout((12, 12, 3), 2),
        ImageLayout((20, 20), None),
    ],
    ids=str,
)
def test_image_space_round_trip_keeps_channel_axis(layout):
    saved = json.dumps(Spaces(ImageBox(layout), gym.spaces.Discrete(2)).to_json())
    back = Spaces.from_json(json.loads(saved))
    assert image_layout_of(back.observation) == layout


def test_image_space_with_channel_axis_of_another_shape_is_refused():
    seen = {"kind": "image", "shape": [20, 20], "channel_axis": 2}
    with pytest.raises(BadInput, match="channel_axis"):
        Spaces.from_json({"observation": seen, "action": {"kind": "discrete", "n": 2, "start": 0}})


@pytest.mark.parametrize(
    ("action", "taken"),
    [
        (gym.spaces.MultiDiscrete([2, 3], start=[0, 4]), [[1, 3]]),
        (gym.spaces.MultiDiscrete([2, 3], start=[0, 4]), [[1, 7]]),
        (gym.spaces.MultiBinary(2), [[0, 2]]),
        (gym.spaces.Discrete(3, start=5), [4]),
    ],
)
def test_out_of_range_choices_are_refused(action, taken):
    with pytest.raises(BadInput, match="actions"):
        check_fits(np.array(taken), action, "actions")


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "multi_discrete", "nvec": [2, 3], "start": [0]},
        {"kind": "multi_discrete", "nvec": [2, 3], "start": "ab"},
        {"kind": "multi_discrete", "nvec": [2, 3], "shape": [2, 2]},
        {"kind": "multi_discrete", "nvec": [2, 3], "start": [0, 2**40]},
        {"kind": "multi_binary", "shape": []},
        {"kind": "multi_binary", "shape": [2**20, 2**20]},
        {"kind": "multi_binary", "shape": [0]},
    ],
)
def test_invalid_space_json_is_refused(values):
    seen = {"kind": "box", "shape": [3], "dtype": "float32"}
    with pytest.raises(BadInput, match="action"):
        Spaces.from_json({"observation": seen, "action": values})
