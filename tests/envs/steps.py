"""Shared helper of the tests of environments."""

import numpy as np


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
