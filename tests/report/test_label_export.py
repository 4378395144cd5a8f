"""Labels for other programs."""

import io
import json
import sys
from datetime import UTC, datetime
from uuid import UUID

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadInput, ExperimentNotFound, RunFolderUnusable
from rl_teacher.report import label_export
from rl_teacher.report.label_export import COLUMNS, export
from rl_teacher.store.records import NewLabel
from rl_teacher.store.store import Store

LEFT, RIGHT = "a" * 64, "b" * 64
REQUEST = UUID("7f3c2a51-6f0e-4a52-9d4e-0c8a5b0e7d11")


@pytest.fixture
def store(database):
    def now():
        return datetime(2026, 11, 3, 12, tzinfo=UTC)

    with Store.open(database, now=now) as opened:
        yield opened


@pytest.fixture
def comparison_id(store):
    experiment_id = store.experiments.ensure("hopper", "ShortHopper-v1", {})
    [asked] = store.comparisons.add(experiment_id, [(LEFT, RIGHT)], "ShortHopper-v1", 60, 7)
    return asked


def lines(store, name="hopper"):
    out = io.BytesIO()
    exported = export(store, name, "jsonl", out)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert exported.num_labels == len(found)
    return found


def test_a_label_is_a_line_with_who_when_how_long_and_which_side(store, comparison_id):
    details = {"note": "<script>", "replays": 2}
    store.labels.add_many(
        [
            NewLabel(
                *(comparison_id, Answer.RIGHT, "Zoë", REQUEST),
                is_swapped=True,
                response_ms=1234,
                details=details,
            )
        ]
    )
    [line] = lines(store)
    assert line == {
        "schema_version": 1,
        "label_id": 1,
        "experiment": "hopper",
        "comparison_id": comparison_id,
        "asked_at_step": 7,
        "left_clip": LEFT,
        "right_clip": RIGHT,
        "answer": "right",
        "shown_left": RIGHT,
        "is_swapped": True,
        "labeler": "Zoë",
        "role": "labeler",
        "answered_at": "2026-11-03T12:00:00+00:00",
        "response_ms": 1234,
        "purpose": "answer",
        "lease": "none",
        "is_current": True,
        "is_excluded": False,
        "gold": None,
        "request_id": str(REQUEST),
        "details": details,
    }
    assert tuple(line) == COLUMNS


def test_every_label_ever_given_is_there_and_says_whether_it_counts(store, comparison_id):
    for answer in (Answer.LEFT, Answer.EQUAL, None, Answer.CANNOT_TELL):
        store.labels.add(comparison_id, answer, "ann")
    store.labelers.set_excluded("ann", is_excluded=True)
    found = lines(store)
    assert [each["answer"] for each in found] == ["left", "equal", None, "cannot_tell"]
    assert [each["is_current"] for each in found] == [False, False, False, True]
    assert {each["is_excluded"] for each in found} == {True}


def test_more_labels_than_one_page_has_are_all_there_once(store, comparison_id, monkeypatch):
    monkeypatch.setattr(label_export, "PAGE", 3)
    for number in range(8):
        store.labels.add(comparison_id, Answer.LEFT, f"labeler {number}")
    assert [each["label_id"] for each in lines(store)] == list(range(1, 9))


def test_labels_of_other_experiments_stay_away(store, comparison_id):
    store.labels.add(comparison_id, Answer.LEFT, "ann")
    store.experiments.ensure("other", "ShortHopper-v1", {})
    assert lines(store, "other") == []


def test_parquet_has_the_same_rows_with_types(store, comparison_id, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(label_export, "ROW_GROUP", 2)
    for answer in (Answer.LEFT, None, Answer.EQUAL):
        store.labels.add_many([NewLabel(comparison_id, answer, "ann", details={"x": [1, "y"]})])
    path = tmp_path / "labels.parquet"
    assert export(store, "hopper", "parquet", path).num_labels == 3
    table = parquet.read_table(path)
    assert table.schema.metadata[b"rl_teacher_labels"] == b"1"
    assert str(table.schema.field("answered_at").type) == "timestamp[us, tz=UTC]"
    rows = table.to_pylist()
    for row, line in zip(rows, lines(store), strict=True):
        assert row["answered_at"].isoformat() == line["answered_at"]
        assert json.loads(row["details"]) == line["details"]
        same = set(COLUMNS) - {"answered_at", "details"}
        assert {each: row[each] for each in same} == {each: line[each] for each in same}


def test_parquet_of_no_labels_is_a_file_with_no_rows(store, comparison_id, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export(store, "hopper", "parquet", tmp_path / "labels.parquet")
    assert parquet.read_table(tmp_path / "labels.parquet").num_rows == 0


def test_parquet_without_its_library_says_what_to_install(
    store, comparison_id, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"pip install 'rl-teacher\[parquet\]'"):
        export(store, "hopper", "parquet", tmp_path / "labels.parquet")
    assert [each for each in tmp_path.iterdir() if "parquet" in each.name] == []


@pytest.mark.parametrize(("name", "format_name"), [("walker", "jsonl"), ("hopper", "csv")])
def test_what_cannot_be_exported_is_refused(store, comparison_id, name, format_name):
    with pytest.raises((BadInput, ExperimentNotFound)):
        export(store, name, format_name, io.BytesIO())


def test_a_file_that_cannot_be_written_is_said_to_be(store, comparison_id, tmp_path):
    with pytest.raises(RunFolderUnusable):
        export(store, "hopper", "jsonl", tmp_path / "nowhere" / "labels.jsonl")


def test_an_export_that_breaks_off_leaves_the_file_of_before(
    store, comparison_id, tmp_path, monkeypatch
):
    path = tmp_path / "labels.jsonl"
    path.write_text("before")
    store.labels.add(comparison_id, Answer.LEFT, "ann")

    def fail(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(label_export, "as_row", fail)
    with pytest.raises(KeyboardInterrupt):
        export(store, "hopper", "jsonl", path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir() if "unfinished" in each.name] == []
