"""Suite rules: rewards without torque penalty, no termination, original episode lengths."""

import gymnasium
import numpy as np
import pytest

from rl_teacher.envs import make_vector
from rl_teacher.envs.mujoco.physics import quiet_mujoco
from rl_teacher.envs.mujoco.suite import PLAIN, SUITE

NO_TERMINATION = {"terminate_when_unhealthy": False}

# The suite's rewards as functions of Gymnasium's environment and info at the same step.
EXPECTED_REWARDS = {
    "Reacher": ("Reacher-v5", {}, lambda _, info: info["reward_dist"]),
    "Hopper": (
        "Hopper-v5",
        NO_TERMINATION,
        lambda env, info: info["x_velocity"] + env.data.qpos[1],
    ),
    "Walker": (
        "Walker2d-v5",
        NO_TERMINATION,
        lambda env, info: info["x_velocity"] + 1 + env.data.qpos[1] - 2,
    ),
    "Cheetah": ("HalfCheetah-v5", {}, lambda _, info: info["reward_forward"]),
    "Swimmer": ("Swimmer-v5", {}, lambda _, info: info["reward_forward"]),
    "Ant": (
        "Ant-v5",
        NO_TERMINATION,
        lambda env, info: info["reward_forward"] + env.data.qpos[2] - 1.2,
    ),
    "Humanoid": (
        "Humanoid-v5",
        NO_TERMINATION,
        lambda env, info: info["reward_forward"] + 5 * (env.data.qpos[2] - 1),
    ),
    "InvertedPendulum": ("InvertedPendulum-v5", {}, lambda env, _: 1 - env.data.qpos[1] ** 2),
    "InvertedDoublePendulum": (
        "InvertedDoublePendulum-v5",
        {},
        lambda env, info: (
            10
            + info["distance_penalty"]
            + info["velocity_penalty"]
            + 10 * (env.data.site_xpos[0][2] - 1)
        ),
    ),
}

LENGTHS = {
    "Reacher": (50, 20),
    "Hopper": (1000, 300),
    "Walker": (1000, 300),
    "Cheetah": (1000, 300),
    "Swimmer": (1000, 300),
    "Ant": (1000, 300),
    "Humanoid": (1000, 300),
    "InvertedPendulum": (25, 20),
    "InvertedDoublePendulum": (50, 25),
}


@pytest.mark.parametrize("name", EXPECTED_REWARDS)
def test_rewards_follow_from_gymnasium_info(name):
    plain_id, kwargs, expected_reward = EXPECTED_REWARDS[name]
    envs = make_vector(f"{name}-v1", 1)
    with quiet_mujoco():
        theirs = gymnasium.make(plain_id, **kwargs).unwrapped
    envs.reset(seed=5)
    theirs.reset(seed=5)
    envs.action_space.seed(0)
    for _ in range(20):
        actions = envs.action_space.sample()
        _, rewards, *_ = envs.step(actions)
        info = theirs.step(actions[0])[-1]
        assert rewards[0] == pytest.approx(expected_reward(theirs, info), rel=1e-9, abs=1e-9)
    theirs.close()


@pytest.mark.parametrize("name", EXPECTED_REWARDS)
def test_observations_equal_gymnasium_in_single_precision(name):
    plain_id, _, _ = EXPECTED_REWARDS[name]
    suite, plain = make_vector(f"{name}-v1", 2), make_vector(plain_id, 2)
    observations, _ = suite.reset(seed=1)
    expected, _ = plain.reset(seed=1)
    if name in ("Hopper", "Walker"):
        angles = np.stack([np.sin(expected[:, 1]), np.cos(expected[:, 1])], axis=1)
        expected = np.concatenate([expected[:, :1], angles, expected[:, 2:]], axis=1)
    size = observations.shape[1]
    np.testing.assert_array_equal(observations, expected[:, :size].astype(np.float32))


@pytest.mark.parametrize("name", ["Hopper", "Walker"])
def test_observation_is_invariant_to_full_turn(name):
    envs = make_vector(f"{name}-v1", 1)
    envs.reset(seed=0)
    before, _, _, _, _ = envs.step(np.zeros(envs.action_space.shape or ()))
    envs.reset(seed=0)
    envs.scene_states[:, 2] += 2 * np.pi
    after, _, _, _, _ = envs.step(np.zeros(envs.action_space.shape or ()))
    np.testing.assert_allclose(after, before, atol=1e-5)


def test_hopper_reward_matches_hand_computation():
    envs = make_vector("Hopper-v1", 1)
    envs.reset(seed=0)
    x_before = envs.scene_states[0, 0].copy()
    _, rewards, *_ = envs.step(np.zeros((1, 3)))
    x_after, height = envs.scene_states[0, :2]
    seconds = 4 * 0.002
    assert rewards[0] == pytest.approx((x_after - x_before) / seconds + 1 + (height - 1))


@pytest.mark.parametrize("env_id", [env_id for env_id in SUITE if env_id.startswith("Short")])
def test_episode_ends_only_by_time_limit(env_id):
    envs = make_vector(env_id, 2)
    envs.reset(seed=0)
    infos = {}
    length = SUITE[env_id].max_episode_steps
    for step in range(1, length + 1):
        _, _, terminated, truncated, infos = envs.step(envs.action_space.sample())
        assert not terminated.any()
        assert truncated.all() == truncated.any() == (step == length)
    assert infos["_final_obs"].all()


@pytest.mark.parametrize("name", LENGTHS)
def test_episode_lengths_match_original_rl_teacher(name):
    long, short = LENGTHS[name]
    assert SUITE[f"{name}-v1"].max_episode_steps == long
    assert SUITE[f"Short{name}-v1"].max_episode_steps == short


def test_every_body_has_three_rule_sets():
    assert {env_id.removesuffix("-v1") for env_id in SUITE} == {
        prefix + name for name in LENGTHS for prefix in ("", "Short")
    }
    assert len(PLAIN) == len(LENGTHS)
