"""The access token's file."""

import multiprocessing
import stat

import pytest

from rl_teacher.common.errors import RunFolderUnusable
from rl_teacher.web.token import access_token


def test_it_is_made_once(tmp_path):
    token = access_token(tmp_path / "home")
    assert len(token) >= 43
    assert access_token(tmp_path / "home") == token
    assert access_token(tmp_path / "other") != token


def test_only_its_owner_may_read_it(tmp_path):
    access_token(tmp_path)
    assert stat.S_IMODE((tmp_path / "access-token").stat().st_mode) == 0o600


def test_a_file_that_others_may_read_is_closed_to_them(tmp_path):
    access_token(tmp_path)
    (tmp_path / "access-token").chmod(0o644)
    access_token(tmp_path)
    assert stat.S_IMODE((tmp_path / "access-token").stat().st_mode) == 0o600


def test_nothing_else_is_left_behind(tmp_path):
    access_token(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["access-token"]


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 50, b"spaces in it " * 5])
def test_a_file_that_holds_something_else_is_not_taken(tmp_path, content):
    (tmp_path / "access-token").write_bytes(content)
    with pytest.raises(RunFolderUnusable, match=r"access-token.*Delete it"):
        access_token(tmp_path)


def test_a_home_that_cannot_be_written_is_said_to_be_so(tmp_path, as_nobody):
    tmp_path.chmod(0o555)
    as_nobody()
    with pytest.raises(RunFolderUnusable):
        access_token(tmp_path)


def test_processes_that_begin_together_agree_on_it(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        tokens = pool.map(access_token, [tmp_path] * 16)
    assert len(set(tokens)) == 1
