"""Rewards of sources that do not learn, and the metrics of predicted rewards."""

from dataclasses import replace

import numpy as np
import pytest

from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.rewards.source import EnvironmentReward, FrozenPredictorReward, prediction_metrics
from tests.rewards.rollouts import random_rollout

PREDICTOR = RewardPredictor(InputSpace((3,), (2,)), PredictorConfig(hidden=(4,)))


def metrics_of(rollout, members, rewards):
    return prediction_metrics(rollout, members.astype(np.float32), rewards.astype(np.float32))


@pytest.mark.parametrize(("clip", "largest"), [(0.0, np.inf), (0.5, 0.5)])
def test_environment_reward_is_clipped_only_where_a_limit_is_given(clip, largest):
    rollout = random_rollout()
    rewards = EnvironmentReward(clip).observe(rollout).rewards
    np.testing.assert_array_equal(rewards, rollout.rewards.clip(-largest, largest))


def test_frozen_predictor_keeps_its_scale():
    source, rollout = FrozenPredictorReward(PREDICTOR), random_rollout()
    first, again = (source.observe(rollout).rewards for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, PREDICTOR(rollout.observations, rollout.actions))


def test_step_correlation_compares_single_steps_and_correlation_sums():
    rollout = random_rollout()
    rewards = rollout.rewards + np.random.default_rng(1).normal(size=rollout.rewards.shape)
    metrics = metrics_of(rollout, np.stack([rewards] * 3), rewards)
    by_step = np.corrcoef(rewards.ravel(), rollout.rewards.ravel())[0, 1]
    by_env = np.corrcoef(rewards.sum(0), rollout.rewards.sum(0))[0, 1]
    assert metrics["step_correlation"] == pytest.approx(by_step)
    assert metrics["correlation"] == pytest.approx(by_env, rel=1e-5)


def test_steps_that_belong_to_no_episode_are_left_out():
    """The predictor says something about them too, in some environments more often than others."""
    rollout = random_rollout()
    members = np.random.default_rng(0).normal(size=(3, *rollout.rewards.shape))
    is_valid = np.arange(32)[:, None] >= np.arange(8)
    rollout = replace(rollout, is_valid=is_valid)
    found = [
        metrics_of(rollout, each, each.mean(0))
        for each in (members, np.where(is_valid, members, 100.0))
    ]
    assert found[0].keys() >= {"correlation", "disagreement", "step_correlation"}
    assert found[1] == found[0]


@pytest.mark.parametrize(
    ("scale", "disagreement"),
    # Standardised, 1, 2 and 3 are -1.22, 0 and 1.22.
    [(2.0, 0.0), (-1.0, (1.5**0.5 + 0 + 1.5**0.5) / 3)],
)
def test_disagreement_ignores_zero_and_scale_of_members(scale, disagreement):
    rewards = np.tile(np.array([1.0, 2.0, 3.0], np.float32), (32, 1))
    members = np.stack([rewards, scale * rewards + 5])
    metrics = metrics_of(random_rollout(num_envs=3), members, rewards)
    assert metrics["disagreement"] == pytest.approx(disagreement)


def test_disagreement_needs_three_environments():
    members = np.random.default_rng(0).normal(size=(3, 32, 2))
    assert "disagreement" not in metrics_of(random_rollout(num_envs=2), members, members[0])
