"""Streaming export of labels."""

import json

import pytest

from tests.web.conftest import assert_problem, label, post

URL = "/api/v1/experiments/hopper/export"


def test_jsonl_export_has_one_line_per_label(program, guest, trainer):
    one, two = trainer.ask(2)
    post(guest, label(one, "equal"), label(two, "cannot_tell"))
    response = program.get(URL)
    assert response.headers["content-type"] == "application/x-ndjson"
    assert "hopper-labels.jsonl" in response.headers["content-disposition"]
    rows = [json.loads(line) for line in response.text.splitlines()]
    assert [(each["labeler"], each["answer"]) for each in rows] == [
        ("ann", "equal"),
        ("ann", "cannot_tell"),
    ]
    assert {each["schema_version"] for each in rows} == {1}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/experiments/walker/export", 404),
        ("/api/v1/experiments/..%2Fx/export", 404),
    ],
)
def test_invalid_export_request_is_rejected(program, trainer, path, status):
    assert_problem(program.get(path), status)


def test_file_name_of_export_is_percent_encoded(program, store):
    store.experiments.ensure("a b", "ShortHopper-v1", {})
    response = program.get("/api/v1/experiments/a%20b/export")
    assert response.headers["content-disposition"] == (
        "attachment; filename*=UTF-8''a%20b-labels.jsonl"
    )
