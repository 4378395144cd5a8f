import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

from rl_teacher.agents.actions import ActionScale
from rl_teacher.agents.policies import make_policy
from rl_teacher.agents.ppo import minibatches
from rl_teacher.agents.rollout_batch import generalized_advantage_estimation
from rl_teacher.common.errors import BadConfig


def column(*values):
    return jnp.array(values)[:, None]


def test_gae_matches_hand_computation():
    # delta = r + 0.5 * V' - V = [1 + 1 - 1, 2 + 1.5 - 2] = [1, 1.5]
    # A_1 = 1.5, A_0 = 1 + 0.5 * 0.8 * 1.5 = 1.6
    advantages = generalized_advantage_estimation(
        column(1.0, 2.0),
        column(1.0, 2.0),
        column(2.0, 3.0),
        column(0.0, 0.0),
        column(0.0, 0.0),
        gamma=0.5,
        gae_lambda=0.8,
    )
    np.testing.assert_allclose(advantages[:, 0], [1.6, 1.5])


def test_terminated_step_does_not_bootstrap():
    advantages = generalized_advantage_estimation(
        column(1.0), column(0.5), column(100.0), column(1.0), column(1.0), gamma=0.9, gae_lambda=0.9
    )
    assert advantages[0, 0] == pytest.approx(0.5)


def test_truncated_step_bootstraps_from_next_value():
    advantages = generalized_advantage_estimation(
        column(1.0), column(0.5), column(10.0), column(0.0), column(1.0), gamma=0.9, gae_lambda=0.9
    )
    assert advantages[0, 0] == pytest.approx(1 + 9 - 0.5)


def test_gae_does_not_cross_episode_end():
    def first_advantage(reward_after):
        return generalized_advantage_estimation(
            column(1.0, reward_after),
            column(0.0, 0.0),
            column(0.0, 0.0),
            column(0.0, 0.0),
            column(1.0, 0.0),
            gamma=0.9,
            gae_lambda=0.9,
        )[0, 0]

    assert first_advantage(0.0) == first_advantage(1000.0)


def test_each_epoch_holds_every_sample_once():
    order = minibatches(np.random.default_rng(0), 10, 3, 5).reshape(3, 10)
    assert (np.sort(order, axis=1) == np.arange(10)).all()
    assert not np.array_equal(order[0], order[1])


def test_actions_are_scaled_to_bounds_and_clipped():
    scale = ActionScale.of(
        gym.spaces.Box(np.array([-2, 0.0]), np.array([2, 1.0]), dtype=np.float64)
    )
    np.testing.assert_allclose(
        scale.to_environment(np.array([[0.5, 0.0], [-9.0, 9.0]])), [[1.0, 0.5], [-2.0, 1.0]]
    )


@pytest.mark.parametrize(("low", "high", "dtype"), [(100, 200, np.uint8), (-128, 127, np.int8)])
def test_actions_are_scaled_to_bounds_whose_sum_or_difference_overflows(low, high, dtype):
    scale = ActionScale.of(gym.spaces.Box(low, high, (1,), dtype))
    assert scale.to_environment(np.array([[-1.0], [1.0]])).tolist() == [[low], [high]]


@pytest.mark.parametrize("bound", [np.inf, np.finfo(np.float32).max])
def test_unbounded_actions_are_not_scaled(bound):
    scale = ActionScale.of(gym.spaces.Box(-bound, bound, (2,)))
    np.testing.assert_allclose(scale.to_environment(np.array([[5.0, -7.0]])), [[5.0, -7.0]])


def test_actions_with_some_bounds_are_clipped_and_not_scaled():
    space = gym.spaces.Box(np.array([0.0, -2.0]), np.array([np.inf, 2.0]), dtype=np.float64)
    scale = ActionScale.of(space)
    actions = scale.to_environment(np.array([[5.0, -7.0], [-3.0, 0.5]], np.float32))
    np.testing.assert_array_equal(actions, [[5.0, -2.0], [0.0, 0.5]])
    assert actions.dtype == np.float32


def test_unsupported_action_space_is_refused():
    with pytest.raises(BadConfig, match="MultiBinary"):
        make_policy(3, gym.spaces.MultiBinary(2), (8,), np.random.default_rng(0))


def test_discrete_actions_add_start_of_space():
    scale = ActionScale.of(gym.spaces.Discrete(3, start=4))
    assert scale.to_environment(np.array([0, 2])).tolist() == [4, 6]
