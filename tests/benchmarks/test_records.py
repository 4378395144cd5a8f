import pytest

from benchmarks.children import ChildFailed, last_json
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.peer_environments import pip_calls
from benchmarks.records import Records, key_of, latest_by, latest_run


def test_a_record_keeps_its_figures_and_where_they_were_measured(tmp_path):
    records = Records("some", folder=tmp_path)
    records.append(run="a", steps_per_second=3.5)
    (record,) = records.all()
    assert record["steps_per_second"] == 3.5
    assert {"date", "cpu", "cores", "versions", "commit"} <= record.keys()


def test_half_a_line_of_a_killed_process_is_left_out(tmp_path):
    records = Records("some", folder=tmp_path)
    records.append(run="a")
    with records.path.open("a") as file:
        file.write('{"run": "b", "st')
    assert [record["run"] for record in records.all()] == ["a"]


def test_quick_figures_are_kept_apart(tmp_path):
    Records("some", is_quick=True, folder=tmp_path).append(run="a")
    assert Records("some", folder=tmp_path).all() == []


def test_the_newest_record_of_each_combination_counts():
    records = [{"seed": 0, "x": 1}, {"seed": 1, "x": 2}, {"seed": 0, "x": 3}]
    assert latest_by(records, "seed") == [{"seed": 0, "x": 3}, {"seed": 1, "x": 2}]


def test_the_newest_run_is_the_one_recorded_last():
    records = [{"run": "a", "x": 1}, {"run": "b", "x": 2}, {"run": "b", "x": 3}]
    assert latest_run(records) == records[1:]


def test_a_key_does_not_depend_on_the_order_of_settings():
    assert key_of({"a": 1, "b": {"c": 2, "d": 3}}) == key_of({"b": {"d": 3, "c": 2}, "a": 1})


def test_a_paragraph_of_a_peers_requirements_is_one_call_of_pip():
    text = "# why\n\n# first\ntorch==1\n\nthis==2\n# because\nthat<3\n"
    assert pip_calls(text) == [["torch==1"], ["this==2", "that<3"]]


def test_the_last_object_a_process_printed_counts():
    assert last_json('{"a": 1}\nsome words\n{"a": 2}\nmore\n') == {"a": 2}
    with pytest.raises(ChildFailed):
        last_json("only words\n")


class Work:
    """Counts how often it is done."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        from benchmarks.children import Finished

        self.times += 1
        return Finished({"final_return": 1.0}, wall_s=2.0, peak_mb=3.0)


def test_a_run_that_is_recorded_is_not_done_again_unless_asked(tmp_path):
    records, work = Records("some", folder=tmp_path), Work()
    cells = [Cell("ours", {"seed": seed}, {"steps": 10}, work) for seed in (0, 1)]
    fill(cells, Options(run="a"), records)
    fill(cells, Options(run="b"), records)
    assert work.times == 2
    fill(cells, Options(run="c", is_again=True), records)
    assert work.times == 4


def test_other_settings_are_another_run(tmp_path):
    records, work = Records("some", folder=tmp_path), Work()
    for steps in (10, 20):
        fill([Cell("ours", {"seed": 0}, {"steps": steps}, work)], Options(run="a"), records)
    assert work.times == 2
