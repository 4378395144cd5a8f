"""Rendering of replayed episodes."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from rl_teacher.common.errors import BadInput
from rl_teacher.envs import make_vector
from rl_teacher.envs.rendering import iterate_frames, render_steps

RENDERED = ["CartPole-v1", "LunarLander-v3", "BipedalWalker-v3", "Pendulum-v1", "MountainCar-v0"]


def take_random_steps(envs, num_steps, **reset):
    """Take random steps and return the observation and scene state before each, [T, N, ...]."""
    envs.reset(seed=3, **reset)
    envs.action_space.seed(3)
    observations, scene_states = [], []
    for _ in range(num_steps):
        observations.append(envs.observations.copy())
        scene_states.append(envs.scene_states.astype(int))
        envs.step(envs.action_space.sample())
    return np.array(observations), np.array(scene_states)


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


class Unseen(gymnasium.Env):
    """Environment without a render mode."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = Box(0.0, 1.0, (1,))
    action_space = Box(0.0, 1.0, (1,))

    def __init__(self, render_mode=None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self):
        return None


@pytest.fixture
def unseen():
    gymnasium.register("Unseen-v0", Unseen, disable_env_checker=True, order_enforce=False)
    yield "Unseen-v0"
    del gymnasium.registry["Unseen-v0"]


def test_environment_without_render_mode_is_refused(unseen):
    envs = make_vector(unseen, 1)
    take_random_steps(envs, 3)
    with pytest.raises(BadInput, match="Unseen-v0 cannot be shown"):
        render_steps(unseen, envs.replay_record(0), np.array([0]))


RENDER = """
import numpy as np
from rl_teacher.envs import make_vector
from rl_teacher.envs.rendering import render_steps

for env_id in ("CartPole-v1", "LunarLander-v3"):
    envs = make_vector(env_id, 1)
    envs.reset(seed=0)
    envs.step(np.array([0]))
    print(render_steps(env_id, envs.replay_record(0), np.arange(2)).shape)
"""
