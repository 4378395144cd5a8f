"""The examples run, and what they print is so."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

EXAMPLES_FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(EXAMPLES_FOLDER.glob("*.py"))
LONGEST = 60


@pytest.fixture
def printed_by(capsys, monkeypatch):
    """A function that runs an example as a person does, but in this process."""

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
    """The same in a process of its own."""
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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_fewer_than_60_lines(path):
    assert len(path.read_text().splitlines()) < LONGEST


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_by_itself(path):
    assert printed_alone_by(path.stem, 500)


@pytest.mark.slow
def test_a_stable_baselines3_agent_learns_from_labels_alone():
    mean, _, labels = numbers_in(printed_alone_by("sb3_agent", 1_500))
    assert mean >= 8
    assert labels >= 50


def test_a_loop_in_one_file_learns_from_labels_alone(printed_by):
    *lines, last = printed_by("cleanrl_loop", 12_000).splitlines()
    returns = [numbers_in(line)[-1] for line in lines]
    assert returns[-1] > returns[0]
    assert numbers_in(last)[0] >= 37


def test_an_own_environment_without_a_reward_is_taught(printed_by):
    dark_red, bright_green = numbers_in(printed_by("own_environment", 500))
    assert bright_green > dark_red


def test_an_own_teacher_is_understood(printed_by):
    still, whirling = numbers_in(printed_by("own_teacher", 500))
    assert still > whirling


def test_an_own_selector_chooses(printed_by):
    (correlation,) = numbers_in(printed_by("own_selector", 1_000))
    assert correlation > 0.5


def test_custom_agent_balances_pole_from_labels_alone(printed_by):
    *_, true_return = numbers_in(printed_by("custom_agent", 3_200))
    assert true_return > 15
