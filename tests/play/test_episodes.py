from contextlib import closing
from typing import Any, cast

import numpy as np
import pytest

from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.atari.rules import GAME_RULES, GameRules
from rl_teacher.envs.registry import get_env_info, make_vector
from rl_teacher.envs.rendering import render_steps
from rl_teacher.play import episodes as episodes_module
from rl_teacher.play.actors import Actor, load_actor
from rl_teacher.play.episodes import per_frame, record_episode


@pytest.fixture
def actor(home):
    found = load_actor("synth", "latest")
    with closing(found.venv):
        yield found


@pytest.fixture
def cart(home):
    found = load_actor("cart", "latest")
    with closing(found.venv):
        yield found


def replay_record_of(venv, episode):
    return venv.replay_record(int(episode.segment.scene_states[0, 0]))


def test_episode_is_complete_with_one_reward_per_step(actor):
    episode = record_episode(actor, 3, explore=False)
    assert len(episode.segment) == 20
    assert episode.end == "truncated"
    assert episode.predicted_rewards is not None
    assert episode.predicted_rewards.shape == (20,)
    np.testing.assert_array_equal(episode.true_rewards, episode.segment.rewards)


def test_seed_determines_episode(actor):
    first, again, other = (record_episode(actor, seed, explore=False) for seed in (3, 3, 4))
    assert first.segment.content_hash == again.segment.content_hash
    assert first.segment.content_hash != other.segment.content_hash


def test_actions_are_most_likely_unless_exploring(actor):
    episode = record_episode(actor, 3, explore=False)
    best = actor.policy(explore=False)(episode.segment.observations)
    np.testing.assert_allclose(episode.segment.actions, best, atol=1e-6)
    explored = record_episode(actor, 3, explore=True)
    best = actor.policy(explore=False)(explored.segment.observations)
    assert np.abs(explored.segment.actions - best).mean() > 0.05


def test_two_agents_start_from_same_state(actor, home):
    other = load_actor("rl", "latest")
    with closing(other.venv):
        first, second = (record_episode(each, 5, explore=False) for each in (actor, other))
    np.testing.assert_array_equal(first.segment.observations[0], second.segment.observations[0])
    assert first.segment.content_hash != second.segment.content_hash


def test_terminated_episode_can_be_rendered(cart):
    episode = record_episode(cart, 1, explore=True)
    assert episode.end == "terminated"
    record = replay_record_of(cart.venv, episode)
    assert len(record) == len(episode.segment)
    steps = np.arange(len(episode.segment))
    frames = render_steps(cart.env_info.id, record, steps, episode.segment.observations)
    assert len(frames) == len(episode.segment)


def test_endless_episode_is_cut(actor, monkeypatch):
    monkeypatch.setattr(episodes_module, "MAX_EPISODE_STEPS", 7)
    episode = record_episode(actor, 3, explore=False)
    assert len(episode.segment) == 7
    assert episode.end == "cut"


def test_environment_without_rewards_has_no_true_rewards(actor):
    episode = record_episode(actor, 3, explore=False)
    episode.segment.rewards[:] = 0
    assert episode.true_rewards is None


def test_reward_of_frame_is_mean_over_steps():
    rewards = np.array([1, 3, 5, 9, 4], np.float32)
    assert per_frame(rewards, np.array([0, 2, 4])).tolist() == [2.0, 7.0, 4.0]


class GoesRight:
    def predict(self, observations, masks=None, *, deterministic):
        return np.full(len(observations), 2)

    def load_state(self, state):
        raise NotImplementedError


def test_invalid_steps_are_left_out_of_episode(monkeypatch):
    rules = GameRules(start_points=((2, 2, 2),), max_episode_steps=6)
    monkeypatch.setitem(GAME_RULES, "Pong", rules)
    with closing(make_vector("Pong-v0", 1, 1)) as venv:
        actor = Actor(
            name="right",
            kind="own",
            env_info=get_env_info("Pong-v0"),
            agent=cast("Any", GoesRight()),
            rng=np.random.default_rng(0),
            predictor=None,
            frames=FrameSettings(),
            venv=venv,
            step=0,
            place="latest checkpoint",
            is_training=False,
        )
        episode = record_episode(actor, 1, explore=False)
        record = replay_record_of(venv, episode)
    assert len(episode.segment) == 6
    assert episode.end == "truncated"
    np.testing.assert_array_equal(episode.segment.scene_states[:, 1], np.arange(6))
    steps = np.array([0, 5])
    render_steps(actor.env_info.id, record, steps, episode.segment.observations[steps])
