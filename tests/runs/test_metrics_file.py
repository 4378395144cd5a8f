"""Tests of the metrics file of a run."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.runs.metrics_file import MetricsFile, parse, to_line


@pytest.fixture
def file(tmp_path):
    return MetricsFile(tmp_path / "metrics.jsonl")


def test_rows_are_returned_in_order(file):
    file.append({"step": 1, "true_return": None})
    file.append({"step": 2, "true_return": 3.5, "agent/kl": 0.01})
    assert file.rows() == [
        {"step": 1, "true_return": None},
        {"step": 2, "true_return": 3.5, "agent/kl": 0.01},
    ]
    assert file.last()["step"] == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("nan"), np.array(np.nan)])
def test_non_finite_value_is_stored_as_null(file, value):
    file.append({"step": 1, "loss": value})
    assert file.rows() == [{"step": 1, "loss": None}]


def test_new_file_has_no_rows(file):
    assert file.rows() == []
    assert file.last() == {}


def test_torn_line_is_deleted_before_a_run_continues(file):
    file.path.write_text('{"step": 1}\n{"step": 2, "tru')
    file.drop_after(2)
    file.append({"step": 3})
    assert file.rows() == [{"step": 1}, {"step": 3}]


def test_drop_after_deletes_later_steps_and_allows_appending(file):
    for step in (10, 20, 30):
        file.append({"step": step})
    file.drop_after(20)
    file.append({"step": 25})
    assert [row["step"] for row in file.rows()] == [10, 20, 25]


@given(
    steps=st.lists(st.integers(0, 10**9), min_size=1, max_size=5),
    cut=st.integers(0, 200),
)
def test_truncated_file_returns_first_rows(steps, cut):
    rows = [{"step": step, "wörd": "é"} for step in steps]
    content = "".join(to_line(row) for row in rows).encode()[:cut]
    found = parse(content.splitlines())
    assert found == rows[: len(found)]
    assert len(found) >= content.count(b"\n")


@pytest.mark.parametrize("step", ["7", None, [30], float("nan")])
def test_drop_after_keeps_rows_with_damaged_step(file, step):
    file.path.write_text(f"{json.dumps({'step': step})}\n{json.dumps({'step': 30})}\n")
    file.drop_after(20)
    assert len(file.rows()) == 1
