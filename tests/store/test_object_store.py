"""Tests of media in an object store, with a real server of S3, and of their local copies."""

import contextlib
import importlib
import re
import socket
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput, CorruptClip, MediaNotFound, StoreUnavailable
from rl_teacher.store.media import MediaFiles, default_media
from rl_teacher.store.media_backends import (
    S3_ATTEMPTS,
    S3_OPTIONS,
    RemoteFolder,
    open_backend,
    remote_errors,
)
from rl_teacher.store.media_cache import CachedMedia, open_cached
from tests.store.s3 import BUCKET, KEY_ID, SECRET, forget_connections

HASH = "0123456789abcdef" * 4
POSES, SCENE = f"clips/{HASH}.poses", f"scenes/{HASH}.json"


def key(number):
    return f"clips/{number:064x}.poses"


class HttpError(OSError):
    """Error as gcsfs raises it."""

    def __init__(self, code):
        super().__init__("https://storage.example/bucket-of-the-lab")
        self.code = code


class DefaultCredentialsError(Exception):
    """Error as google-auth raises it."""


class TransportError(Exception):
    """Error as google-auth raises it."""


class RefreshError(Exception):
    """Error as google-auth raises it."""

    def __init__(self, retryable=False, cause=None):
        super().__init__("invalid_grant: Bad Request")
        self.retryable, self.__cause__ = retryable, cause


@contextlib.contextmanager
def refusing_server(code):
    """Answer all requests with the status 400, as S3 does to expired credentials."""
    content = f"<Error><Code>{code}</Code><Message>refused</Message></Error>".encode()

    class Handler(BaseHTTPRequestHandler):
        def refuse(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(400)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = refuse

        def log_message(self, format, *args):  # noqa: A002 - name in the base class
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def assert_names_no_place(error, server):
    """Check the texts that are logged and sent."""
    for text in (str(error), error.public):
        for place in (BUCKET, server.endpoint, SECRET, KEY_ID):
            assert place not in text


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
        with pytest.raises(MediaNotFound, match="is not in the storage of the media"):
            media.get(POSES)

    def test_second_put_keeps_first_content(self, s3):
        media = MediaFiles(s3.url)
        media.put(POSES, b"first")
        media.put(POSES, b"second")
        assert media.get(POSES) == b"first"

    def test_altered_object_is_detected_and_replaced_by_next_put(self, s3):
        media = MediaFiles(s3.url)
        media.put(POSES, b"some poses")
        open_backend(s3.url).write(POSES, b"some poses")
        with pytest.raises(CorruptClip):
            media.get(POSES)
        media.put(POSES, b"some poses")
        assert media.get(POSES) == b"some poses"

    def test_missing_bucket_is_reported_and_not_created(self, s3):
        media = MediaFiles("s3://no-such-bucket/clips")
        with pytest.raises(StoreUnavailable, match=r"^s3://no-such-bucket/clips: .*not exist"):
            media.check()
        for use in (media.get, lambda key: media.put(key, b"poses")):
            with pytest.raises(StoreUnavailable, match="bucket does not exist") as caught:
                use(POSES)
            assert not caught.value.is_transient
            assert "no-such-bucket" not in str(caught.value)
        assert s3.has_bucket(BUCKET)
        assert not s3.has_bucket("no-such-bucket")

    def test_wrong_credentials_are_reported(self, s3, monkeypatch):
        monkeypatch.setattr("moto.core.responses.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0)
        with pytest.raises(StoreUnavailable, match=r"access is denied.*credentials") as caught:
            MediaFiles(s3.url).get(POSES)
        assert not caught.value.is_transient
        assert_names_no_place(caught.value, s3)

    @pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"])
    def test_expired_credentials_are_no_outage(self, s3, code, monkeypatch):
        with refusing_server(code) as endpoint:
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
            forget_connections()
            media = MediaFiles(s3.url)
            for use in (media.get, media.exists, media.remove, lambda key: media.put(key, b"x")):
                with pytest.raises(StoreUnavailable, match=r"denied.*may have expired") as caught:
                    use(POSES)
                assert not caught.value.is_transient

    @pytest.mark.parametrize(
        ("error", "arguments"),
        [
            ("LoginRefreshRequired", {}),
            ("SSOTokenLoadError", {"error_msg": "Token for lab does not exist"}),
            ("TokenRetrievalError", {"provider": "sso", "error_msg": "Token has expired"}),
            ("UnauthorizedSSOTokenError", {}),
        ],
    )
    def test_expired_session_of_aws_is_no_outage(self, error, arguments):
        exceptions = pytest.importorskip("botocore.exceptions")
        expected = pytest.raises(StoreUnavailable, match=r"denied.*may have expired")
        with expected as caught, remote_errors():
            raise getattr(exceptions, error)(**arguments)
        assert not caught.value.is_transient

    def test_missing_credentials_are_reported(self, s3, monkeypatch):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        forget_connections()
        with pytest.raises(StoreUnavailable, match=r"there are no credentials.*~/.aws") as caught:
            MediaFiles(s3.url).get(POSES)
        assert not caught.value.is_transient

    def test_invalid_bucket_name_is_reported(self, s3):
        with pytest.raises(StoreUnavailable, match="its address is invalid") as caught:
            MediaFiles("s3://not_a:bucket!/clips").get(POSES)
        assert not caught.value.is_transient

    def test_stopped_server_is_a_transient_failure(self, s3):
        media = MediaFiles(s3.url)
        media.put(POSES, b"poses")
        s3.stop()
        for use in (media.get, media.exists, media.remove, lambda key: media.put(key, b"x")):
            with pytest.raises(StoreUnavailable, match="does not answer") as caught:
                use(POSES)
            assert caught.value.is_transient
            assert_names_no_place(caught.value, s3)
        s3.start()
        assert media.get(POSES) == b"poses"

    def test_request_without_answer_is_repeated_once(self, s3, monkeypatch):
        monkeypatch.setitem(S3_OPTIONS["config_kwargs"], "read_timeout", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.settimeout(1.0)
            address, port = silent.getsockname()
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}:{port}")
            forget_connections()
            with pytest.raises(StoreUnavailable, match="does not answer") as caught:
                MediaFiles(s3.url).get(POSES)
            assert caught.value.is_transient
            for _ in range(S3_ATTEMPTS):
                silent.accept()[0].close()
            with pytest.raises(TimeoutError):
                silent.accept()


class TestUrls:
    @pytest.mark.parametrize("url", ["s3://", "gs:///clips", "gcs://"])
    def test_url_without_bucket_is_refused(self, url):
        with pytest.raises(BadInput, match="names no bucket"):
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

    @pytest.mark.parametrize(
        ("error", "cause", "is_transient"),
        [
            (OSError("Forbidden: https://bucket-of-the-lab\nno access"), "access is denied", False),
            (HttpError(401), "access is denied", False),
            (HttpError(503), "it does not answer (HttpError)", True),
            (DefaultCredentialsError("none"), "there are no credentials", False),
            (RefreshError(), "access is denied", False),
            (RefreshError(retryable=True), "it does not answer (RefreshError)", True),
            (RefreshError(cause=TransportError()), "it does not answer (RefreshError)", True),
            (TimeoutError(), "it does not answer (TimeoutError)", True),
        ],
    )
    def test_errors_of_gcsfs_are_explained(self, error, cause, is_transient, monkeypatch):
        def fail(*_args, **_kwargs):
            raise error

        monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.cat_file", fail)
        with pytest.raises(StoreUnavailable, match=re.escape(cause)) as caught:
            MediaFiles("memory://bucket/clips").get(POSES)
        assert caught.value.is_transient == is_transient
        assert BUCKET not in str(caught.value)

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
    assert "s3://no-such-bucket/clips: " in capsys.readouterr().err


@pytest.fixture
def remote():
    """URL of an object store without a server."""
    return f"memory://{uuid.uuid4()}/media"


@pytest.fixture
def num_reads(monkeypatch):
    """List with an element for each request."""
    reads, read = [], RemoteFolder.read

    def count(self, key):
        reads.append(key)
        time.sleep(0.01)
        return read(self, key)

    monkeypatch.setattr(RemoteFolder, "read", count)
    return reads


class TestCache:
    def test_local_folder_is_not_cached(self, tmp_path):
        media = open_cached(str(tmp_path / "media"), tmp_path / "cache")
        media.put(POSES, b"poses")
        assert media.get(POSES) == b"poses"
        assert not (tmp_path / "cache").exists()

    def test_concurrent_readers_cause_one_request(self, remote, tmp_path, num_reads):
        MediaFiles(remote).put(POSES, b"poses")
        num_reads.clear()
        media, found = open_cached(remote, tmp_path / "cache"), []
        threads = [
            threading.Thread(target=lambda: found.append(media.get(POSES))) for _ in "x" * 20
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert found == [b"poses"] * 20
        assert num_reads == [POSES]

    def test_damaged_copy_is_replaced(self, remote, tmp_path):
        media = CachedMedia(remote, tmp_path / "cache")
        media.put(POSES, b"poses")
        assert media.get(POSES) == b"poses"
        (tmp_path / "cache" / POSES).write_bytes(b"other")
        assert media.get(POSES) == b"poses"
        assert MediaFiles(tmp_path / "cache").get(POSES) == b"poses"

    def test_least_recently_used_copies_are_deleted(self, remote, tmp_path, num_reads):
        media = CachedMedia(remote, tmp_path / "cache", max_bytes=5_000)
        for number in range(10):
            media.put(key(number), bytes(1_000))
            media.get(key(number))
            media.get(key(0))
        sizes = [each.stat().st_size for each in (tmp_path / "cache").rglob("*.poses")]
        assert 3_000 < sum(sizes) <= 5_000
        num_reads.clear()
        media.get(key(0))
        media.get(key(9))
        assert num_reads == []
        media.get(key(1))
        assert num_reads == [key(1)]

    def test_cache_that_cannot_be_written_fails_no_request(self, remote, tmp_path):
        (tmp_path / "cache").write_text("a file")
        media = CachedMedia(remote, tmp_path / "cache")
        media.put(POSES, b"poses")
        assert media.get(POSES) == b"poses"

    def test_failure_answers_requests_for_a_while(self, s3, tmp_path, num_reads, monkeypatch):
        media = CachedMedia(s3.url, tmp_path / "cache")
        media.put(POSES, b"poses")
        media.get(POSES)
        s3.stop()
        num_reads.clear()
        for number in range(5):
            with pytest.raises(StoreUnavailable, match="does not answer") as caught:
                media.get(key(number))
            assert_names_no_place(caught.value, s3)
        assert media.get(POSES) == b"poses"
        assert len(num_reads) == 1
        s3.start()
        monkeypatch.setattr("rl_teacher.store.media_cache.time.monotonic", lambda: 1e12)
        with pytest.raises(MediaNotFound):
            media.get(key(1))
