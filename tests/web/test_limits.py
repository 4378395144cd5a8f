"""Limits of body sizes."""

from rl_teacher.web.settings import MAX_BODY_BYTES
from tests.web.conftest import assert_problem


def test_body_of_maximum_size_is_accepted(program):
    body = b'{"labels": []}'.ljust(MAX_BODY_BYTES)
    program.headers["Content-Type"] = "application/json"
    assert program.post("/api/v1/labels", content=body).status_code == 200
    assert_problem(program.post("/api/v1/labels", content=body + b" "), 413)
