"""Shared helpers of the Atari tests."""

import numpy as np

from rl_teacher.envs.registry import make_vector


def make_games(env_id, num_envs=1, num_threads=1, **settings):
    return make_vector(env_id, num_envs, num_threads, **settings)


def take_random_steps(envs, num_steps, *, is_reset=True, **reset):
    """Take random steps and return their data by name, [T, N, ...] each."""
    if is_reset:
        envs.reset(seed=3, **reset)
    rng = np.random.default_rng(5)
    rows = []
    for _ in range(num_steps):
        before = envs.observations, envs.scene_states.astype(int)
        actions = rng.integers(0, envs.single_action_space.n, envs.num_envs)
        rows.append((*before, *envs.step(actions)[:4], envs.observations))
    if not rows:
        return {}
    names = ("observations", "scenes", "next", "rewards", "terminated", "truncated", "now")
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
