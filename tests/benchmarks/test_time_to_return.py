import pytest

from benchmarks import machine, time_to_return
from benchmarks.options import Options

OPTIONS = Options(run="", only=("Hopper-v1",), seeds=(0, 1, 2, 3))


def references(returns):
    cells = time_to_return.reference_cells(OPTIONS)
    circumstances = {"source": machine.source()}
    return [
        {"key": cell.key, "final_return": each, **circumstances}
        for cell, each in zip(cells, returns, strict=True)
    ]


def test_bar_is_the_interquartile_mean_of_all_seeds_with_the_true_reward():
    # The lowest and the highest quarter are left out: (20 + 30) / 2.
    cells = [*time_to_return.cells(OPTIONS, references([10.0, 20.0, 30.0, 900.0]))]
    assert [cell.settings["bar"] for cell in cells] == [25.0] * 4
    assert {cell.settings["config"]["n_labels"] for cell in cells} == {350}


def test_bar_takes_the_mean_of_repeated_runs_with_the_true_reward():
    recorded = references([10.0, 20.0, 30.0, 900.0])
    repeated = [*recorded, recorded[1] | {"final_return": 30.0}]
    assert next(time_to_return.cells(OPTIONS, repeated)).settings["bar"] == 27.5  # of 25 and 30


def test_time_from_launch_includes_imports_before_the_work():
    # 20 s of process, of which 15 s are work: the bar was reached 9 s after its beginning.
    record = {"process_s": 20.0, "work_s": 15.0, "reached_s": 9.0}
    assert time_to_return.seconds_from_launch(record) == pytest.approx(14.0)
    assert time_to_return.seconds_from_launch(record | {"reached_s": None}) is None
