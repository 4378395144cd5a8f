import numpy as np
import pytest

from rl_teacher.predictor.reward_scaling import WindowedMeanStd


def test_empty_window_leaves_rewards_unchanged():
    rewards = np.array([[1.0, 3.0]], np.float32)
    np.testing.assert_allclose(WindowedMeanStd(1, 100).normalise(rewards, 1.0), [1.0, 3.0])


def test_members_are_normalised_before_averaging():
    recent = WindowedMeanStd(2, 100)
    recent.update(np.array([[0.0, 2.0], [100.0, 300.0]]))
    # member 0: mean 1, std 1; member 1: mean 200, std 100
    normalised = recent.normalise(np.array([[2.0], [300.0]], np.float32), 1.0)
    np.testing.assert_allclose(normalised, [1.0])


def test_keeps_zero_scales_without_shift():
    recent = WindowedMeanStd(1, 100)
    recent.update(np.array([[3.0, 4.0, 0.0]]))
    # the root of the mean square of 3, 4 and 0
    scale = np.sqrt(25 / 3)
    normalised = recent.normalise(np.array([[0.0, 3.0]], np.float32), 0.5, keeps_zero=True)
    np.testing.assert_allclose(normalised, [0, 0.5 * 3 / scale])


def test_normalised_rewards_have_requested_std():
    rng = np.random.default_rng(0)
    rewards = rng.normal(5, 7, (1, 1000)).astype(np.float32)
    recent = WindowedMeanStd(1, 1000)
    recent.update(rewards)
    normalised = recent.normalise(rewards, 0.05)
    assert normalised.mean() == pytest.approx(0, abs=1e-6)
    assert normalised.std() == pytest.approx(0.05, rel=1e-4)


def test_batches_before_window_are_dropped():
    recent = WindowedMeanStd(1, 10)
    recent.update(np.full((1, 10), 1000.0))
    recent.update(np.arange(10.0)[None])
    assert recent.mean_and_std[0][0] == pytest.approx(4.5)


def test_constant_predictor_gives_zeros():
    recent = WindowedMeanStd(1, 10)
    rewards = np.full((1, 5), 0.1, np.float32)
    recent.update(rewards)
    assert np.abs(recent.normalise(rewards, 1.0)).max() < 0.05


def test_restored_window_continues_exactly():
    one, other = WindowedMeanStd(2, 6), WindowedMeanStd(2, 6)
    rng = np.random.default_rng(0)
    one.update(rng.normal(size=(2, 4)))
    other.load_state(one.state())
    later = rng.normal(size=(2, 4))
    one.update(later)
    other.update(later)
    np.testing.assert_array_equal(one.mean_and_std, other.mean_and_std)
