"""Tests of all on-policy agents: exact resume, warm starts and learning."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from rl_teacher.agents.a2c import A2C
from rl_teacher.agents.ga3c import GA3C
from rl_teacher.agents.ppo import PPO
from rl_teacher.agents.trpo import TRPO
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import A2CConfig, GA3CConfig, PPOConfig, TRPOConfig
from rl_teacher.envs.registry import make_vector
from tests.agents.rollouts import new_agent, state_after, train

SIZE: dict[str, Any] = {"num_envs": 4, "rollout_steps": 16}
AGENTS: dict[Any, Any] = {
    PPO: PPOConfig(**SIZE, minibatch_size=32, num_epochs=2),
    TRPO: TRPOConfig(**SIZE),
    A2C: A2CConfig(**SIZE),
    GA3C: GA3CConfig(**SIZE),
}
every_agent = pytest.mark.parametrize(("kind", "config"), AGENTS.items())

PENDULUM_PPO = PPOConfig(
    num_envs=16, rollout_steps=64, minibatch_size=256, learning_rate=1e-3, gamma=0.95
)
PENDULUM: dict[str, Any] = {"rollout_steps": 8, "gamma": 0.9, "final_learning_rate": 7e-4}
LEARNING = {
    "ppo pendulum": (PPO, PENDULUM_PPO, 200, -300),
    "trpo pendulum": (
        *(TRPO, TRPOConfig(num_envs=16, rollout_steps=128, gamma=0.95, target_kl=0.03), 150, -400),
    ),
    "a2c pendulum": (
        *(A2C, A2CConfig(**PENDULUM, gae_lambda=0.95, learning_rate=2e-3), 8000, -400),
    ),
    # Without the entropy bonus, the standard deviation of the actions soon becomes so small that
    # single updates destroy the policy.
    "ga3c pendulum": (
        *(GA3C, GA3CConfig(**PENDULUM, learning_rate=1e-3, entropy_coef=3e-3), 4500, -400),
    ),
    "trpo cartpole": (*(TRPO, TRPOConfig(num_envs=16, rollout_steps=64, target_kl=0.05), 40, 300),),
    "a2c cartpole": (A2C, A2CConfig(learning_rate=2e-3), 1600, 400),
    "ga3c cartpole": (GA3C, GA3CConfig(num_envs=32, learning_rate=2e-3), 500, 200),
}
"""Agent, settings, rollouts and the return to reach."""


def trained(kind, config, num_rollouts, seed):
    return train(kind, make_vector("CartPole-v1", 4), config, num_rollouts, seed)


@every_agent
def test_restored_agent_continues_exactly(kind, config):
    agent, collector, _ = trained(kind, config, 4, seed=0)
    other, other_collector, _ = trained(kind, config, 1, seed=1)
    other.load_state(agent.state())
    other_collector.load_state(collector.state())
    expected, actual = state_after(agent, collector, 3), state_after(other, other_collector, 3)
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, actual[name], err_msg=name)


@every_agent
def test_warm_start_copies_policy(kind, config):
    agent, collector, _ = trained(kind, config, 4, seed=0)
    other = new_agent(kind, collector.venv, config, seed=5)
    other.warm_start_from(agent.state())
    observations = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    # GA3C acts with networks that are one update old.
    latest = new_agent(kind, collector.venv, config)
    latest.load_state(agent.state())
    latest._networks = latest._latest()[0]
    latest._refresh_policy()
    expected = latest.predict(observations, deterministic=True)
    np.testing.assert_array_equal(other.predict(observations, deterministic=True), expected)
    assert 0 < expected.mean() < 1


@every_agent
def test_warm_start_from_other_layer_sizes_is_refused(kind, config):
    venv = make_vector("CartPole-v1", 4)
    small = new_agent(kind, venv, dataclasses.replace(config, hidden=(8,)))
    with pytest.raises(BadConfig, match="hidden"):
        new_agent(kind, venv, config).warm_start_from(small.state())


@pytest.mark.slow
@pytest.mark.parametrize("task", LEARNING)
def test_agent_solves_task(task):
    kind, config, num_rollouts, threshold = LEARNING[task]
    env_id = "Pendulum-v1" if task.endswith("pendulum") else "CartPole-v1"
    venv = make_vector(env_id, config.num_envs)
    _, _, episodes = train(kind, venv, config, num_rollouts, seed=0)
    assert episodes.mean_return(20) > threshold
