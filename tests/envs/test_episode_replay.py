"""Recipes: kept as long as clips may be cut, saved and restored, and never without bound."""

# pyright: reportAttributeAccessIssue=false

import dataclasses

import numpy as np
import pytest

from rl_teacher.common.errors import CorruptCheckpoint
from rl_teacher.envs import make_vector
from rl_teacher.envs.episode_replay import KEEP_STEPS, ReplayHistory


def live(envs, num_steps, seed=0):
    """[T, N, 2] the scene states before every random step."""
    envs.action_space.seed(seed)
    scene_states = []
    for _ in range(num_steps):
        scene_states.append(envs.scene_states)
        envs.step(envs.action_space.sample())
    return np.array(scene_states)


@pytest.fixture
def carts():
    envs = make_vector("CartPole-v1", 3, keep_steps=120)
    envs.reset(seed=0)
    return envs


def test_scene_states_say_which_episode_and_which_step_it_is(carts):
    scene_states = live(carts, 60)
    assert scene_states.shape == (60, 3, 2)
    assert scene_states[0].tolist() == [[0, 0], [1, 0], [2, 0]]
    for env in range(3):
        episodes, steps = scene_states[:, env].T
        is_new = np.diff(episodes) != 0
        assert is_new.any()
        assert (steps[1:][is_new] == 0).all()
        assert (np.diff(steps)[~is_new] == 1).all()
    lives = {(episode, env) for env in range(3) for episode in scene_states[:, env, 0]}
    assert len({episode for episode, _ in lives}) == len(lives)


def test_every_step_of_the_last_keep_steps_can_be_lived_again(carts):
    scene_states = live(carts, 200)
    for episode, step in scene_states[-120 // 3 :].reshape(-1, 2).astype(int).tolist():
        assert len(carts.replay_record(episode)) > step


def test_what_ended_long_ago_is_forgotten(carts):
    live(carts, 200)
    with pytest.raises(LookupError, match=r"episode 0 is not kept.*keep_steps"):
        carts.replay_record(0)


def test_the_memory_does_not_grow(carts):
    sizes = []
    for seed in range(6):
        live(carts, 300, seed)
        sizes.append(sum(array.nbytes for array in carts.get_state().values()))
    assert max(sizes) < 1.5 * sizes[0]


def test_a_recipe_has_the_actions_that_were_taken(carts):
    carts.action_space.seed(0)
    taken = [carts.action_space.sample() for _ in range(5)]
    for actions in taken:
        carts.step(actions)
    np.testing.assert_array_equal(carts.replay_record(1).actions, np.array(taken)[:, 1])


def test_kept_recipes_and_numbers_survive_a_restart(carts):
    scene_states = live(carts, 100)
    restored = make_vector("CartPole-v1", 3, keep_steps=120)
    restored.set_state(carts.get_state())
    np.testing.assert_array_equal(restored.scene_states, carts.scene_states)
    for episode in np.unique(scene_states[-40:, :, 0]).astype(int).tolist():
        assert_same_recipe(carts.replay_record(episode), restored.replay_record(episode))
    np.testing.assert_array_equal(live(carts, 100, seed=1), live(restored, 100, seed=1))
    assert_same_arrays(carts.get_state(), restored.get_state())


def assert_same_recipe(one, other):
    assert one.reset_state == other.reset_state
    np.testing.assert_array_equal(one.actions, other.actions)
    assert one.actions.dtype == other.actions.dtype


def assert_same_arrays(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_a_state_from_before_there_were_recipes_is_refused(carts):
    names = ("reset_states", "lengths", "actions", "observations")
    old = {name: array for name, array in carts.get_state().items() if name in names}
    with pytest.raises(CorruptCheckpoint, match=r"lacks .*history/counts, .*"):
        carts.set_state(old)


def test_an_episode_broken_off_by_a_reset_is_kept(carts):
    live(carts, 5)
    carts.reset(seed=1)
    assert len(carts.replay_record(0)) == 5


def test_with_mujoco_no_recipes_are_kept():
    envs = make_vector("Pusher-v5", 1)
    envs.reset(seed=0)
    live(envs, 150)
    assert envs.get_state()["history/episodes"].size == 0


def test_as_much_is_kept_as_segments_are_cut_from():
    from rl_teacher.rewards.learner import RECORDED_STEPS

    assert KEEP_STEPS >= RECORDED_STEPS


def test_a_long_episode_that_ends_pushes_no_short_one_out():
    """What counts is when an episode ended, not how much was handed in since."""
    envs = make_vector("CartPole-v1", 1)
    envs.reset(seed=0)
    record = envs.replay_record(0)
    history = ReplayHistory(keep_steps=10)
    for episode, num_actions in [(0, 3), (1, 50)]:
        history.start_episode()
        history.count_steps()
        history.end_episode(
            episode, dataclasses.replace(record, actions=np.zeros(num_actions, np.int64))
        )
    assert len(history[0]) == 3
