import numpy as np
import pytest

from rl_teacher.agents.episode_stats import EpisodeReturns, ReturnScaler
from rl_teacher.common.running_stats import RunningMeanStd
from rl_teacher.envs.rollout import Rollout


def test_running_statistics_of_batches_equal_statistics_of_all():
    rng = np.random.default_rng(0)
    batches = [rng.normal(3, 5, (size, 2)) for size in (1, 10, 500)]
    stats = RunningMeanStd((2,))
    for batch in batches:
        stats.update(batch)
    all_samples = np.concatenate(batches)
    assert stats.mean == pytest.approx(all_samples.mean(0), rel=1e-3)
    assert stats.variance == pytest.approx(all_samples.var(0), rel=1e-3)


def no_ends(shape):
    return np.zeros(shape, bool)


def rollout_of(rewards, ended):
    """Return a rollout of these rewards whose episodes are truncated where `ended`."""
    rewards, ended = np.array(rewards, np.float32), np.array(ended, bool)
    column = rewards[..., None]
    never = np.zeros_like(ended)
    return Rollout(column, column, rewards, column, never, ended, ~never, column)


def test_recent_return_is_that_of_running_episodes_until_one_has_ended():
    episodes = EpisodeReturns(2, starts_at_reset=True)
    assert np.isnan(episodes.recent(10)).all()
    rollout = rollout_of([[1, 2], [3, 4]], [[False, False], [False, False]])
    episodes.observe(rollout, rollout.rewards)
    # Returns 4 and 6 after two steps.
    assert episodes.recent(10) == (5, 2)
    rollout = rollout_of([[1, 7]], [[True, False]])
    episodes.observe(rollout, rollout.rewards)
    assert episodes.recent(10) == (5, 3)


def test_scaled_rewards_do_not_depend_on_scale():
    rewards = np.random.default_rng(0).normal(size=(50, 4))
    is_valid = ~no_ends((50, 4))
    small = ReturnScaler(4, 0.99)(rewards, no_ends((50, 4)), is_valid)
    large = ReturnScaler(4, 0.99)(1000 * rewards, no_ends((50, 4)), is_valid)
    np.testing.assert_allclose(small, large, rtol=1e-3)


def test_scaled_rewards_are_clipped():
    rewards = np.zeros((50, 1))
    rewards[-1] = 1e9
    scaler = ReturnScaler(1, 0.99, clip=5.0)
    scaler(np.random.default_rng(0).normal(size=(50, 1)), no_ends((50, 1)), ~no_ends((50, 1)))
    assert np.abs(scaler(rewards, no_ends((50, 1)), ~no_ends((50, 1)))).max() <= 5.0


def test_return_restarts_after_episode_end():
    scaler = ReturnScaler(1, 1.0)
    scaler(np.ones((3, 1)), np.array([[False], [True], [False]]), ~no_ends((3, 1)))
    assert scaler.state()["returns"] == pytest.approx([1.0])
