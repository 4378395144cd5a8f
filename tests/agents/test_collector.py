import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_teacher.agents.collector import Collector
from rl_teacher.agents.episode_stats import EpisodeReturns
from rl_teacher.common.errors import BadObservation
from rl_teacher.envs.registry import make_vector


class Countdown(gym.Env):
    """Counts 0, 1, 2, ...; ends at 3; the reward is the number reached."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)
    poison = np.inf

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0.0
        return np.array([self.at]), {}

    def step(self, action):
        self.at += 1
        at = np.nan if self.at == self.poison else self.at
        return np.array([at]), at, self.at >= 3, False, {}


class Poisoned(Countdown):
    poison = 2


def rollout_in(mode, num_steps=8, env=Countdown):
    venv = SyncVectorEnv([env], autoreset_mode=mode)
    collector = Collector(venv, seed=0)
    return collector.collect(collector.random_actions, num_steps)


ALL_MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]


@pytest.mark.parametrize("mode", ALL_MODES)
def test_the_observation_after_the_last_step_is_the_true_final_one(mode):
    rollout = rollout_in(mode)
    np.testing.assert_array_equal(rollout.next_observations[rollout.ended][:, 0], 3)


@pytest.mark.parametrize("mode", ALL_MODES)
def test_valid_steps_are_the_same_whatever_the_autoreset_mode(mode):
    rollout = rollout_in(mode)
    before = rollout.observations[rollout.is_valid][:6, 0]
    np.testing.assert_array_equal(before, [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(rollout.rewards[rollout.is_valid][:6], [1, 2, 3, 1, 2, 3])


def test_the_step_that_only_resets_belongs_to_no_episode():
    rollout = rollout_in(AutoresetMode.NEXT_STEP)
    np.testing.assert_array_equal(rollout.is_valid[:, 0], [1, 1, 1, 0, 1, 1, 1, 0])
    assert rollout.num_steps == 6


@pytest.mark.parametrize("mode", ALL_MODES)
def test_episode_returns_are_the_sums_of_their_own_rewards(mode):
    rollout = rollout_in(mode)
    episodes = EpisodeReturns(1, starts_at_reset=True)
    episodes.observe(rollout, rollout.rewards)
    assert list(episodes.returns) == [6.0, 6.0]
    assert list(episodes.lengths) == [3, 3]


def test_a_first_episode_that_began_late_is_left_out():
    rollout = rollout_in(AutoresetMode.SAME_STEP)
    episodes = EpisodeReturns(1, starts_at_reset=False)
    episodes.observe(rollout, rollout.rewards)
    assert list(episodes.returns) == [6.0]


def test_observations_that_are_not_numbers_are_refused_in_words():
    with pytest.raises(BadObservation, match="next observations that are not finite"):
        rollout_in(AutoresetMode.SAME_STEP, env=Poisoned)


def test_staggered_episodes_do_not_all_end_together():
    venv = make_vector("ShortHopper-v1", 8)
    rollout_ends = Collector(venv, seed=0, stagger=300)
    rollout = rollout_ends.collect(rollout_ends.random_actions, 300)
    assert rollout.truncated.any(axis=1).sum() > 4
    assert rollout.truncated.sum(axis=0).tolist() == [1] * 8


def test_a_restored_collector_lives_on_exactly():
    one, other = (Collector(make_vector("Hopper-v5", 4), seed=s) for s in (0, 1))
    one.collect(one.random_actions, 30)
    other.load_state(one.state())
    here, there = (c.collect(c.random_actions, 60) for c in (one, other))
    np.testing.assert_array_equal(here.next_observations, there.next_observations)
    np.testing.assert_array_equal(here.rewards, there.rewards)


class Picky(gym.Env):
    """Allows one action at a time, and tells which; an episode lasts five steps."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(3, start=4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.allowed, self.steps = 0, 0
        return np.zeros(2, np.float32), self._info()

    def step(self, action):
        assert action - 4 == self.allowed, "a forbidden action was taken"
        self.steps += 1
        self.allowed = self.steps % 3
        return np.zeros(2, np.float32), 1.0, False, self.steps == 5, self._info()

    def _info(self):
        mask = np.zeros(3, np.int8)
        mask[self.allowed] = 1
        return {"action_mask": mask}


def picky(mode):
    make = [Picky] * 2
    return gym.vector.SyncVectorEnv(make, autoreset_mode=mode)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_agents_are_told_which_actions_an_environment_allows(mode):
    collector = Collector(picky(mode), seed=0)
    rollout = collector.collect(collector.random_actions, 12)
    assert rollout.action_masks is not None
    assert (rollout.action_masks.sum(-1) == 1).all()
    taken = np.take_along_axis(rollout.action_masks, rollout.actions[..., None] - 4, -1)
    assert taken.all()


def test_masks_are_saved_with_the_environments():
    collector = Collector(make_vector("CartPole-v1", 2), seed=0)
    assert collector.collect(collector.random_actions, 3).action_masks is None
    assert "self/masks" not in collector.state()


class Launched(Countdown):
    """Gets to where its episodes start by itself, in two steps."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = -2.0
        return np.array([self.at]), {"ignores_action": True}

    def step(self, action):
        observation, at, terminated, truncated, _ = super().step(action)
        reward = max(at, 0.0)
        return observation, reward, terminated, truncated, {"ignores_action": self.at < 0}


def test_steps_that_ignore_the_action_belong_to_no_episode():
    rollout = rollout_in(AutoresetMode.SAME_STEP, 11, Launched)
    np.testing.assert_array_equal(rollout.is_valid[:, 0], [0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0])
    np.testing.assert_array_equal(rollout.observations[rollout.is_valid][:, 0], [0, 1, 2] * 2)


def test_a_step_that_ignores_the_action_still_does_so_after_a_restart():
    class Saved(SyncVectorEnv):
        def get_state(self):
            return {"at": np.array(self.get_attr("at"))}

        def set_state(self, state):
            self.reset()
            self.set_attr("at", state["at"].tolist())

    one, other = (
        Collector(Saved([Launched], autoreset_mode=AutoresetMode.SAME_STEP), seed=0)
        for _ in range(2)
    )
    one.collect(one.random_actions, 6)
    other.load_state(one.state())
    for collector in (one, other):
        rollout = collector.collect(collector.random_actions, 3)
        np.testing.assert_array_equal(rollout.is_valid[:, 0], [0, 1, 1])
