import dataclasses

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rl_teacher.agents.collector import Collector
from rl_teacher.agents.ppo import PPO
from rl_teacher.agents.rollout_batch import prepare_batch
from rl_teacher.config.experiment import PPOConfig
from rl_teacher.envs.registry import make_vector
from tests.agents.rollouts import new_agent, train


def cartpole(mode):
    return gym.make_vec(
        "CartPole-v1",
        num_envs=16,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
    )


CARTPOLE = PPOConfig(num_envs=16, rollout_steps=64, minibatch_size=256, learning_rate=1e-3)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.usefixtures("_shapes_unchecked")
def test_ppo_solves_cartpole_in_every_autoreset_mode(mode):
    _, _, episodes = train(PPO, cartpole(mode), CARTPOLE, 35, seed=0)
    assert episodes.mean_return(20) > 400


def test_reinitialise_keeps_only_observation_statistics():
    agent, _, _ = train(PPO, make_vector("CartPole-v1", 16), CARTPOLE, 2, seed=0)
    before = agent.state()
    agent.reinitialise()
    after = agent.state()
    for name, array in before.items():
        is_kept = not name.startswith(("networks", "optimisers")) and name != "self/rng"
        assert np.array_equal(array, after[name]) == (is_kept or not array.any()), name
    observations = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    assert 0.3 < agent.predict(observations, deterministic=True).mean() < 0.7


class RandomIntegers(gym.Env):
    """Observations of random integers that are no image, or one too small for convolutions."""

    action_space = gym.spaces.Discrete(3)

    def __init__(self, shape, dtype, low, high):
        self.observation_space = gym.spaces.Box(low, high, shape, dtype)
        self._integers = low, high, shape, dtype

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(*self._integers), {}

    def step(self, action):
        return self.reset()[0], 1.0, False, False, {}


@pytest.mark.parametrize(
    ("shape", "dtype", "low", "high"),
    [
        ((128,), np.uint8, 0, 255),
        ((7, 7, 3), np.uint8, 0, 255),
        ((3,), np.int64, 2**33, 2**34),
    ],
)
def test_update_normalises_integers_that_are_no_image_as_policy_did(shape, dtype, low, high):
    venv = gym.vector.SyncVectorEnv([lambda: RandomIntegers(shape, dtype, low, high)] * 2)
    config = dataclasses.replace(CARTPOLE, num_envs=2)
    agent, collector = new_agent(PPO, venv, config), Collector(venv, seed=0)
    agent.observe(collector.collect(collector.random_actions, 20))
    rollout = collector.collect(agent.act, 8)
    batch = prepare_batch(agent._networks, agent.rollout_batch(rollout, rollout.rewards), config)
    flat_observations = rollout.observations.reshape(16, *shape)
    encoder = agent.policy.encoder
    logits = agent.policy.network(encoder.normalise(encoder.features(flat_observations)))
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    taken = np.take_along_axis(log_probs, rollout.actions.reshape(16, 1), -1)[:, 0]
    np.testing.assert_allclose(batch.log_probs, taken, atol=1e-5)


def test_ppo_learns_from_given_rewards():
    venv = cartpole(AutoresetMode.SAME_STEP)
    collector = Collector(venv, seed=0)
    agent = new_agent(PPO, venv, dataclasses.replace(CARTPOLE, gamma=0.0))
    right_fractions = []
    for _ in range(10):
        rollout = collector.collect(agent.act, 64)
        agent.learn(rollout, (rollout.actions == 1).astype(np.float32))
        right_fractions.append((rollout.actions == 1).mean())
    assert right_fractions[-1] > 0.9


def test_rewards_of_reset_steps_are_ignored():
    venv = cartpole(AutoresetMode.NEXT_STEP)
    collector = Collector(venv, seed=0)

    def learned(reset_reward):
        agent = new_agent(PPO, venv, CARTPOLE)
        rollout = Collector(venv, seed=0).collect(agent.act, 64)
        rewards = np.where(rollout.is_valid, rollout.rewards, reset_reward)
        agent.learn(rollout, rewards)
        return agent.state()

    assert not collector.collect(collector.random_actions, 64).is_valid.all()
    np.testing.assert_array_equal(
        learned(0.0)["networks/.policy.logits.weights[0]"],
        learned(0.5)["networks/.policy.logits.weights[0]"],
    )


def test_learning_rate_anneals_linearly_to_final_value():
    config = PPOConfig(num_envs=16, rollout_steps=64, final_learning_rate=0.0)
    agent = PPO(
        gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2), config, total_steps=1000, seed=0
    )
    agent._steps = 250
    assert agent._annealed(3e-4, 0.0) == pytest.approx(0.75 * 3e-4)
