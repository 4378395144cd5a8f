"""Bitwise equality of the plain environments with Gymnasium's v5 environments.

Two environments have a sine, a norm or a power in their formulas, where NumPy may round a scalar
and an array differently; their last bit is not compared.
"""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rl_teacher.envs import make_vector
from rl_teacher.envs.mujoco.physics import quiet_mujoco
from rl_teacher.envs.mujoco.suite import PLAIN

ROUNDING = {"Reacher-v5": 1e-14, "InvertedDoublePendulum-v5": 1e-14}


def gymnasium_vector(env_id, num_envs) -> Any:
    with quiet_mujoco():
        return gymnasium.make_vec(
            env_id,
            num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        )


def random_actions(envs, rng):
    low, high = envs.action_space.low, envs.action_space.high
    return rng.uniform(1.3 * low, 1.3 * high).astype(np.float32)


def assert_same_step(ours, theirs, rtol=0.0):
    for part in range(4):
        np.testing.assert_allclose(ours[part], theirs[part], rtol=rtol, atol=rtol)
    ended = ours[2] | ours[3]
    if ended.any():
        np.testing.assert_array_equal(ours[4]["_final_obs"], theirs[4]["_final_obs"])
        for index in np.flatnonzero(ended):
            final_obs = theirs[4]["final_obs"][index]
            np.testing.assert_allclose(ours[4]["final_obs"][index], final_obs, rtol, rtol)


def compare_steps(env_id, num_envs, num_steps, rng):
    ours, theirs = make_vector(env_id, num_envs), gymnasium_vector(env_id, num_envs)
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    num_ended = 0
    for _ in range(num_steps):
        actions = random_actions(theirs, rng)
        step = ours.step(actions)
        assert_same_step(step, theirs.step(actions), ROUNDING.get(env_id, 0.0))
        num_ended += int((step[2] | step[3]).sum())
    theirs.close()
    return num_ended


@pytest.mark.parametrize("env_id", PLAIN)
def test_steps_and_resets_equal_gymnasium(env_id):
    compare_steps(env_id, num_envs=3, num_steps=250, rng=np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize("env_id", PLAIN)
def test_thousands_of_steps_and_resets_equal_gymnasium(env_id):
    rng = np.random.default_rng(1)
    num_ended = compare_steps(env_id, num_envs=8, num_steps=2500, rng=rng)
    assert num_ended >= 8


def test_comparison_contains_episode_ends():
    num_ended = compare_steps("Hopper-v5", 3, 250, np.random.default_rng(0))
    assert num_ended > 10


@pytest.mark.parametrize("env_id", PLAIN)
def test_spaces_equal_gymnasium(env_id):
    ours, theirs = make_vector(env_id, 2), gymnasium_vector(env_id, 2)
    assert ours.single_action_space == theirs.single_action_space
    assert ours.single_observation_space == theirs.single_observation_space
    theirs.close()


def test_seeds_per_environment_equal_gymnasium():
    ours, theirs = make_vector("Hopper-v5", 3), gymnasium_vector("Hopper-v5", 3)
    seeds: Any = [7, 7, 8]
    np.testing.assert_array_equal(ours.reset(seed=seeds)[0], theirs.reset(seed=seeds)[0])
    np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])
    theirs.close()


def test_reset_mask_resets_only_masked_environments():
    ours, theirs = make_vector("Hopper-v5", 3), gymnasium_vector("Hopper-v5", 3)
    ours.reset(seed=0)
    theirs.reset(seed=0)
    actions = np.ones((3, 3), np.float32)
    ours.step(actions)
    theirs.step(actions)
    mask = np.array([True, False, True])
    ours_obs, _ = ours.reset(options={"reset_mask": mask})
    theirs_obs, _ = theirs.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(ours_obs, theirs_obs)
    assert_same_step(ours.step(actions), theirs.step(actions))
    theirs.close()


def test_seed_with_reset_mask_keeps_generators_of_other_environments():
    ours, theirs = make_vector("Hopper-v5", 3), gymnasium_vector("Hopper-v5", 3)
    for envs in (ours, theirs):
        envs.reset(seed=0)
        envs.reset(seed=50, options={"reset_mask": np.array([True, False, True])})
    np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])
    theirs.close()


@pytest.mark.parametrize("env_id", ["Hopper-v5", "HalfCheetah-v5", "Ant-v5"])
def test_unstable_physics_equal_gymnasium(env_id):
    ours, theirs = make_vector(env_id, 1), gymnasium_vector(env_id, 1)
    ours.reset(seed=0)
    theirs.reset(seed=0)
    state = ours.get_state()
    num_positions, data = ours.scene_states.shape[1], theirs.call("data")[0]
    state["physics"][0, 1 + num_positions : 1 + num_positions + len(data.qvel)] = 1e12
    ours.set_state(state)
    data.qvel[:] = 1e12
    actions = np.full(theirs.action_space.shape, 0.3, np.float32)
    for _ in range(3):
        with quiet_mujoco():
            expected = theirs.step(actions)
        assert_same_step(ours.step(actions), expected)
    theirs.close()
