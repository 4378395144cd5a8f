import pytest

from benchmarks import machine
from benchmarks.children import ChildFailed
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Records, groups


def test_record_after_truncated_line_is_kept(tmp_path):
    records = Records("some", folder=tmp_path)
    records.path.write_text('{"run": "b", "st')
    records.append(run="c")
    assert [record["run"] for record in records.all()] == ["c"]


def test_groups_differ_in_settings_or_source_and_keep_every_run():
    def run(seed, source, steps, value):
        settings = {"config": {"seed": seed, "steps": steps}}
        return {"seed": seed, "source": source, "settings": settings, "x": value, "commit": "c"}

    records = [
        *[run(1, "a", 10, 1), run(0, "a", 10, 2), run(0, "b", 10, 3)],
        *[run(0, "a", 99, 4), run(1, "a", 10, 5)],
    ]
    found = groups(records)
    assert [[record["x"] for record in group] for group in found] == [[2, 1, 5], [3], [4]]
    assert len(groups(records, ignored=["steps"])) == 2
    assert len(groups(records, "x")) == len(records)


class CountingJob:
    """Job that counts its calls."""

    def __init__(self):
        self.num_calls = 0

    def __call__(self):
        from benchmarks.children import Finished

        self.num_calls += 1
        return Finished({"final_return": 1.0}, wall_s=2.0, peak_mb=3.0)


def test_recorded_run_is_repeated_only_with_is_again(tmp_path):
    records, job = Records("some", folder=tmp_path), CountingJob()
    cells = [Cell("ours", {"seed": seed}, {"steps": 10}, job) for seed in (0, 1)]
    fill(cells, Options(run="a"), records)
    fill(cells, Options(run="b"), records)
    assert job.num_calls == 2
    fill(cells, Options(run="c", is_again=True), records)
    assert job.num_calls == 4


def test_changed_settings_cause_another_run(tmp_path):
    records, job = Records("some", folder=tmp_path), CountingJob()
    for steps in (10, 20):
        fill([Cell("ours", {"seed": 0}, {"steps": steps}, job)], Options(run="a"), records)
    assert job.num_calls == 2


def test_source_that_changes_during_a_run_stops_the_grid(tmp_path, monkeypatch):
    records, job = Records("some", folder=tmp_path), CountingJob()
    # The source changes in the second of three runs.
    monkeypatch.setattr(machine, "source", lambda: "one" if job.num_calls < 2 else "other")
    cells = [Cell("ours", {"seed": seed}, {"steps": 10}, job) for seed in (0, 1, 2)]
    with pytest.raises(ChildFailed, match="The source changed from one to other"):
        fill(cells, Options(run="a"), records)
    assert job.num_calls == 2
    assert [(record["seed"], record["source"]) for record in records.all()] == [(0, "one")]
