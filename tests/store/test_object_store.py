"""Tests of media in an object store, with a real server of S3."""

import importlib
import sys

import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput, MediaNotFound, StoreUnavailable
from rl_teacher.store.media import MediaFiles, default_media
from tests.store.s3 import BUCKET, KEY_ID, SECRET

HASH = "0123456789abcdef" * 4
POSES = f"clips/{HASH}.poses"


def assert_public_text_names_no_place(error, server):
    for place in (BUCKET, server.endpoint, SECRET, KEY_ID):
        assert place not in error.public


class TestS3:
    def test_stored_content_is_returned_until_it_is_removed(self, s3):
        media = MediaFiles(s3.url)
        media.check()
        for content in (b"", bytes(range(256)) * 400):
            assert not media.exists(POSES)
            media.put(POSES, content)
            assert media.exists(POSES)
            assert MediaFiles(s3.url).get(POSES) == content
            media.remove(POSES)
            media.remove(POSES)
        with pytest.raises(MediaNotFound, match=POSES):
            media.get(POSES)

    def test_missing_bucket_is_reported_and_not_created(self, s3):
        media = MediaFiles("s3://no-such-bucket/clips")
        for use in (lambda _: media.check(), media.get, lambda key: media.put(key, b"poses")):
            with pytest.raises(StoreUnavailable, match="s3://no-such-bucket/clips") as caught:
                use(POSES)
            assert not caught.value.is_transient
        assert s3.has_bucket(BUCKET)
        assert not s3.has_bucket("no-such-bucket")

    def test_wrong_credentials_are_reported(self, s3, monkeypatch):
        monkeypatch.setattr("moto.core.responses.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0)
        with pytest.raises(StoreUnavailable, match="PermissionError") as caught:
            MediaFiles(s3.url).get(POSES)
        assert not caught.value.is_transient
        assert_public_text_names_no_place(caught.value, s3)

    def test_stopped_server_is_a_transient_failure(self, s3):
        media = MediaFiles(s3.url)
        media.put(POSES, b"poses")
        s3.stop()
        for use in (media.get, media.exists, media.remove, lambda key: media.put(key, b"x")):
            with pytest.raises(StoreUnavailable) as caught:
                use(POSES)
            assert caught.value.is_transient
            assert_public_text_names_no_place(caught.value, s3)
        s3.start()
        assert media.get(POSES) == b"poses"


class TestUrls:
    @pytest.mark.parametrize("url", ["s3://", "gs:///clips", "gcs://"])
    def test_url_without_bucket_is_refused(self, url):
        with pytest.raises(BadInput, match="no bucket"):
            MediaFiles(url)

    @pytest.mark.parametrize(
        ("url", "package", "extra"),
        [("s3://bucket/clips", "s3fs", "s3"), ("gs://bucket/clips", "gcsfs", "gcs")],
    )
    def test_missing_extra_is_named(self, url, package, extra, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, package, None)
        loaded = importlib.import_module("fsspec.registry")._registry
        monkeypatch.delitem(loaded, url[:2], raising=False)
        monkeypatch.setenv("RL_TEACHER_MEDIA_URL", url)
        assert main(["serve", "--no-browser"]) == 2
        assert f'pip install "rl-teacher[{extra}]"' in capsys.readouterr().err

    def test_variable_sets_the_default(self, tmp_path, monkeypatch):
        assert default_media(tmp_path) == str(tmp_path / "media")
        monkeypatch.setenv("RL_TEACHER_MEDIA_URL", "gs://bucket/clips")
        assert default_media(tmp_path) == "gs://bucket/clips"


@pytest.mark.parametrize(
    "command", ["serve --no-browser", "teach -p human -e ShortReacher-v1 -n x"]
)
def test_command_with_missing_bucket_exits_at_once(s3, command, monkeypatch, capsys):
    monkeypatch.setenv("RL_TEACHER_MEDIA_URL", "s3://no-such-bucket/clips")
    assert main(command.split()) == 2
    assert "s3://no-such-bucket/clips" in capsys.readouterr().err
