"""File of the access token."""

import multiprocessing
import stat

import pytest

from rl_teacher.common.errors import RunFolderUnusable
from rl_teacher.web.token import access_token


def test_token_is_created_once(tmp_path):
    token = access_token(tmp_path / "home")
    assert len(token) >= 43
    assert access_token(tmp_path / "home") == token
    assert access_token(tmp_path / "other") != token


def test_token_file_is_readable_by_owner_only(tmp_path):
    access_token(tmp_path)
    assert stat.S_IMODE((tmp_path / "access-token").stat().st_mode) == 0o600


def test_permissions_of_token_file_are_restricted(tmp_path):
    access_token(tmp_path)
    (tmp_path / "access-token").chmod(0o644)
    access_token(tmp_path)
    assert stat.S_IMODE((tmp_path / "access-token").stat().st_mode) == 0o600


def test_no_temporary_file_remains(tmp_path):
    access_token(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["access-token"]


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 50, b"spaces in it " * 5])
def test_invalid_token_file_is_rejected(tmp_path, content):
    (tmp_path / "access-token").write_bytes(content)
    with pytest.raises(RunFolderUnusable, match=r"access-token.*Delete it"):
        access_token(tmp_path)


def test_unwritable_home_is_reported(tmp_path, as_nobody):
    tmp_path.chmod(0o555)
    as_nobody()
    with pytest.raises(RunFolderUnusable):
        access_token(tmp_path)


def test_concurrent_processes_agree_on_token(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        tokens = pool.map(access_token, [tmp_path] * 16)
    assert len(set(tokens)) == 1
