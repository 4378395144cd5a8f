"""Shared helpers of the agent tests."""

import gymnasium as gym
import numpy as np

from rl_teacher.agents.actions import ActionScale
from rl_teacher.agents.collector import Collector
from rl_teacher.agents.episode_stats import EpisodeReturns
from rl_teacher.agents.numpy_policy import NumpyPolicy, VectorNormaliser
from rl_teacher.agents.policies import numpy_head
from rl_teacher.nn.numpy_networks import NumpyMLP


def train(make, venv, config, num_rollouts, seed):
    """Train on environment rewards; return agent, collector and episode returns."""
    collector = Collector(venv, seed=seed)
    episodes = EpisodeReturns(venv.num_envs, starts_at_reset=True)
    agent = new_agent(make, venv, config, seed)
    for _ in range(num_rollouts):
        rollout = collector.collect(agent.act, config.rollout_steps)
        agent.learn(rollout, rollout.rewards)
        episodes.observe(rollout, rollout.rewards)
    return agent, collector, episodes


def new_agent(make, venv, config, seed=0):
    """Create an untrained agent for the spaces of a vector environment."""
    spaces = venv.single_observation_space, venv.single_action_space
    return make(*spaces, config, total_steps=10**6, seed=seed)


def state_after(agent, collector, num_rollouts):
    """Train an agent for more rollouts and return its state."""
    for _ in range(num_rollouts):
        rollout = collector.collect(agent.act, agent.rollout_steps)
        agent.learn(rollout, rollout.rewards)
    return agent.state()


def numpy_policy_of(policy):
    """Return the NumPy policy of a JAX policy, without normalisation or scaling."""
    network, head = numpy_head(policy, (), ActionScale())
    num_features = network.weights[0].shape[0]
    ones = np.ones(num_features, np.float32)
    identity = VectorNormaliser((num_features,), 0 * ones, ones)
    return NumpyPolicy(identity, NumpyMLP.from_jax(network), head)


class MaskedEnv(gym.Env):
    """Environment that allows one action per step; episodes are truncated after five steps."""

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


def masked_vector(mode):
    return gym.vector.SyncVectorEnv([MaskedEnv] * 2, autoreset_mode=mode)
