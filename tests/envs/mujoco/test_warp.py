"""MuJoCo Warp: steps against MuJoCo's, exact continuation, and what is refused.

Slow, because Warp compiles each kernel at its first use, which takes a minute.
"""

# pyright: reportAttributeAccessIssue=false

import sys
from dataclasses import replace
from functools import partial

import mujoco
import numpy as np
import pytest
import warp

from rl_teacher import cli
from rl_teacher.common.errors import BadInput
from rl_teacher.envs import make_vector
from rl_teacher.envs.mujoco import physics as mujoco_physics
from rl_teacher.envs.mujoco import warp as warp_physics
from rl_teacher.envs.mujoco.physics import Simulations
from rl_teacher.envs.mujoco.suite import TASKS
from rl_teacher.envs.mujoco.warp import WarpSimulations
from tests.envs.mujoco.test_vector import assert_same_steps, make_unstable, random_steps

pytestmark = pytest.mark.slow

HOPPER = "Hopper-v5"


@pytest.fixture(autouse=True)
def _compiled_fast(monkeypatch):
    """Compile without optimisation, which takes half the time."""
    monkeypatch.setattr(warp.config, "optimization_level", 0)
    warp_physics.import_warp()


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Warp's name of a device: the CPU, and the GPU where there is one."""
    if request.param == "cuda" and not warp.is_cuda_available():
        pytest.skip("needs an NVIDIA GPU")
    return request.param


@pytest.fixture
def make_warp(monkeypatch):
    """Function that creates environments whose physics Warp steps, on the CPU."""
    monkeypatch.setattr(warp_physics, "find_gpu", lambda: "cpu")
    return partial(make_vector, physics="warp")


def pair_of_simulations(env_id, device, num_envs=4):
    """Return simulations of MuJoCo and of Warp with the same initial states."""
    task = TASKS[env_id]
    both = Simulations(task, num_envs), WarpSimulations(task, num_envs, device=device)
    for each in both:
        ids = np.arange(num_envs, dtype=np.int32)
        each.restart(ids, [np.random.default_rng(seed) for seed in range(num_envs)])
    return both


def differences(env_id, device, num_steps):
    """Compare steps of Warp with those of MuJoCo from the same states.

    Returns:
        Of each step and environment, the largest error of the observation, relative to 1 + its
        absolute value, and the error of the reward.
    """
    expected, simulations = pair_of_simulations(env_id, device)
    np.testing.assert_allclose(simulations.observe(), expected.observe(), rtol=1e-6)
    rng, (low, high) = np.random.default_rng(0), expected.model.actuator_ctrlrange.T
    errors = []
    for _ in range(num_steps):
        capacity = simulations.get_state()["capacity"]
        simulations.set_state({**expected.get_state(), "capacity": capacity})
        actions = rng.uniform(low, high, (expected.num_envs, len(low)))
        (rewards, ended, _), (true_rewards, true_ended, _) = (
            each.advance(actions) for each in (simulations, expected)
        )
        np.testing.assert_array_equal(ended, true_ended)
        observations, true_observations = simulations.observe(), expected.observe()
        assert observations.dtype == true_observations.dtype
        error = np.abs(observations - true_observations) / (1 + np.abs(true_observations))
        errors.append(np.stack((error.max(axis=1), np.abs(rewards - true_rewards))))
    return np.stack(errors)


@pytest.mark.parametrize(
    "env_id",
    [
        HOPPER,
        *("ShortHopper-v1", "Walker2d-v5", "HalfCheetah-v5", "Swimmer-v5", "Reacher-v5"),
        *("InvertedPendulum-v5", "InvertedDoublePendulum-v5"),
        *("DMWalkerRun-v1", "DMCheetahRun-v1"),
    ],
)
def test_step_equals_mujocos_within_rounding(env_id, device):
    errors = differences(env_id, device, num_steps=15)
    assert errors[:, 0].max() < 2e-4
    assert errors[:, 1].max() < 2e-5


def change_options(monkeypatch, **options):
    """Change options of all models that are loaded."""
    load = mujoco_physics.load_model

    def load_changed(task):
        model = load(task)
        for name, value in options.items():
            setattr(model.opt, name, value)
        return model

    monkeypatch.setattr(mujoco_physics, "load_model", load_changed)


def test_step_of_humanoid_equals_newtons_method_within_rounding(device, monkeypatch):
    # Contact forces, of up to a thousand newtons, are among its observations. Their squares are
    # part of the reward, whose error on an H100 was 3.6e-4, and less than 2e-4 on a CPU.
    change_options(monkeypatch, solver=mujoco.mjtSolver.mjSOL_NEWTON)
    errors = differences("Humanoid-v5", device, num_steps=30)
    assert errors[:, 0].max() < 2e-3
    assert errors[:, 1].max() < 4e-4


def test_step_of_humanoid_is_close_to_pgs(device):
    # Warp has no PGS, whose iterations end before it has converged.
    errors = differences("Humanoid-v5", device, num_steps=30)
    assert np.quantile(errors[:, 0], 0.9) < 2e-3
    assert errors[:, 0].max() < 0.05


@pytest.mark.parametrize("env_id", ["Ant-v5", "DMQuadrupedWalk-v1"])
def test_step_with_elliptic_friction_equals_mujocos(env_id, device, monkeypatch):
    # Warp turns the friction pyramid of an upright capsule in another direction.
    change_options(monkeypatch, cone=mujoco.mjtCone.mjCONE_ELLIPTIC)
    assert np.quantile(differences(env_id, device, num_steps=30)[:, 0], 0.9) < 2e-3


def test_returns_of_episodes_equal_mujocos(device):
    returns = []
    for simulations in pair_of_simulations(HOPPER, device, num_envs=64):
        rng, is_running, totals = np.random.default_rng(0), np.ones(64, dtype=bool), np.zeros(64)
        while is_running.any():
            rewards, ended, _ = simulations.advance(rng.uniform(-1.0, 1.0, (64, 3)))
            totals += rewards * is_running
            is_running &= ~ended
        returns.append(totals.mean())
    assert returns[0] > 5
    np.testing.assert_allclose(*returns, rtol=0.01)


@pytest.mark.parametrize("env_id", [HOPPER, "Ant-v5", "Humanoid-v5", "DMQuadrupedWalk-v1"])
def test_restored_state_continues_exactly(env_id, make_warp):
    envs = make_warp(env_id, 3)
    envs.reset(seed=0, options={"elapsed_steps": [0, 995, 990]})
    random_steps(envs, 8, seed=1)
    state = envs.get_state()
    original = random_steps(envs, 8, seed=2)
    assert any(step[3].any() for step in original)
    restored = make_warp(env_id, 3, num_threads=1)
    restored.set_state(state)
    assert_same_steps(original, random_steps(restored, 8, seed=2))


def test_more_contacts_than_expected_get_room(monkeypatch):
    monkeypatch.setattr(warp_physics, "NUM_CONTACTS", 1)
    monkeypatch.setattr(warp_physics, "NUM_CONSTRAINTS", 4)
    errors = differences("ShortHopper-v1", "cpu", num_steps=15)
    assert errors[:, 0].max() < 2e-4


def test_capacity_is_restored():
    _, simulations = pair_of_simulations("ShortHopper-v1", "cpu")
    state = simulations.get_state()
    state["capacity"] = 2 * state["capacity"]
    simulations.set_state(state)
    np.testing.assert_array_equal(simulations.get_state()["capacity"], state["capacity"])


def test_unstable_physics_truncates_only_that_episode(make_warp):
    envs, others = (make_warp("ShortHopper-v1", 3) for _ in range(2))
    for each in (envs, others):
        each.reset(seed=0)
    make_unstable(envs, index=1)
    observations, rewards, terminated, truncated, _ = envs.step(np.ones((3, 3)))
    assert truncated.tolist() == [False, True, False]
    assert not terminated.any()
    assert rewards[1] == 0
    assert np.isfinite(observations).all()
    expected, *_ = others.step(np.ones((3, 3)))
    np.testing.assert_array_equal(observations[[0, 2]], expected[[0, 2]])


# --- what is refused ---


def exit_code(*arguments):
    return cli.main(["teach", "-p", "rl", "-e", "ShortHopper-v1", "-n", "x", *arguments])


def test_missing_package_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    assert exit_code("--physics", "warp") == 2
    assert 'pip install "rl-teacher[gpu]"' in capsys.readouterr().err


def test_missing_gpu_is_named(capsys, monkeypatch):
    monkeypatch.setattr(warp, "is_cuda_available", lambda: False)
    assert exit_code("--physics", "warp") == 2
    assert "Warp finds no NVIDIA GPU here" in capsys.readouterr().err


def test_unsupported_model_is_refused(tmp_path):
    path = tmp_path / "body.xml"
    path.write_text(
        "<mujoco><option><flag fwdinv='enable'/></option><worldbody><body>"
        "<joint name='hinge'/><geom size='1'/></body></worldbody>"
        "<actuator><motor joint='hinge' ctrlrange='-1 1'/></actuator></mujoco>"
    )
    task = TASKS["InvertedPendulum-v1"]
    task = replace(task, body=replace(task.body, model_file=str(path)))
    with pytest.raises(BadInput, match="mjENBL_FWDINV is unsupported"):
        WarpSimulations(task, 1)
