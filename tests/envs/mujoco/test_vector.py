"""MuJoCo vector environment: seeds, staggering, saved states and unstable physics."""

import numpy as np
import pytest

from rl_teacher.common.errors import BadConfig, CorruptCheckpoint
from rl_teacher.envs import make_vector
from rl_teacher.envs.mujoco.dm_control_suite import DM_CONTROL

SAVED_AND_RESTORED = [
    "ShortHopper-v1",
    "Reacher-v1",
    "Humanoid-v1",
    "Ant-v5",
    "Humanoid-v5",
    "Walker2d-v5",
    "InvertedDoublePendulum-v5",
    *(task.id for task in DM_CONTROL.values()),
]


def random_steps(envs, num_steps, seed):
    rng = np.random.default_rng(seed)
    low, high = envs.action_space.low, envs.action_space.high
    return [envs.step(rng.uniform(low, high)) for _ in range(num_steps)]


def assert_same_steps(one, other):
    for step, same_step in zip(one, other, strict=True):
        for part in range(4):
            np.testing.assert_array_equal(step[part], same_step[part])


@pytest.mark.parametrize("env_id", SAVED_AND_RESTORED)
def test_restored_state_continues_exactly(env_id):
    envs = make_vector(env_id, 3)
    envs.reset(seed=0, options={"elapsed_steps": [0, 5, 10]})
    random_steps(envs, 30, seed=1)
    state = envs.get_state()
    original = random_steps(envs, 45, seed=2)
    restored = make_vector(env_id, 3, num_threads=1)
    restored.set_state(state)
    assert_same_steps(original, random_steps(restored, 45, seed=2))


def test_restored_state_has_current_observations_and_scene_states():
    envs = make_vector("ShortReacher-v1", 3)
    envs.reset(seed=0)
    (last_observations, *_) = random_steps(envs, 7, seed=1)[-1]
    restored = make_vector("ShortReacher-v1", 3)
    restored.set_state(envs.get_state())
    np.testing.assert_array_equal(restored.observations, last_observations)
    np.testing.assert_array_equal(restored.scene_states, envs.scene_states)


def test_reset_of_some_restored_environments_keeps_observations_of_others():
    # Contact forces are observed, and not part of the state.
    envs = make_vector("Humanoid-v5", 2)
    envs.reset(seed=0)
    (last_observations, *_) = random_steps(envs, 20, seed=1)[-1]
    restored = make_vector("Humanoid-v5", 2)
    restored.set_state(envs.get_state())
    is_reset = np.array([True, False])
    observations, _ = restored.reset(options={"reset_mask": is_reset})
    expected, _ = envs.reset(options={"reset_mask": is_reset})
    np.testing.assert_array_equal(observations, expected)
    np.testing.assert_array_equal(observations[1], last_observations[1])
    np.testing.assert_array_equal(restored.observations, observations)


def test_results_do_not_depend_on_number_of_threads():
    rollouts = []
    for num_threads in (1, 2):
        envs = make_vector("ShortAnt-v1", 4, num_threads=num_threads)
        envs.reset(seed=0)
        rollouts.append(random_steps(envs, 20, seed=1))
    assert_same_steps(*rollouts)


def test_same_seed_is_reproducible():
    envs = make_vector("Walker2d-v5", 3)
    rollouts = []
    for _ in range(2):
        envs.reset(seed=4)
        rollouts.append(random_steps(envs, 60, seed=1))
    assert_same_steps(*rollouts)


def test_unseeded_environments_start_differently():
    observations, _ = make_vector("Hopper-v5", 4).reset()
    assert len(np.unique(observations, axis=0)) == 4


def test_state_of_other_environment_is_refused():
    state = make_vector("ShortHopper-v1", 2).get_state()
    with pytest.raises(CorruptCheckpoint, match="another environment"):
        make_vector("ShortWalker-v1", 2).set_state(state)
    with pytest.raises(CorruptCheckpoint, match="another number"):
        make_vector("ShortHopper-v1", 3).set_state(state)


def test_staggered_episodes_end_at_different_steps():
    envs = make_vector("ShortReacher-v1", 4)
    envs.reset(seed=0, options={"elapsed_steps": [0, 5, 10, 15]})
    steps = random_steps(envs, 20, seed=0)
    ends = np.array([truncated for _, _, _, truncated, _ in steps])
    assert [np.flatnonzero(ends[:, env]).tolist() for env in range(4)] == [[19], [14], [9], [4]]


@pytest.mark.parametrize("elapsed_steps", [[0, 20], [0, -1], [0, 1, 2]])
def test_elapsed_steps_beyond_time_limit_are_refused(elapsed_steps):
    envs = make_vector("ShortReacher-v1", 2)
    with pytest.raises(BadConfig, match="2 integers from 0 to 19"):
        envs.reset(options={"elapsed_steps": elapsed_steps})


def test_final_observation_equals_next_observation_without_reset():
    envs, unlimited = make_vector("ShortReacher-v1", 2), make_vector("Reacher-v1", 2)
    envs.reset(seed=0, options={"elapsed_steps": [19, 0]})
    unlimited.reset(seed=0)
    action = np.ones((2, 2))
    observations, *_, infos = envs.step(action)
    next_observations, *_ = unlimited.step(action)
    assert infos["final_obs"].shape == next_observations.shape
    np.testing.assert_array_equal(infos["final_obs"][0], next_observations[0])
    assert infos["_final_obs"].tolist() == [True, False]
    np.testing.assert_array_equal(observations[1], next_observations[1])
    assert not np.array_equal(observations[0], next_observations[0])


def test_scene_states_are_positions():
    envs = make_vector("ShortHopper-v1", 2)
    observations, _ = envs.reset(seed=0)
    assert envs.scene_states.shape == (2, 6)
    positions = envs.scene_states.astype(np.float32)
    np.testing.assert_array_equal(positions[:, 1], observations[:, 0])
    np.testing.assert_array_equal(positions[:, 3:], observations[:, 3:6])


def test_actions_of_wrong_shape_are_refused():
    envs = make_vector("ShortHopper-v1", 2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"\(2, 3\) is needed"):
        envs.step(np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: make_vector("ShortHopper-v1", 3).reset(seed=[1, 2]), "2 seeds"),
        (lambda: make_vector("ShortHopper-v1", 0), "num_envs is 0"),
        (lambda: make_vector("ShortHopper-v1", 2, num_threads=0), "num_threads is 0"),
    ],
)
def test_wrong_number_of_seeds_environments_or_threads_is_refused(create, message):
    with pytest.raises(BadConfig, match=message):
        create()


def make_unstable(envs, index):
    """Set velocities at which MuJoCo detects instability and resets the simulation."""
    state, num_joints = envs.get_state(), envs.scene_states.shape[1]
    velocities = slice(1 + num_joints, 1 + 2 * num_joints)
    state["physics"][index, velocities] = 1e12
    envs.set_state(state)


def test_unstable_physics_truncates_only_that_episode():
    envs, others = make_vector("ShortHopper-v1", 3), make_vector("ShortHopper-v1", 3)
    for each in (envs, others):
        each.reset(seed=0)
        each.step(np.ones((3, 3)))
    make_unstable(envs, index=1)
    observations, rewards, terminated, truncated, _ = envs.step(np.ones((3, 3)))
    assert truncated.tolist() == [False, True, False]
    assert not terminated.any()
    assert rewards[1] == 0
    assert np.isfinite(observations).all()
    expected, *_ = others.step(np.ones((3, 3)))
    np.testing.assert_array_equal(observations[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize(("env_id", "num_actions"), [("ShortHopper-v1", 3), ("DMWalkerWalk-v1", 6)])
def test_unstable_physics_in_first_step_truncates_the_episode(env_id, num_actions):
    envs = make_vector(env_id, 2)
    envs.reset(seed=0)
    make_unstable(envs, index=0)
    _, rewards, _, truncated, _ = envs.step(np.zeros((2, num_actions)))
    assert truncated.tolist() == [True, False]
    assert rewards[0] == 0


def test_step_after_unstable_physics_is_valid():
    envs = make_vector("ShortHopper-v1", 2)
    envs.reset(seed=0)
    envs.step(np.zeros((2, 3)))
    make_unstable(envs, index=0)
    assert envs.step(np.zeros((2, 3)))[3].tolist() == [True, False]
    _, rewards, _, truncated, _ = envs.step(np.zeros((2, 3)))
    assert not truncated.any()
    assert (np.abs(rewards) < 10).all()


def test_nan_actions_equal_zero_actions():
    envs, still = make_vector("ShortHopper-v1", 1), make_vector("ShortHopper-v1", 1)
    for each in (envs, still):
        each.reset(seed=0)
    observations, *_ = envs.step(np.full((1, 3), np.nan))
    np.testing.assert_array_equal(observations, still.step(np.zeros((1, 3)))[0])


def test_mujoco_warnings_reach_neither_terminal_nor_disk(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    envs = make_vector("ShortCheetah-v1", 2)
    envs.reset(seed=0)
    make_unstable(envs, index=0)
    envs.step(np.full((2, 6), np.nan))
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
