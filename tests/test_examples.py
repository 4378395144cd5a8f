"""Tests that run the examples and check what they print."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.envs import get_env_info

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

EXAMPLES_FOLDER = Path(__file__).parents[1] / "examples"
CORE_LOOP = EXAMPLES_FOLDER / "core_loop.py"
EXAMPLES = sorted({*EXAMPLES_FOLDER.glob("*.py")} - {CORE_LOOP})
MAX_CORE_CODE_LINES = 235
RANDOM_RETURN = 107
"""Mean return of the random policy on ShortHopper (benchmarks/RESULTS.md)."""
TRUE_REWARD_RETURN = 807
"""Return of core_loop.py with its default steps, the true reward (LABELS = 0) and seed 0."""


@pytest.fixture
def printed_by(capsys, monkeypatch):
    """Return a function that runs an example in this process and returns its output."""

    def printed(name, num_steps):
        path = EXAMPLES_FOLDER / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), str(num_steps)])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    registered = set(gym.registry)
    yield printed
    for env_id in set(gym.registry) - registered:
        del gym.registry[env_id]


def printed_alone_by(name, num_steps):
    """Run an example in a new process and return its output."""
    done = subprocess.run(
        [sys.executable, EXAMPLES_FOLDER / f"{name}.py", str(num_steps)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers_in(text):
    return [float(number) for number in re.findall(r"-?\d+\.\d+|\d+", text)]


def test_core_loop_is_short_and_imports_only_environment_from_package():
    source = CORE_LOOP.read_text()
    code = [line for line in source.splitlines() if line.strip() and line.strip()[0] != "#"]
    assert len(code) < MAX_CORE_CODE_LINES
    assert re.findall(r"rl_teacher[.\w]* import \w+", source) == [
        "rl_teacher.envs.registry import make_vector"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_in_new_process(path):
    assert printed_alone_by(path.stem, 500)


@pytest.mark.slow
def test_sb3_agent_learns_from_labels_alone():
    mean, _, labels = numbers_in(printed_alone_by("sb3_agent", 1_500))
    assert mean >= 8
    assert labels >= 50


@pytest.mark.slow
def test_cleanrl_loop_learns_from_labels_alone(printed_by):
    *lines, last = printed_by("cleanrl_loop", 12_000).splitlines()
    returns = [numbers_in(line)[-1] for line in lines]
    assert returns[-1] > returns[0]
    assert numbers_in(last)[0] >= 37


def test_own_environment_without_reward_is_learned_from_labels(printed_by):
    dark_red, bright_green = numbers_in(printed_by("custom_environment", 500))
    assert bright_green > dark_red


def test_own_teacher_shapes_predicted_reward(printed_by):
    still, whirling = numbers_in(printed_by("custom_teacher", 500))
    assert still > whirling


@pytest.mark.slow
def test_own_selector_yields_correlated_predictor(printed_by):
    (correlation,) = numbers_in(printed_by("custom_selector", 1_000))
    assert correlation > 0.5


def test_custom_agent_balances_pole_from_labels_alone(printed_by):
    *_, true_return = numbers_in(printed_by("custom_agent", 4_800))
    assert true_return > 15


# --- core_loop.py ---


@pytest.fixture(scope="module")
def core():
    """Return the example's namespace without running it."""
    return SimpleNamespace(**runpy.run_path(str(CORE_LOOP)))


def test_preference_loss_of_core_loop_is_equation_1_with_error_rate(core):
    class SumOfRow:
        def __call__(self, row):
            return row.sum(keepdims=True)

    clips = np.array([[[[1.0], [0.5]], [[0.25], [0.25]]]])  # returns 1.5 and 0.5
    p_left = 0.9 * np.e / (1 + np.e) + 0.05
    loss_left = core.preference_loss(SumOfRow(), clips, np.array([True]))
    loss_right = core.preference_loss(SumOfRow(), clips, np.array([False]))
    assert loss_left == pytest.approx(-np.log(p_left), rel=1e-5)
    assert loss_right == pytest.approx(-np.log(1 - p_left), rel=1e-5)


def test_gae_of_core_loop_bootstraps_at_truncation_and_not_at_termination(core):
    rewards, v_t, v_tp1 = np.ones((2, 2)), np.zeros((2, 2)), np.full((2, 2), 10.0)
    ended = np.array([[True, True], [False, False]])
    terminated = np.array([[True, False], [False, False]])
    advantages = core.gae(rewards, v_t, v_tp1, terminated, ended)
    assert advantages == pytest.approx(np.array([[1.0, 10.9], [10.9, 10.9]]))


def test_running_norm_of_core_loop_equals_statistics_of_all_batches(core):
    rng = np.random.default_rng(0)
    batches = rng.normal(3, 2, (5, 40, 3))
    norm = core.RunningNorm(3)
    for batch in batches:
        norm.update(batch)
    everything = batches.reshape(-1, 3)
    assert norm.mean == pytest.approx(everything.mean(0), rel=1e-4)
    assert norm.var == pytest.approx(everything.var(0), rel=1e-4)


def test_rollout_of_core_loop_joins_each_observation_to_the_next_one(core):
    envs = core.make_vector(core.ENV_ID, core.NUM_ENVS)
    elapsed, max_episode_steps = np.zeros(core.NUM_ENVS, np.int64), 300
    assert get_env_info(core.ENV_ID).max_episode_steps == max_episode_steps
    elapsed[0] = max_episode_steps - 30
    envs.reset(seed=0, options={"elapsed_steps": elapsed})
    (obs_size,) = envs.single_observation_space.shape
    (action_size,) = envs.single_action_space.shape
    key = core.jax.random.key(0)
    mean, value = (core.mlp(obs_size, size, key) for size in (action_size, 1))
    net = core.ActorCritic(mean, value, np.zeros(action_size))
    rollout = core.collect(envs, net, core.RunningNorm(obs_size), np.random.default_rng(0))
    envs.close()
    assert np.argwhere(rollout.ended).tolist() == [[29, 0]]
    continues = ~rollout.ended[:-1]
    np.testing.assert_array_equal(rollout.obs[1:][continues], rollout.obs_tp1[:-1][continues])
    assert (rollout.obs[1:] != rollout.obs_tp1[:-1]).any(-1)[~continues].all()
    assert (rollout.obs != rollout.obs_tp1).any(-1).all()


@pytest.mark.parametrize("num_steps", [5 * 2_048, 6 * 2_048, 7 * 2_048 - 1])
def test_core_loop_refuses_fewer_steps_than_two_rollouts_of_training(core, num_steps):
    with pytest.raises(SystemExit, match=r"STEPS must be 14,336 or more\."):
        core.train(num_steps, num_labels=20)


@pytest.mark.slow
def test_core_loop_solves_short_hopper_from_300_labels(core):
    """Check that the return is at least 70 % of that with the true reward."""
    assert core.train(seed=0) > 0.7 * TRUE_REWARD_RETURN
