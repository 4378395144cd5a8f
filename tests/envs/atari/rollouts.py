"""What the tests of Atari share."""

import numpy as np

from rl_teacher.envs.registry import make_vector


def games(env_id, num_envs=1, num_threads=1, **settings):
    return make_vector(env_id, num_envs, num_threads, **settings)


def lived(envs, num_steps, *, begins=True, **reset):
    """Everything that some random steps led to, [T, N, ...] each."""
    if begins:
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
