"""Gymnasium environments: state saved and restored by replaying the episode."""

import logging

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from rl_teacher.common.errors import CorruptCheckpoint
from rl_teacher.envs import make_vector
from rl_teacher.envs.snapshots import ReplayVectorEnv


def random_steps(envs, num_steps, seed):
    envs.action_space.seed(seed)
    return [envs.step(envs.action_space.sample()) for _ in range(num_steps)]


@pytest.mark.parametrize(
    "env_id",
    [
        *("CartPole-v1", "LunarLander-v3", "BipedalWalker-v3", "Pendulum-v1", "Pusher-v5"),
        "FrozenLake-v1",
    ],
)
@pytest.mark.parametrize("num_steps", [0, 130])
def test_restored_state_continues_exactly(env_id, num_steps):
    envs = make_vector(env_id, 2)
    envs.reset(seed=0)
    random_steps(envs, num_steps, seed=1)
    state = envs.get_state()
    original = random_steps(envs, 60, seed=2)
    restored = make_vector(env_id, 2)
    restored.set_state(state)
    for step, same_step in zip(original, random_steps(restored, 60, seed=2), strict=True):
        for part in range(4):
            np.testing.assert_array_equal(step[part], same_step[part])


def test_restored_state_keeps_elapsed_steps():
    envs = make_vector("Pendulum-v1", 2)
    envs.reset(seed=0, options={"elapsed_steps": [190, 195]})
    random_steps(envs, 3, seed=0)
    restored = make_vector("Pendulum-v1", 2)
    restored.set_state(envs.get_state())
    ends = np.array([step[3] for step in random_steps(restored, 7, seed=0)])
    assert np.argwhere(ends).tolist() == [[1, 1], [6, 0]]


def test_final_observation_belongs_to_ended_episode():
    envs = make_vector("Pendulum-v1", 2)
    envs.reset(seed=0, options={"elapsed_steps": [199, 0]})
    observations, *_, infos = envs.step(np.zeros((2, 1), np.float32))
    assert infos["final_obs"].shape == (2, 3)
    assert infos["_final_obs"].tolist() == [True, False]
    np.testing.assert_array_equal(infos["final_obs"][1], observations[1])
    assert not np.array_equal(infos["final_obs"][0], observations[0])


def test_state_of_other_number_of_environments_is_refused():
    envs = make_vector("CartPole-v1", 2)
    envs.reset(seed=0)
    with pytest.raises(CorruptCheckpoint, match="episodes"):
        make_vector("CartPole-v1", 3).set_state(envs.get_state())


def test_elapsed_steps_of_reset_mask_apply_to_reset_environments_only():
    envs = make_vector("Pendulum-v1", 2)
    envs.reset(seed=0, options={"elapsed_steps": [198, 198]})
    random_steps(envs, 1, seed=1)
    mask = np.array([True, False])
    envs.reset(options={"reset_mask": mask, "elapsed_steps": [197, 0]})
    assert [step[3].tolist() for step in random_steps(envs, 3, seed=1)] == [
        [False, True],
        [False, False],
        [True, False],
    ]


def test_second_box2d_episode_equals_first_of_fresh_environment():
    """A reused Box2D world would retain state, and a replayed episode would differ."""
    used, fresh = make_vector("BipedalWalker-v3", 1), make_vector("BipedalWalker-v3", 1)
    used.reset(seed=0)
    random_steps(used, 130, seed=1)
    np.testing.assert_array_equal(used.reset(seed=5)[0], fresh.reset(seed=5)[0])
    for step, same_step in zip(
        random_steps(used, 50, seed=2), random_steps(fresh, 50, seed=2), strict=True
    ):
        np.testing.assert_array_equal(step[0], same_step[0])


@pytest.mark.parametrize(
    "make",
    [np.random.RandomState, lambda seed: np.random.Generator(np.random.MT19937(seed))],
    ids=["legacy", "MT19937"],
)
def test_episodes_of_other_generators_are_replayed(make):
    class OtherGenerator(Accumulator):
        def reset(self, *, seed=None, options=None):
            if seed is not None:
                self.np_random = make(seed)
            self.place[:] = self.np_random.normal(), 0.0
            return self.place, {}

    envs, restored = ReplayVectorEnv(OtherGenerator, 1), ReplayVectorEnv(OtherGenerator, 1)
    envs.reset(seed=0)
    random_steps(envs, 3, seed=1)
    restored.set_state(envs.get_state())
    for one, other in zip(
        random_steps(envs, 5, seed=2), random_steps(restored, 5, seed=2), strict=True
    ):
        np.testing.assert_array_equal(one[0], other[0])


class NonDeterministic(gymnasium.Env):
    """Environment whose observations ignore the seed."""

    observation_space = Box(0.0, 1.0, (1,))
    action_space = Box(0.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return np.random.default_rng().random(1, np.float32), {}

    def step(self, action):
        del action
        return np.random.default_rng().random(1, np.float32), 0.0, False, False, {}


def test_non_deterministic_environment_is_logged(caplog):
    envs = ReplayVectorEnv(NonDeterministic, 1)
    envs.reset(seed=0)
    with caplog.at_level(logging.WARNING):
        envs.set_state(envs.get_state())
    assert "not deterministic" in caplog.text


class Accumulator(gymnasium.Env):
    """Sum of the actions of two steps, in an array that the next episode overwrites."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,))

    def __init__(self):
        self.place = np.zeros(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.place[:] = 0.0
        return self.place, {}

    def step(self, action):
        self.place += float(action[0]), 1.0
        return self.place, 0.0, False, bool(self.place[1] == 2.0), {}


def test_final_observation_is_kept_when_reset_overwrites_its_array():
    envs = ReplayVectorEnv(Accumulator, 1)
    envs.reset(seed=0)
    envs.step(np.ones((1, 1), np.float32))
    observations, *_, infos = envs.step(np.ones((1, 1), np.float32))
    np.testing.assert_array_equal(infos["final_obs"], [[2, 2]])
    np.testing.assert_array_equal(observations, [[0, 0]])


def test_observations_of_another_float_type_are_restored_exactly(caplog):
    class OtherFloats(Accumulator):
        observation_space = Box(-np.inf, np.inf, (2,), np.float32)

        def reset(self, *, seed=None, options=None):
            self.place[:] = 1 / 3, 0
            return self.place, {}

    envs, restored = ReplayVectorEnv(OtherFloats, 1), ReplayVectorEnv(OtherFloats, 1)
    envs.reset(seed=0)
    restored.set_state(envs.get_state())
    assert caplog.text == ""
    observations, *_ = restored.step(np.ones((1, 1), np.float32))
    assert observations.dtype == np.float32


class WithInfo(Accumulator):
    """Accumulator with an info of a given value."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"given": self.value}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *[(np.ones(2), np.ones(3)), (1, None), (1, "none"), (np.ones(2), {"part": 1})],
        *[(1, 10**30), (10**30, 1)],
    ],
)
def test_infos_that_do_not_fit_into_one_array_become_objects(first, second):
    values = iter([first, second])
    envs = ReplayVectorEnv(lambda: WithInfo(next(values)), 2)
    envs.reset(seed=0)
    *_, infos = envs.step(np.ones((2, 1), np.float32))
    for given, expected in zip(infos["given"], (first, second), strict=True):
        np.testing.assert_equal(given, expected)
    assert infos["_given"].all()
