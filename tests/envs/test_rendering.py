"""Rendering of replayed episodes."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import numpy as np
import pytest

from rl_teacher.common.errors import BadInput
from rl_teacher.envs import make_vector
from rl_teacher.envs.rendering import iterate_frames, render_steps
from tests.envs.steps import take_random_steps

RENDERED = ["CartPole-v1", "LunarLander-v3", "BipedalWalker-v3", "Pendulum-v1", "MountainCar-v0"]


@pytest.mark.parametrize("env_id", RENDERED)
def test_rendered_episode_repeats_observations(env_id):
    envs = make_vector(env_id, 2)
    observations, scene_states = take_random_steps(envs, 110)
    episode = int(scene_states[-20, 1, 0])
    rows = np.flatnonzero(scene_states[:, 1, 0] == episode)[-30::2]
    steps = scene_states[rows, 1, 1]
    replayed, frames = zip(*iterate_frames(env_id, envs.replay_record(episode), steps), strict=True)
    np.testing.assert_array_equal(replayed, observations[rows, 1])
    assert all(frame.std() > 5 for frame in frames)
    assert len({frame.tobytes() for frame in frames}) > 1


def test_staggered_first_episode_is_rendered():
    envs = make_vector("Pendulum-v1", 1)
    observations, _ = take_random_steps(envs, 10, options={"elapsed_steps": [195]})
    steps = np.arange(5)
    render_steps("Pendulum-v1", envs.replay_record(0), steps, observations[steps, 0])
    assert len(envs.replay_record(0)) == 5


def test_episode_reset_with_options_is_rendered():
    envs = make_vector("CartPole-v1", 1)
    options = {"low": -0.2, "high": 0.2}
    observations, _ = take_random_steps(envs, 5, options=options)
    options["high"] = 0.1
    steps = np.arange(5)
    render_steps("CartPole-v1", envs.replay_record(0), steps, observations[steps, 0])


def test_restored_environment_renders_same_episode():
    envs, restored = (make_vector("LunarLander-v3", 2) for _ in range(2))
    observations, scene_states = take_random_steps(envs, 120)
    restored.set_state(envs.get_state())
    rows = np.flatnonzero(scene_states[:, 0, 0] == 0)[::10]
    steps = scene_states[rows, 0, 1]
    render_steps("LunarLander-v3", restored.replay_record(0), steps, observations[rows, 0])


def test_frames_with_other_observations_are_refused():
    envs = make_vector("Pendulum-v1", 1)
    observations, _ = take_random_steps(envs, 20)
    with pytest.raises(BadInput, match="gave other observations"):
        render_steps("Pendulum-v1", envs.replay_record(0), np.array([5]), observations[[6], 0])
