"""Replay records of episodes: retention, saving and restoring."""

# pyright: reportAttributeAccessIssue=false

import dataclasses

import numpy as np
import pytest

from rl_teacher.common.errors import CorruptCheckpoint
from rl_teacher.envs import make_vector
from rl_teacher.envs.episode_replay import ReplayHistory


def take_random_steps(envs, num_steps, seed=0):
    """Take random steps and return the scene state before each, [T, N, 2]."""
    envs.action_space.seed(seed)
    scene_states = []
    for _ in range(num_steps):
        scene_states.append(envs.scene_states)
        envs.step(envs.action_space.sample())
    return np.array(scene_states)


@pytest.fixture
def cartpoles():
    envs = make_vector("CartPole-v1", 3, keep_steps=120)
    envs.reset(seed=0)
    return envs


def test_scene_states_hold_episode_and_step(cartpoles):
    scene_states = take_random_steps(cartpoles, 60)
    assert scene_states.shape == (60, 3, 2)
    assert scene_states[0].tolist() == [[0, 0], [1, 0], [2, 0]]
    for env in range(3):
        episodes, steps = scene_states[:, env].T
        is_new = np.diff(episodes) != 0
        assert is_new.any()
        assert (steps[1:][is_new] == 0).all()
        assert (np.diff(steps)[~is_new] == 1).all()
    env_episodes = {(episode, env) for env in range(3) for episode in scene_states[:, env, 0]}
    assert len({episode for episode, _ in env_episodes}) == len(env_episodes)


def test_last_keep_steps_have_replay_records(cartpoles):
    scene_states = take_random_steps(cartpoles, 200)
    for episode, step in scene_states[-120 // 3 :].reshape(-1, 2).astype(int).tolist():
        assert len(cartpoles.replay_record(episode)) > step


def test_record_of_old_episode_is_dropped(cartpoles):
    take_random_steps(cartpoles, 200)
    with pytest.raises(LookupError, match=r"episode 0 is not kept.*keep_steps"):
        cartpoles.replay_record(0)


def test_restored_state_keeps_replay_records(cartpoles):
    scene_states = take_random_steps(cartpoles, 100)
    restored = make_vector("CartPole-v1", 3, keep_steps=120)
    restored.set_state(cartpoles.get_state())
    np.testing.assert_array_equal(restored.scene_states, cartpoles.scene_states)
    for episode in np.unique(scene_states[-40:, :, 0]).astype(int).tolist():
        assert_same_record(cartpoles.replay_record(episode), restored.replay_record(episode))
    np.testing.assert_array_equal(
        take_random_steps(cartpoles, 100, seed=1), take_random_steps(restored, 100, seed=1)
    )
    assert_same_arrays(cartpoles.get_state(), restored.get_state())


def assert_same_record(one, other):
    assert one.reset_state == other.reset_state
    np.testing.assert_array_equal(one.actions, other.actions)
    assert one.actions.dtype == other.actions.dtype


def assert_same_arrays(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_state_without_history_is_refused(cartpoles):
    incomplete = cartpoles.get_state()
    del incomplete["histories"]
    with pytest.raises(CorruptCheckpoint, match="histories"):
        cartpoles.set_state(incomplete)


def test_record_of_episode_interrupted_by_reset_is_kept(cartpoles):
    take_random_steps(cartpoles, 5)
    cartpoles.reset(seed=1)
    assert len(cartpoles.replay_record(0)) == 5


def test_long_episode_does_not_evict_recent_short_one():
    """Retention counts the steps since the end of an episode, not the length of later records."""
    envs = make_vector("CartPole-v1", 1)
    envs.reset(seed=0)
    record = envs.replay_record(0)
    history = ReplayHistory(keep_steps=10)
    for episode, num_actions in [(0, 3), (1, 50)]:
        history.start_episode()
        history.count_step()
        history.end_episode(
            episode, dataclasses.replace(record, actions=np.zeros(num_actions, np.int64))
        )
    kept = history.get(0)
    assert kept is not None
    assert len(kept) == 3
