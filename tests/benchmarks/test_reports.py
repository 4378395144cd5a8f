import numpy as np
import pytest

from benchmarks._ours import backward_turns, curve_figures, warm_pace
from benchmarks.registry import BENCHMARKS
from benchmarks.results import document
from benchmarks.tables import MIN_SEEDS, interval, over_seeds
from rl_teacher.report.statistics import Estimate, interquartile_mean


def test_backward_turns_are_net_of_forward_turns():
    t = np.linspace(0, 1, 101)
    backwards_twice = -4.1 * np.pi * t
    forwards_then_backwards = 2 * np.pi * np.where(t < 0.5, 2 * t, 3 - 4 * t)
    pitch = np.stack([backwards_twice, forwards_then_backwards, 0 * t], axis=1)
    np.testing.assert_array_equal(backward_turns(pitch), [2, 1, 0])


def test_pitch_of_hopper_is_positive_forwards():
    """Check that a pitch of 0.3 moves the upper end of the torso to a larger x."""
    import mujoco

    from rl_teacher.envs.mujoco.physics import load_model
    from rl_teacher.envs.mujoco.suite import TASKS

    model = load_model(TASKS["Hopper-v1"])
    data = mujoco.MjData(model)  # pyright: ignore[reportAttributeAccessIssue]
    data.qpos[2] = 0.3
    mujoco.mj_forward(model, data)  # pyright: ignore[reportAttributeAccessIssue]
    assert data.body("torso").xmat.reshape(3, 3)[0, 2] > 0.2


def test_steady_pace_excludes_first_rollout():
    first = {"step": 100, "wall_s": 5.0, "true_return": None, "episodes": 0}
    middle = {"step": 600, "wall_s": 6.0, "true_return": 1.0, "episodes": 2}
    last = {"step": 1100, "wall_s": 7.0, "true_return": 3.0, "episodes": 4}
    rows = [
        {**row, "training_s": 5.0, "rollout_s": 0.8 * row["wall_s"], "update_s": share}
        for row, share in ((first, 1.0), (middle, 1.2), (last, 1.3))
    ]
    metrics = curve_figures(rows)
    assert (metrics["steady_steps_per_second"], metrics["steps_per_second"]) == (500, 220)
    # 2 s for 1,000 steps, of which 1.6 s in rollouts.
    assert metrics["rollout_us_per_step"] == pytest.approx(1600)
    assert metrics["update_us_per_step"] == pytest.approx(300)
    assert metrics["final_return"] == 3.0
    # 1 until step 600, and from there 2 on average
    assert metrics["auc"] == pytest.approx(1600 / 1100)


def test_warm_pace_excludes_compilation_in_wall_time_and_in_processor_time():
    rows = [
        {"step": step, "wall_s": wall_s} for step, wall_s in [(64, 9.0), (128, 10.0), (640, 12.0)]
    ]
    pace = warm_pace(100, rows, times=[8.0, 20.0, 24.0])
    assert pace == {"warm_steps_per_second": 256, "steps_per_cpu_second": 128}


def test_interval_needs_five_seeds():
    scores = {"": dict(enumerate([0.0, 1.0, 2.0, 3.0, 4.0]))}
    assert interval(lambda _: Estimate(1035.0, 980.0, 1071.2), scores) == "1,035 (980 to 1,071)"
    fewer = {"": {seed: value for seed, value in scores[""].items() if seed < 4}}
    assert interval(interquartile_mean, fewer) == "1.50"


def test_runs_of_equal_seed_count_once_with_the_mean_of_their_distinct_values():
    values = {0: [0.0, 4.0, 4.0], 1: [4.0], 2: [6.0]}
    records = [{"seed": seed, "x": value} for seed, each in values.items() for value in each]
    assert over_seeds(records, "x") == "4.00"  # IQM of 2, 4 and 6


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_benchmark_with_several_seeds_has_enough_for_an_interval_by_default(name):
    seeds = getattr(BENCHMARKS[name], "SEEDS", range(MIN_SEEDS))
    assert len(seeds) >= MIN_SEEDS


def test_document_lists_missing_measurements_with_their_commands():
    page = document({})
    assert page.count("Not measured yet") == len(BENCHMARKS)
    assert "python -m benchmarks.run throughput" in page
