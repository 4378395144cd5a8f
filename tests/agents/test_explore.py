import numpy as np
import pytest

from rl_teacher.agents.explore import StateEntropy, neighbour_distances

LINE = np.array([[0.0], [1.0], [3.0], [7.0]], np.float32)
EVERY = np.arange(4)


@pytest.mark.parametrize(
    ("neighbour", "distances"), [(1, [1, 1, 2, 4]), (2, [3, 2, 3, 6]), (3, [7, 6, 4, 7])]
)
def test_neighbour_distances_on_line(neighbour, distances):
    actual = neighbour_distances(LINE, EVERY, LINE, EVERY, neighbour)
    np.testing.assert_allclose(actual, distances, rtol=1e-5)


def test_single_state_has_zero_distance():
    assert neighbour_distances(LINE[:1], EVERY[:1], LINE[:1], EVERY[:1]).tolist() == [0.0]


def test_reward_is_log_distance_over_its_standard_deviation():
    rng = np.random.default_rng(0)
    rewards = StateEntropy(0)(LINE, EVERY, rng)
    entropies = np.log1p([7, 6, 4, 7])
    np.testing.assert_allclose(rewards, entropies / entropies.std(), rtol=5e-3)


def test_rare_states_score_higher_against_subsample():
    rng = np.random.default_rng(0)
    crowd = rng.normal(size=(1000, 3)).astype(np.float32)
    states = np.concatenate([crowd, 5 + np.eye(3, dtype=np.float32)])
    rewards = StateEntropy(100)(states, np.arange(1003).reshape(17, 59), rng)
    assert rewards.shape == (17, 59)
    assert rewards.ravel()[-3:].min() > np.quantile(rewards, 0.99)


def test_restored_state_entropy_continues_exactly():
    rng = np.random.default_rng(0)
    entropy, other = StateEntropy(0), StateEntropy(0)
    entropy(LINE, EVERY, rng)
    other.load_state(entropy.state())
    np.testing.assert_array_equal(entropy(LINE, EVERY, rng), other(LINE, EVERY, rng))
