import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import children, core_loop, grid, machine, peer_environments, study
from benchmarks.children import ChildFailed, last_json
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.peer_environments import pip_calls
from benchmarks.records import Records, groups, key_of, latest_run


def test_record_has_metrics_date_machine_and_versions(tmp_path):
    records = Records("some", folder=tmp_path)
    records.append(run="a", steps_per_second=3.5)
    (record,) = records.all()
    assert record["steps_per_second"] == 3.5
    assert {"date", "cpu", "cores", "versions", "commit"} <= record.keys()


def test_truncated_last_line_is_ignored(tmp_path):
    records = Records("some", folder=tmp_path)
    records.append(run="a")
    with records.path.open("a") as file:
        file.write('{"run": "b", "st')
    assert [record["run"] for record in records.all()] == ["a"]


def test_record_after_truncated_line_is_kept(tmp_path):
    records = Records("some", folder=tmp_path)
    records.path.write_text('{"run": "b", "st')
    records.append(run="c")
    assert [record["run"] for record in records.all()] == ["c"]


def test_quick_records_are_stored_separately(tmp_path):
    Records("some", is_quick=True, folder=tmp_path).append(run="a")
    assert Records("some", folder=tmp_path).all() == []


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


def test_latest_run_returns_records_of_last_run():
    records = [{"run": "a", "x": 1}, {"run": "b", "x": 2}, {"run": "b", "x": 3}]
    assert latest_run(records) == records[1:]


def test_key_does_not_depend_on_order_of_settings():
    assert key_of({"a": 1, "b": {"c": 2, "d": 3}}) == key_of({"b": {"d": 3, "c": 2}, "a": 1})


def test_each_paragraph_of_requirements_is_one_pip_call():
    text = "# why\n\n# first\ntorch==1\n\nthis==2\n# because\nthat<3\n"
    assert pip_calls(text) == [["torch==1"], ["this==2", "that<3"]]


def test_last_json_returns_last_printed_object():
    assert last_json('{"a": 1}\nsome words\n{"a": 2}\nmore\n') == {"a": 2}
    with pytest.raises(ChildFailed):
        last_json("only words\n")


def test_simultaneous_runs_of_a_peer_install_it_once(monkeypatch, tmp_path):
    installed = []

    def install(_python, specifiers):
        time.sleep(0.2)
        installed.append(specifiers)

    monkeypatch.setattr(peer_environments, "ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setattr(peer_environments, "PEERS", tmp_path)
    monkeypatch.setattr(peer_environments, "install", install)
    monkeypatch.setattr(
        peer_environments.venv, "create", lambda folder, **_settings: folder.mkdir(exist_ok=True)
    )
    (tmp_path / "peer.txt").write_text("torch==1\n")
    with ThreadPoolExecutor(2) as pool:
        pythons = list(pool.map(peer_environments.ready_python, ["peer", "peer"]))
    assert installed == [["torch==1"]]
    assert pythons == [tmp_path / "environments" / "peer" / "bin" / "python"] * 2


def test_failed_installation_of_a_peer_is_a_failed_run(monkeypatch):
    def fail(_peer, _script):
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(children, "peer_command", fail)
    with pytest.raises(ChildFailed, match="sb3 could not be installed"):
        children.run_peer("sb3", "sb3_train.py", seed=0)


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


def test_changed_requirements_or_script_of_a_peer_cause_another_run(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "PEERS", tmp_path)
    keys = []
    for requirements, script in [("torch==1", "x"), ("torch==2", "x"), ("torch==2", "y")]:
        (tmp_path / "sb3.txt").write_text(requirements)
        (tmp_path / "train.py").write_text(script)
        keys.append(grid.cell_of_peer("peer", {"seed": 0}, "sb3", "train.py", {"steps": 1}).key)
    assert len(set(keys)) == 3


@pytest.mark.parametrize(("benchmark", "file"), [(core_loop, "EXAMPLE"), (study, "LABELERS")])
def test_changed_code_outside_the_package_causes_another_run(
    benchmark, file, tmp_path, monkeypatch
):
    before = next(benchmark.cells(Options(run=""))).key
    (tmp_path / "changed.py").write_text("x")
    monkeypatch.setattr(benchmark, file, tmp_path / "changed.py")
    assert next(benchmark.cells(Options(run=""))).key != before


def test_run_recorded_with_another_source_is_repeated(tmp_path, monkeypatch):
    records, job = Records("some", folder=tmp_path), CountingJob()
    cells = [Cell("ours", {"seed": 0}, {"steps": 10}, job)]
    fill(cells, Options(run="a"), records)
    monkeypatch.setattr(machine, "source", lambda: "another")
    fill(cells, Options(run="b"), records)
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


def test_record_has_the_source_at_its_time(tmp_path, monkeypatch):
    records = Records("some", folder=tmp_path)
    for source in ("one", "other"):
        monkeypatch.setattr(machine, "source", lambda source=source: source)
        records.append(run="a")
    assert [record["source"] for record in records.all()] == ["one", "other"]
