import numpy as np

from rl_teacher.clips.recorder import EpisodeWatcher
from rl_teacher.envs.rollout import Rollout


def a_rollout(first_number, ends_at, num_steps=4, invalid_at=()):
    numbers = first_number + np.arange(num_steps, dtype=np.float32)
    column = np.stack([numbers, -numbers], axis=1)
    truncated = np.zeros((num_steps, 2), bool)
    truncated[list(ends_at), 0] = True
    is_valid = np.ones((num_steps, 2), bool)
    is_valid[list(invalid_at), 0] = False
    return Rollout(
        observations=column[..., None],
        actions=column[..., None],
        rewards=column,
        next_observations=column[..., None],
        terminated=np.zeros((num_steps, 2), bool),
        truncated=truncated,
        is_valid=is_valid,
        scene_states=column[..., None].astype(np.float64),
    )


def watched(*rollouts, starts_at_reset=True):
    watcher = EpisodeWatcher("Reacher-v1", starts_at_reset=starts_at_reset)
    for rollout in rollouts:
        watcher.observe(rollout, 10 * rollout.rewards)
    return watcher


def latest(*rollouts, starts_at_reset=True):
    episode = watched(*rollouts, starts_at_reset=starts_at_reset).latest
    assert episode is not None
    return episode


def test_episode_spans_rollouts_of_first_environment():
    episode = latest(a_rollout(0, ends_at=[]), a_rollout(4, ends_at=[1]))
    np.testing.assert_array_equal(episode.segment.rewards, [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(episode.predicted_rewards, [0, 10, 20, 30, 40, 50])


def test_latest_episode_is_kept():
    episode = latest(a_rollout(0, ends_at=[0, 2]), a_rollout(4, ends_at=[]))
    np.testing.assert_array_equal(episode.segment.rewards, [1, 2])


def test_partial_episode_is_left_out():
    assert watched(a_rollout(0, ends_at=[2]), starts_at_reset=False).latest is None
    episode = latest(a_rollout(0, ends_at=[2]), a_rollout(4, ends_at=[0]), starts_at_reset=False)
    np.testing.assert_array_equal(episode.segment.rewards, [3, 4])


def test_reset_steps_belong_to_no_episode():
    episode = latest(a_rollout(0, ends_at=[0, 3], invalid_at=[1]))
    np.testing.assert_array_equal(episode.segment.rewards, [2, 3])
