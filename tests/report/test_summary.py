"""The end of a run in one table."""

import io

from rich.console import Console

from rl_teacher.report.summary import facts, summary

ROWS = [
    {"step": 0, "wall_s": 0.0},
    {"step": 50_000, "wall_s": 5.0, "true_return": 900.0, "held_out_accuracy": 0.8},
    {"step": 100_000, "wall_s": 10.0, "true_return": 850.0, "labels_answered": 300},
    {"step": 100_000, "true_return": None, "correlation": 0.912},
]


def output(console):
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_newest_figure_is_given_even_if_the_last_row_lacks_it():
    said = dict(facts(ROWS))
    assert said["true return"] == "850.0"
    assert said["highest true return"] == "900.0"
    assert said["held-out accuracy"] == "80 %"
    assert said["labels answered"] == "300"
    assert said["correlation with true reward"] == "0.91"


def test_the_pace_is_that_of_the_whole_run():
    assert dict(facts(ROWS))["steps per second"] == "10,000"


def test_what_the_run_has_none_of_is_left_out():
    assert "predicted return" not in dict(facts(ROWS))


def test_a_run_without_a_row_says_so():
    assert facts([]) == [("steps", "none were taken")]


def test_the_table_names_experiment_and_environment():
    console = Console(file=io.StringIO(), width=80)
    console.print(summary("syn [red]", ROWS, {"env_id": "ShortHopper-v1"}))
    assert "syn [red] · ShortHopper-v1" in output(console)
    assert "100,000" in output(console)
