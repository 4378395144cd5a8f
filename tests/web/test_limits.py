"""Bodies that are too large."""

import pytest

from rl_teacher.web.settings import MAX_BODY_BYTES
from tests.web.conftest import assert_problem

MEGABYTE = b" " * 1_000_000


class TestTooLarge:
    def test_is_refused_before_it_is_read_when_its_length_is_said(self, program):
        headers = {"Content-Length": str(100_000_000), "Content-Type": "application/json"}
        response = program.post("/api/v1/labels", content=must_not_be_read(), headers=headers)
        assert "1,000,000 bytes" in assert_problem(response, 413)
        assert response.headers["connection"] == "close"

    @pytest.mark.parametrize("content_type", ["application/json", "text/plain", "multipart/x"])
    def test_is_refused_while_it_comes_when_its_length_is_not_said(self, program, content_type):
        chunks = (MEGABYTE for _ in range(100))
        headers = {"Content-Type": content_type}
        response = program.post("/api/v1/labels", content=chunks, headers=headers)
        assert_problem(response, 413)

    def test_is_not_what_just_fits(self, program):
        body = b'{"labels": []}'.ljust(MAX_BODY_BYTES)
        program.headers["Content-Type"] = "application/json"
        assert program.post("/api/v1/labels", content=body).status_code == 200
        assert_problem(program.post("/api/v1/labels", content=body + b" "), 413)

    def test_is_nothing_that_a_stranger_learns(self, stranger):
        headers = {"Content-Length": str(100_000_000)}
        response = stranger.post("/api/v1/labels", content=b"", headers=headers)
        assert_problem(response, 401)
        assert response.headers["connection"] == "close"


def must_not_be_read():
    yield b"{"
