"""Tests of the import of preferences of the library imitation."""

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput
from rl_teacher.datasets import Spaces, from_imitation
from rl_teacher.runs.folder import Experiment

CARTPOLE = Spaces(gym.spaces.Box(-np.inf, np.inf, (4,), np.float32), gym.spaces.Discrete(2))


def fragments(num=3, steps=6, **changes):
    """Write the arrays as docs/datasets.md describes."""
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {"preferences": np.array([1.0, 0.0, 0.5], np.float32)}
    for side in "12":
        arrays[f"obs{side}"] = rng.normal(size=(num, steps + 1, 4)).astype(np.float32)
        arrays[f"acts{side}"] = rng.integers(0, 2, (num, steps))
        arrays[f"rews{side}"] = rng.normal(size=(num, steps))
    return arrays | changes


def file_of(tmp_path, **changes):
    path = tmp_path / "preferences.npz"
    np.savez(path, **fragments(**changes))  # pyright: ignore[reportArgumentType]
    return path


def test_preference_of_1_means_first_fragment_is_better(tmp_path):
    dataset = from_imitation(file_of(tmp_path), "CartPole-v1", CARTPOLE)
    assert [each.target for each in dataset] == [1.0, 0.0, 0.5]
    first, given = dataset[0], fragments()
    np.testing.assert_array_equal(first.left.observations, given["obs1"][0, :6])
    np.testing.assert_array_equal(first.right.actions, given["acts2"][0])
    assert first.right.true_return == pytest.approx(given["rews2"][0].sum(), rel=1e-5)


def test_import_requires_environment_id(tmp_path, capsys):
    path = str(file_of(tmp_path))
    assert main(["import", path, "-n", "theirs"]) == 2
    assert "--env-id" in capsys.readouterr().err
    assert main(["import", path, "-n", "theirs", "-e", "CartPole-v1"]) == 0
    assert "3 labelled comparisons of CartPole-v1" in capsys.readouterr().out
    assert Experiment.find("theirs").config["env_id"] == "CartPole-v1"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"preferences": np.array([1.0, 0.3, 0.0], np.float32)}, "preferences"),
        ({"preferences": np.array([1.0, 0.0], np.float32)}, "comparisons"),
        ({"acts1": np.full((3, 6), 2)}, "acts1"),
        ({"obs2": np.zeros((3, 7, 5), np.float32)}, "obs2"),
        ({"obs1": np.zeros((3, 9, 4), np.float32)}, "obs1"),
        ({"rews1": np.full((3, 6), np.nan)}, "rewards"),
        ({"rews2": np.array([[None] * 6] * 3)}, "pickle"),
    ],
)
def test_inconsistent_arrays_are_refused(tmp_path, changes, named):
    with pytest.raises(BadInput, match=named):
        from_imitation(file_of(tmp_path, **changes), "CartPole-v1", CARTPOLE)
