"""Tests of export from one home folder and import into another."""

from dataclasses import replace

import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput, ConfigMismatch, ExperimentNotFound
from rl_teacher.datasets import load
from rl_teacher.datasets.import_export import from_experiment, import_as
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.store.database import default_url
from rl_teacher.store.store import Store


def contents(dataset):
    return [(each.pair, each.target, each.labeler, each.asked_at_step) for each in dataset]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Return a function that switches to another home folder."""

    def move():
        monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "elsewhere"))

    return move


def test_exported_and_imported_data_set_exports_unchanged(
    dataset, experiment, tmp_path, elsewhere, capsys
):
    experiment.answer(
        experiment.ask(7), "left", response_ms=1200, is_swapped=True, details={"note": "é 😀"}
    )
    exported = experiment.dataset()
    assert main(["export", "experiment", "--out", str(tmp_path / "set.zip")]) == 0
    elsewhere()
    assert main(["import", str(tmp_path / "set.zip"), "-n", "theirs"]) == 0
    assert main(["export", "theirs", "--out", str(tmp_path / "again.zip")]) == 0
    assert (
        "5 labelled comparisons of ShortReacher-v1 in experiment theirs" in capsys.readouterr().out
    )
    again = load(tmp_path / "again.zip")
    assert contents(again) == contents(exported)
    assert again.content_hash == exported.content_hash
    kept = ("request_id", "labeler", "answered_at", "details", "response_ms", "is_swapped", "role")
    was, now = ([[row[name] for name in kept] for row in d.rows] for d in (exported, again))
    assert now == was


def test_imported_labelers_are_distinct_from_local_ones(dataset, experiment):
    import_as(dataset, "theirs")
    assert {"zoe", "imported:zoe"} <= {each.name for each in experiment.store.labelers.all()}
    with Store.open(default_url(home())) as store:
        rows = from_experiment(store, "theirs").rows
    assert {row["labeler"] for row in rows} == {"zoe"}


def test_repeated_import_changes_nothing_and_another_data_set_is_refused(dataset, experiment):
    for _ in range(2):
        assert import_as(dataset, "theirs") == 4
    assert Experiment.find("theirs").summary().phase == "finished"
    with pytest.raises(ConfigMismatch, match="content"):
        import_as(dataset.subset([dataset[0], dataset[1]]), "theirs")


def test_different_labels_of_one_request_id_are_refused_before_any_is_stored(dataset):
    rows = tuple({**row, "request_id": dataset.rows[0]["request_id"]} for row in dataset.rows)
    with pytest.raises(BadInput, match="request_id"):
        import_as(replace(dataset, rows=rows), "theirs")
    with pytest.raises(ExperimentNotFound):
        Experiment.find("theirs")


def test_replaced_and_excluded_labels_are_not_imported(experiment):
    comparison = experiment.ask(0)
    experiment.answer(comparison, "left")
    experiment.answer(comparison, "right")
    import_as(experiment.dataset(), "theirs")
    experiment.name = "theirs"
    assert len(experiment.dataset().rows) == 1
    experiment.answer(comparison, None)
    experiment.name = "experiment"
    with pytest.raises(BadInput, match="label"):
        import_as(experiment.dataset(), "nothing")


def test_data_set_of_missing_environment_can_be_imported_and_exported(dataset, experiment):
    segments = [replace(each, env_id="theirs:Robot-v0") for each in dataset.segments.values()]
    name_of = dict(zip(dataset.segments, (each.content_hash for each in segments), strict=True))
    rows = tuple(
        {**row, **{side: name_of[row[side]] for side in ("left_clip", "right_clip", "shown_left")}}
        for row in dataset.rows
    )
    by_hash = {each.content_hash: each for each in segments}
    import_as(replace(dataset, env_id="theirs:Robot-v0", segments=by_hash, rows=rows), "robot")
    experiment.name = "robot"
    assert experiment.dataset().env_id == "theirs:Robot-v0"
    assert len(experiment.dataset()) == 3


def test_import_and_export_keep_the_held_out_part(dataset, experiment, tmp_path):
    split = dataset.hold_out(0.3)
    import_as(split, "theirs")
    experiment.name = "theirs"
    assert [each.pair for each in experiment.dataset().held_out] == [
        each.pair for each in split.held_out
    ]
    assert experiment.dataset().content_hash == split.content_hash


def test_export_holds_out_a_fraction(dataset, experiment, tmp_path, capsys):
    """A third of 3 comparisons is 1; `cannot_tell` is none of them."""
    out = str(tmp_path / "set.zip")
    assert main(["export", "experiment", "--out", out, "--hold-out", "0.34"]) == 0
    assert "1 of them held out" in capsys.readouterr().out
    assert len(load(out).held_out) == 1
    assert main(["export", "experiment", "--format", "jsonl", "--hold-out", "0.34"]) == 2
    assert "only with --format dataset" in capsys.readouterr().err


@pytest.mark.usefixtures("dataset")
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["export", "nothing"], "nothing"),
        (["export", "experiment", "--out", "{}.zip"], "place.zip"),
        (["export", "experiment", "--format", "jsonl", "--out", "{}/new"], "place/new"),
        (["import", "{}", "-n", "x"], "place"),
        (["import", "{}/gone.zip", "-n", "x"], "gone.zip"),
    ],
)
def test_bad_input_exits_with_code_2_and_names_it(arguments, named, tmp_path, capsys):
    (tmp_path / "place.zip").mkdir()
    (tmp_path / "place").write_text("left, right, left")
    assert main([each.format(tmp_path / "place") for each in arguments]) == 2
    printed = capsys.readouterr().err
    assert named in printed
    assert "Traceback" not in printed
