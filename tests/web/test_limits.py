"""Limits of body sizes."""

import pytest

from rl_teacher.web.settings import MAX_BODY_BYTES
from tests.web.conftest import assert_problem

MEGABYTE = b" " * 1_000_000


class TestTooLarge:
    @pytest.mark.parametrize("content_type", ["application/json", "multipart/x"])
    def test_large_chunked_body_is_rejected_while_reading(self, program, content_type):
        chunks = (MEGABYTE for _ in range(100))
        headers = {"Content-Type": content_type}
        assert_problem(program.post("/api/v1/labels", content=chunks, headers=headers), 413)

    def test_body_of_maximum_size_is_accepted(self, program):
        body = b'{"labels": []}'.ljust(MAX_BODY_BYTES)
        program.headers["Content-Type"] = "application/json"
        assert program.post("/api/v1/labels", content=body).status_code == 200
        assert_problem(program.post("/api/v1/labels", content=body + b" "), 413)
