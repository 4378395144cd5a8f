"""Tests of export from one home folder and import into another."""

import json
from dataclasses import replace

import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput, ConfigMismatch, ExperimentNotFound
from rl_teacher.datasets import load
from rl_teacher.datasets.import_export import from_experiment, import_as
from rl_teacher.runs.folder import Experiment, home
from rl_teacher.runs.management import rename_experiment
from rl_teacher.store.database import default_url
from rl_teacher.store.store import Store
from tests.datasets.conftest import ENV_ID


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


@pytest.mark.usefixtures("dataset")
@pytest.mark.parametrize("options", [(), ("--format", "jsonl", "--out", f"{'漢' * 80}.jsonl")])
def test_experiment_with_a_long_name_is_exported(options, experiment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "漢" * 80
    rename_experiment(experiment.store, "experiment", name)
    assert main(["export", name, *options]) == 0
    [written] = tmp_path.glob(f"{name}.*")
    assert written.suffix in (".zip", ".jsonl")


def test_imported_labelers_are_distinct_from_local_ones(dataset, experiment):
    import_as(dataset, "theirs")
    assert {"zoe", "imported:zoe"} <= {each.name for each in experiment.store.labelers.all()}
    with Store.open(default_url(home())) as store:
        rows = from_experiment(store, "theirs").rows
    assert {row["labeler"] for row in rows} == {"zoe"}


def test_labels_of_several_labelers_are_imported_as_share(experiment):
    comparison = experiment.ask(0)
    for labeler, answer in {"a": "left", "b": "left", "c": "right"}.items():
        experiment.answer(comparison, answer, labeler)
    import_as(experiment.dataset(), "theirs")
    experiment.name = "theirs"
    [each] = experiment.dataset()
    assert each.target == pytest.approx(2 / 3)


def test_repeated_import_changes_nothing_and_another_data_set_is_refused(dataset, experiment):
    for _ in range(2):
        assert import_as(dataset, "theirs") == 4
    assert Experiment.find("theirs").summary().phase == "finished"
    with pytest.raises(ConfigMismatch, match="content"):
        import_as(dataset.subset(2), "theirs")


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"env_id": "E", "fit": "sync", "seed": 1}, "a run"),
        ({"env_id": "E", "fit": {"seed": 1}}, "a predictor of `rl-teacher fit`"),
    ],
    ids=["run", "fit"],
)
def test_import_into_experiment_of_another_kind_is_refused_without_a_list(config, kind, dataset):
    with Experiment.open("taken", config) as experiment:
        experiment.save_checkpoint(1, {}, {})
    with pytest.raises(ConfigMismatch) as caught:
        import_as(dataset, "taken")
    assert str(caught.value) == (
        f"Experiment 'taken' exists and is {kind}, not an imported data set. Choose another name, "
        "or delete it with `rl-teacher delete`."
    )


def test_data_set_is_imported_under_the_former_name_of_its_import(dataset, experiment):
    import_as(dataset, "theirs")
    rename_experiment(experiment.store, "theirs", "renamed")
    for name in ("theirs", "renamed"):
        assert import_as(dataset, name) == 4
        experiment.name = name
        assert contents(experiment.dataset()) == contents(dataset)


def test_different_labels_of_one_request_id_are_refused_before_any_is_stored(dataset):
    rows = tuple({**row, "request_id": dataset.rows[0]["request_id"]} for row in dataset.rows)
    with pytest.raises(BadInput, match="Different labels in it have the request_id"):
        import_as(replace(dataset, rows=rows), "theirs")
    with pytest.raises(ExperimentNotFound):
        Experiment.find("theirs")


def test_imported_labels_are_not_replaced_by_others_of_their_request_ids(dataset):
    import_as(dataset, "theirs")
    rows = tuple({**row, "labeler": "yan"} for row in dataset.rows)
    with pytest.raises(BadInput, match="request_id of a different label in theirs"):
        import_as(replace(dataset, rows=rows), "theirs")


def test_replaced_and_excluded_labels_are_not_imported(experiment):
    comparison = experiment.ask(0)
    experiment.answer(comparison, "left")
    experiment.answer(comparison, "right")
    import_as(experiment.dataset(), "theirs")
    experiment.name = "theirs"
    assert len(experiment.dataset().rows) == 1
    experiment.answer(comparison, None)
    experiment.name = "experiment"
    with pytest.raises(BadInput, match="no current label in it"):
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


def test_bad_input_exits_with_code_2_and_message(tmp_path, experiment, capsys):
    (tmp_path / "labels.txt").write_text("left, right, left")
    for arguments, message in (
        (["export", "nothing"], "no experiment called 'nothing'"),
        (["export", "experiment"], "has no labels yet. Answer some of its comparisons first."),
        (["import", str(tmp_path / "labels.txt"), "-n", "x"], "cannot be read as a label data set"),
        (
            ["import", str(tmp_path / "labels.txt"), "-n", "x"],
            "set: This is not a .zip file of one",
        ),
        (["import", str(tmp_path / "gone.zip"), "-n", "x"], "no such file"),
        (["sweep", str(tmp_path / "gone.toml")], "cannot be read: No such file or directory. Name"),
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert "Traceback" not in printed
    experiment.answer(experiment.ask(0), "left")
    with pytest.raises(SystemExit, match="2"):
        main(["export", "experiment", "--format", "csv"])
    assert "'jsonl', 'parquet'" in capsys.readouterr().err


@pytest.mark.usefixtures("dataset")
@pytest.mark.parametrize("options", [["--out", "{}.zip"], ["--format", "jsonl", "--out", "{}/new"]])
def test_file_that_cannot_be_written_is_named_with_a_remedy(options, tmp_path, capsys):
    (tmp_path / "place.zip").mkdir()
    (tmp_path / "place").touch()
    given = [each.format(tmp_path / "place") for each in options]
    assert main(["export", "experiment", *given]) == 2
    printed = capsys.readouterr().err
    assert f"cannot be written to {given[-1]}" in printed
    assert "Name another" in printed
    assert "RL_TEACHER_HOME" not in printed


def test_unknown_experiment_is_named(experiment):
    with pytest.raises(ExperimentNotFound):
        from_experiment(experiment.store, "nobody")


def test_description_contains_format_and_counts(dataset, tmp_path):
    dataset.save(tmp_path / "set")
    description = json.loads((tmp_path / "set" / "dataset.json").read_text())
    assert (description["format"], description["schema_version"]) == ("rl-teacher-labels", 1)
    assert description["env_id"] == "ShortReacher-v1"
    assert description["spaces"]["observation"] == {
        "kind": "box",
        "shape": [10],
        "dtype": "float32",
    }
    counts = [description[f"num_{each}"] for each in ("labels", "comparisons", "segments", "steps")]
    assert counts == [4, 3, 8, 36]


def test_import_and_export_keep_the_held_out_part(dataset, experiment, tmp_path):
    split = dataset.hold_out(0.3)
    import_as(split, "theirs")
    experiment.name = "theirs"
    assert [each.pair for each in experiment.dataset().held_out] == [
        each.pair for each in split.held_out
    ]
    assert experiment.dataset().content_hash == split.content_hash


def test_held_out_comparison_that_its_labeler_answers_again_stays_held_out(dataset, experiment):
    import_as(dataset.subset(1).all_held_out(), "theirs")
    theirs = experiment.store.experiments.get("theirs").id
    left, right = dataset[0].pair
    lengths = {left: 5, right: 4}
    [comparison] = experiment.store.comparisons.add(theirs, [(left, right)], ENV_ID, lengths, 10)
    experiment.answer(comparison, "equal")
    experiment.name = "theirs"
    import_as(experiment.dataset(), "again")
    experiment.name = "again"
    assert [(each.target, each.is_held_out) for each in experiment.dataset()] == [(0.5, True)]


def test_export_holds_out_a_fraction(dataset, experiment, tmp_path, capsys):
    """A third of 3 comparisons is 1; `cannot_tell` is none of them."""
    out = str(tmp_path / "set.zip")
    assert main(["export", "experiment", "--out", out, "--hold-out", "0.34"]) == 0
    assert "1 of them held out" in capsys.readouterr().out
    assert len(load(out).held_out) == 1
    assert main(["export", "experiment", "--format", "jsonl", "--hold-out", "0.34"]) == 2
    assert "only with --format dataset" in capsys.readouterr().err
