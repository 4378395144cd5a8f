import numpy as np
import pytest

from rl_teacher.agents.reward_scaling import ReturnScaler
from rl_teacher.common.running_stats import RunningMeanStd


def test_moments_over_batches_are_those_over_everything():
    rng = np.random.default_rng(0)
    batches = [rng.normal(3, 5, (size, 2)) for size in (1, 10, 500)]
    moments = RunningMeanStd((2,))
    for batch in batches:
        moments.update(batch)
    everything = np.concatenate(batches)
    assert moments.mean == pytest.approx(everything.mean(0), rel=1e-3)
    assert moments.variance == pytest.approx(everything.var(0), rel=1e-3)


def test_an_empty_batch_changes_nothing():
    moments = RunningMeanStd((2,))
    moments.update(np.empty((0, 2)))
    assert moments.count == pytest.approx(1e-4)


def never(shape):
    return np.zeros(shape, bool)


def test_rewards_of_any_size_come_out_alike():
    rewards = np.random.default_rng(0).normal(size=(50, 4))
    always = ~never((50, 4))
    small = ReturnScaler(4, 0.99)(rewards, never((50, 4)), always)
    large = ReturnScaler(4, 0.99)(1000 * rewards, never((50, 4)), always)
    np.testing.assert_allclose(small, large, rtol=1e-3)


def test_scaled_rewards_are_clipped():
    rewards = np.zeros((50, 1))
    rewards[-1] = 1e9
    scaler = ReturnScaler(1, 0.99, clip=5.0)
    scaler(np.random.default_rng(0).normal(size=(50, 1)), never((50, 1)), ~never((50, 1)))
    assert np.abs(scaler(rewards, never((50, 1)), ~never((50, 1)))).max() <= 5.0


def test_a_return_begins_anew_after_an_episode():
    scaler = ReturnScaler(1, 1.0)
    scaler(np.ones((3, 1)), np.array([[False], [True], [False]]), ~never((3, 1)))
    assert scaler.state()["returns"] == pytest.approx([1.0])
