import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.agents.actions import ActionScale
from rl_teacher.agents.policies import make_policy
from rl_teacher.agents.ppo import minibatches
from rl_teacher.common.errors import BadConfig


def test_each_epoch_holds_every_sample_once():
    order = minibatches(np.random.default_rng(0), 10, 3, 5).reshape(3, 10)
    assert (np.sort(order, axis=1) == np.arange(10)).all()
    assert not np.array_equal(order[0], order[1])


LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("low", "high", "dtype", "actions", "expected"),
    [
        ([-2, 0], [2, 1], np.float64, [[0.5, 0.0], [-9.0, 9.0]], [[1.0, 0.5], [-2.0, 1.0]]),
        # The sum or difference of the bounds overflows.
        ([100], [200], np.uint8, [[-1.0], [1.0]], [[100], [200]]),
        ([-128], [127], np.int8, [[-1.0], [1.0]], [[-128], [127]]),
        # Without some bound, actions are not scaled.
        ([-np.inf] * 2, [np.inf] * 2, np.float32, [[5.0, -7.0]], [[5.0, -7.0]]),
        ([-LARGEST] * 2, [LARGEST] * 2, np.float32, [[5.0, -7.0]], [[5.0, -7.0]]),
        ([0, -2], [np.inf, 2], np.float64, [[5.0, -7.0], [-3.0, 0.5]], [[5, -2], [0, 0.5]]),
    ],
)
def test_actions_are_scaled_to_bounds_and_clipped(low, high, dtype, actions, expected):
    scale = ActionScale.of(gym.spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype))
    scaled = scale.to_environment(np.array(actions, np.float32))
    np.testing.assert_allclose(scaled, expected)
    assert scaled.dtype == np.float32


def test_unsupported_action_space_is_refused():
    with pytest.raises(BadConfig, match="MultiBinary"):
        make_policy(3, gym.spaces.MultiBinary(2), (8,), np.random.default_rng(0))


def test_discrete_actions_add_start_of_space():
    scale = ActionScale.of(gym.spaces.Discrete(3, start=4))
    assert scale.to_environment(np.array([0, 2])).tolist() == [4, 6]
