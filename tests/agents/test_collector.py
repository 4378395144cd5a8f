from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_teacher.agents.collector import Collector
from rl_teacher.common.errors import BadObservation
from rl_teacher.envs.registry import make_vector
from rl_teacher.envs.snapshots import ReplayVectorEnv
from tests.agents.rollouts import masked_vector


class Countdown(gym.Env):
    """Counter that terminates at 3 and pays its value as the reward."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)
    nan_at = np.inf

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0.0
        return np.array([self.at]), {}

    def step(self, action):
        self.at += 1
        at = np.nan if self.at == self.nan_at else self.at
        return np.array([at]), at, self.at >= 3, False, {}


class NonFiniteCountdown(Countdown):
    nan_at = 2


def rollout_in(mode, num_steps=8, env=Countdown):
    venv = SyncVectorEnv([env], autoreset_mode=mode)
    collector = Collector(venv, seed=0)
    return collector.collect(collector.random_actions, num_steps)


ALL_MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]


@pytest.mark.parametrize("mode", ALL_MODES)
def test_next_observation_at_episode_end_is_final_observation(mode):
    rollout = rollout_in(mode)
    np.testing.assert_array_equal(rollout.next_observations[rollout.ended][:, 0], 3)


@pytest.mark.parametrize("mode", ALL_MODES)
def test_valid_steps_do_not_depend_on_autoreset_mode(mode):
    rollout = rollout_in(mode)
    before = rollout.observations[rollout.is_valid][:6, 0]
    np.testing.assert_array_equal(before, [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(rollout.rewards[rollout.is_valid][:6], [1, 2, 3, 1, 2, 3])


def test_reset_step_is_invalid():
    rollout = rollout_in(AutoresetMode.NEXT_STEP)
    np.testing.assert_array_equal(rollout.is_valid[:, 0], [1, 1, 1, 0, 1, 1, 1, 0])
    assert rollout.num_steps == 6


def test_non_finite_observations_are_refused():
    with pytest.raises(BadObservation, match="next observations"):
        rollout_in(AutoresetMode.SAME_STEP, env=NonFiniteCountdown)


def test_staggered_episodes_end_at_different_steps():
    venv = make_vector("ShortHopper-v1", 8)
    collector = Collector(venv, seed=0, stagger=300)
    rollout = collector.collect(collector.random_actions, 300)
    assert rollout.truncated.any(axis=1).sum() > 4
    assert rollout.truncated.sum(axis=0).tolist() == [1] * 8


def test_restored_collector_continues_exactly():
    one, other = (Collector(make_vector("Hopper-v5", 4), seed=s) for s in (0, 1))
    one.collect(one.random_actions, 30)
    other.load_state(one.state())
    expected, actual = (c.collect(c.random_actions, 60) for c in (one, other))
    np.testing.assert_array_equal(expected.next_observations, actual.next_observations)
    np.testing.assert_array_equal(expected.rewards, actual.rewards)


def stream_of(rng):
    """Return what identifies the stream of a PCG64 generator, whatever was drawn from it."""
    return rng.bit_generator.state["state"]["inc"]


@pytest.mark.parametrize("env_id", ["ShortHopper-v1", "CartPole-v1", "MovingDot-v0"])
def test_runs_of_adjacent_seeds_share_no_random_stream(env_id):
    streams = []
    for seed in range(3):
        venv: Any = make_vector(env_id, 4)
        Collector(venv, seed=seed)
        streams += [stream_of(rng) for rng in venv.np_random]
        streams += [stream_of(np.random.default_rng([seed, purpose])) for purpose in range(1, 8)]
        venv.close()
    assert len(set(streams)) == len(streams)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_random_actions_respect_action_masks(mode):
    collector = Collector(masked_vector(mode), seed=0)
    rollout = collector.collect(collector.random_actions, 12)
    assert rollout.action_masks is not None
    assert (rollout.action_masks.sum(-1) == 1).all()
    taken = np.take_along_axis(rollout.action_masks, rollout.actions[..., None] - 4, -1)
    assert taken.all()


def test_null_actions_respect_action_masks():
    collector = Collector(masked_vector(AutoresetMode.SAME_STEP), seed=0)
    # The environment fails if a forbidden action is taken.
    rollout = collector.collect(collector.null_actions, 12)
    assert set(rollout.actions.ravel().tolist()) == {4, 5, 6}


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [("ShortHopper-v1", [0.0, 0.0, 0.0]), ("Pong-v0", 0), ("CartPole-v1", 0)],
)
def test_null_actions_are_zeros_or_first_action(env_id, expected):
    venv = make_vector(env_id, 2)
    collector = Collector(venv, seed=0)
    rollout = collector.collect(collector.null_actions, 5)
    venv.close()
    np.testing.assert_array_equal(rollout.actions, np.broadcast_to(expected, rollout.actions.shape))


class SumOfIntegers(Countdown):
    action_space = gym.spaces.Box(-3, 3, (1,), np.int32)

    def step(self, action):
        assert self.action_space.contains(action)
        self.at += int(action[0])
        return np.array([self.at]), 0.0, False, False, {}


def test_actions_of_integer_box_are_integers_and_replayed():
    collector = Collector(ReplayVectorEnv(SumOfIntegers, 2), seed=0)
    expected = collector.collect(collector.random_actions, 9).next_observations[-1]
    restored = Collector(ReplayVectorEnv(SumOfIntegers, 2), seed=1)
    restored.load_state(collector.state())
    np.testing.assert_array_equal(restored.venv.observations, expected)  # pyright: ignore[reportAttributeAccessIssue]


class IgnoresFirstActions(Countdown):
    """Countdown that ignores the actions of the first two steps."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = -2.0
        return np.array([self.at]), {"ignores_action": True}

    def step(self, action):
        observation, at, terminated, truncated, _ = super().step(action)
        reward = max(at, 0.0)
        return observation, reward, terminated, truncated, {"ignores_action": self.at < 0}


def test_steps_that_ignore_action_are_invalid():
    rollout = rollout_in(AutoresetMode.SAME_STEP, 11, IgnoresFirstActions)
    np.testing.assert_array_equal(rollout.is_valid[:, 0], [0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0])
    np.testing.assert_array_equal(rollout.observations[rollout.is_valid][:, 0], [0, 1, 2] * 2)
