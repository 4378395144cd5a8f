"""Tests of the summary table."""

import io

from rich.console import Console

from rl_teacher.report.summary import area_under_curve, facts, summary

ROWS = [
    {"step": 0, "wall_s": 0.0},
    {"step": 50_000, "wall_s": 5.0, "true_return": 900.0, "held_out_accuracy": 0.8},
    {"step": 100_000, "wall_s": 10.0, "true_return": 850.0, "labels_answered": 300, "fit_s": 65.0},
    {"step": 100_000, "true_return": None, "correlation": 0.912},
]


def output(console):
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_newest_metric_is_shown_when_last_row_lacks_it():
    shown = dict(facts(ROWS))
    assert shown["true return"] == "850.0"
    assert shown["highest true return"] == "900.0"
    assert shown["held-out accuracy"] == "80 %"
    assert shown["labels answered"] == "300"
    assert shown["correlation with true reward"] == "0.91"


def test_pace_is_the_one_that_the_run_has_shown_last():
    rows = [{"steps_per_second": None}, {"steps_per_second": 9_500.0}, {"steps_per_second": None}]
    assert dict(facts([*ROWS, *rows]))["steps per second"] == "9,500"
    assert "steps per second" not in dict(facts([*ROWS, rows[0]]))


def test_run_without_rows_reports_no_steps():
    assert facts([]) == [("steps", "0")]


def test_title_names_experiment_and_environment():
    console = Console(file=io.StringIO(), width=80)
    console.print(summary("syn [red]", "ShortHopper-v1", ROWS))
    assert "syn [red] · ShortHopper-v1" in output(console)
    assert "100,000" in output(console)


def test_damaged_values_are_left_out():
    rows = [*ROWS, {"step": "x", "wall_s": {}, "true_return": 900.0, "fits": [3]}]
    assert facts(rows) == facts([*ROWS, {"true_return": 900.0}])
    assert area_under_curve(rows) == area_under_curve(ROWS)


def test_area_under_curve_counts_steps_before_the_first_value_with_it():
    """900 over 50,000 steps, and 875 on average over as many."""
    assert area_under_curve(ROWS) == 887.5
