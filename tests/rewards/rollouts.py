"""Rollouts of random numbers, for tests."""

import numpy as np

from rl_teacher.envs.rollout import Rollout


def random_rollout(num_steps=32, num_envs=8, seed=0):
    """Return a rollout with 3 numbers per observation and 2 per action, in which nothing ends."""
    rng, shape = np.random.default_rng(seed), (num_steps, num_envs)
    observations = rng.normal(size=(*shape, 3)).astype(np.float32)
    actions = rng.normal(size=(*shape, 2)).astype(np.float32)
    never = np.zeros(shape, bool)
    rewards = rng.normal(size=shape).astype(np.float32)
    states = np.zeros((*shape, 0))
    return Rollout(observations, actions, rewards, observations, never, never, ~never, states)
