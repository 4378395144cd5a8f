"""Parity with dm_control's recorded steps (see `record_dm_control`), and initial states."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rl_teacher.envs import get_env_info, make_vector
from rl_teacher.envs.mujoco import dm_control_suite as dm_control
from rl_teacher.envs.mujoco.physics import load_model
from rl_teacher.envs.mujoco.suite import TASKS
from rl_teacher.envs.mujoco.vector import MujocoVectorEnv

RECORDED = np.load(Path(__file__).with_name("dm_control.npz"))
IDS = [task.id for task in dm_control.DM_CONTROL.values()]

# Of the quadruped's first observation: dm_control switches the motors off while it computes the
# accelerometer and the forces at the toes.
MOTORS_OFF = {"DMQuadrupedWalk-v1": [*range(48, 51), *range(54, 78)]}


def recorded(env_id, name):
    """Return an array [episode, ...] of dm_control's steps."""
    return RECORDED[f"{env_id}/{name}"]


def envs_starting_at(env_id, qpos, qvel, **changes):
    """Create environments with given initial states, and with further changes of the body."""
    task, states = TASKS[env_id], iter(zip(qpos, qvel, strict=True))
    body = replace(task.body, draw_start=lambda *_: next(states), **changes)
    return MujocoVectorEnv(replace(task, body=body), len(qpos))


@pytest.mark.parametrize("env_id", IDS)
def test_observations_and_rewards_equal_dm_control(env_id):
    expected = recorded(env_id, "observations").swapaxes(0, 1)
    envs = envs_starting_at(env_id, recorded(env_id, "qpos"), recorded(env_id, "qvel"), settle=None)
    first, _ = envs.reset(seed=0)
    is_equal = np.isclose(first, expected[0], rtol=1e-5, atol=1e-5)
    is_equal[:, MOTORS_OFF.get(env_id, [])] = True
    assert is_equal.all()
    for step, actions in enumerate(recorded(env_id, "actions").swapaxes(0, 1)):
        observations, rewards, *_ = envs.step(actions)
        np.testing.assert_allclose(observations, expected[step + 1], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(rewards, recorded(env_id, "rewards")[:, step], atol=1e-6)


@pytest.mark.parametrize("env_id", IDS)
def test_recorded_rewards_vary_between_0_and_1(env_id):
    """Equal constants would prove nothing."""
    rewards = recorded(env_id, "rewards")
    assert rewards.std() > 1e-3
    assert rewards.min() >= 0
    assert rewards.max() <= 1


def test_quadruped_is_lifted_to_height_of_dm_control():
    qpos, qvel = (recorded("DMQuadrupedWalk-v1", name) for name in ("qpos", "qvel"))
    fallen = qpos.copy()
    fallen[:, 2] = 0
    envs = envs_starting_at("DMQuadrupedWalk-v1", fallen, qvel)
    envs.reset(seed=0)
    np.testing.assert_allclose(envs.scene_states, qpos, atol=1e-9)


def test_cheetah_comes_to_rest_before_first_observation():
    """Velocities are those of the last nine observed values, most of them joints."""
    envs = make_vector("DMCheetahRun-v1", 16)
    observations, _ = envs.reset(seed=0)
    assert np.abs(observations[:, 8:]).max() < 0.5
    positions = np.abs(observations[:, :8] - recorded("DMCheetahRun-v1", "observations")[:1, 0, :8])
    assert positions.max() < 0.5


@pytest.mark.parametrize(
    ("env_id", "ranges_deg"),
    [
        ("DMWalkerWalk-v1", dm_control.WALKER_RANGES_DEG[1:]),
        ("DMCheetahRun-v1", dm_control.CHEETAH_RANGES_DEG),
    ],
)
def test_initial_joint_ranges_are_limits_of_model(env_id, ranges_deg):
    model = load_model(TASKS[env_id])
    limits = model.jnt_range[model.jnt_limited.astype(bool)]
    np.testing.assert_allclose(np.rad2deg(limits), ranges_deg)


def test_walker_starts_are_uniform_over_pitch_and_joints():
    envs = make_vector("DMWalkerWalk-v1", 400)
    envs.reset(seed=0)
    low, high = np.deg2rad(dm_control.WALKER_RANGES_DEG).T
    share = (envs.scene_states[:, 2:] - low) / (high - low)
    assert share.min() >= 0
    assert share.max() <= 1
    np.testing.assert_allclose(share.mean(0), 0.5, atol=0.06)
    np.testing.assert_allclose(share.std(0), 1 / np.sqrt(12), atol=0.03)


@pytest.mark.parametrize("env_id", IDS)
def test_episodes_have_1000_steps_and_never_terminate(env_id):
    info = get_env_info(env_id)
    assert info.max_episode_steps == 1000
    assert not info.can_terminate


@pytest.mark.parametrize(("shimmy_id", "task"), dm_control.DM_CONTROL.items())
def test_id_of_shimmy_names_the_batched_task(shimmy_id, task):
    assert get_env_info(shimmy_id).id == task.id
    assert get_env_info(task.id.lower().removesuffix("-v1")).id == task.id
