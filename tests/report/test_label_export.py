"""Tests of the label export."""

import io
import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadInput, ExperimentNotFound, RunFolderUnusable
from rl_teacher.report import label_export
from rl_teacher.report.label_export import LabelColumns, export
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
    [comparison_id] = store.comparisons.add(experiment_id, [(LEFT, RIGHT)], "ShortHopper-v1", 60, 7)
    return comparison_id


def lines(store, name="hopper"):
    out = io.BytesIO()
    num_labels = export(store, name, out)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert num_labels == len(rows)
    return rows


def test_jsonl_line_has_all_columns_of_label(store, comparison_id):
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
        "comparison_number": 1,
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
        "is_too_fast": False,
        "is_current": True,
        "is_excluded": False,
        "gold": None,
        "request_id": str(REQUEST),
        "details": details,
        "is_held_out": False,
    }
    assert tuple(line) == tuple(LabelColumns.model_fields)


def test_export_includes_superseded_and_excluded_labels_with_flags(store, comparison_id):
    for answer in (Answer.LEFT, Answer.EQUAL, None, Answer.CANNOT_TELL):
        store.labels.add(comparison_id, answer, "ann")
    store.labelers.set_excluded("ann", is_excluded=True)
    rows = lines(store)
    assert [each["answer"] for each in rows] == ["left", "equal", None, "cannot_tell"]
    assert [each["is_current"] for each in rows] == [False, False, False, True]
    assert {each["is_excluded"] for each in rows} == {True}


def test_labels_beyond_one_page_are_exported_once(store, comparison_id, monkeypatch):
    monkeypatch.setattr(label_export, "PAGE", 3)
    for number in range(8):
        store.labels.add(comparison_id, Answer.LEFT, f"labeler {number}")
    assert [each["label_id"] for each in lines(store)] == list(range(1, 9))


def test_unknown_experiment_is_refused(store, comparison_id):
    with pytest.raises(ExperimentNotFound):
        export(store, "walker", io.BytesIO())


def test_unusable_file_is_refused(store, comparison_id, tmp_path):
    with pytest.raises(BadInput, match="--out"):
        export(store, "hopper", tmp_path)
    with pytest.raises(RunFolderUnusable):
        export(store, "hopper", tmp_path / "missing" / "labels.jsonl")


def test_interrupted_export_keeps_existing_file(store, comparison_id, tmp_path, monkeypatch):
    path = tmp_path / "labels.jsonl"
    path.write_text("before")
    store.labels.add(comparison_id, Answer.LEFT, "ann")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(label_export, "as_row", fail)
    with pytest.raises(KeyboardInterrupt):
        export(store, "hopper", path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir() if "unfinished" in each.name] == []
