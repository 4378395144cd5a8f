"""Tests of media files in a folder and behind a URL."""

import threading
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_teacher.common.errors import (
    BadInput,
    CorruptClip,
    MediaNotFound,
    RunFolderUnusable,
    StoreUnavailable,
)
from rl_teacher.store.media import SEAL_BYTES, MediaFiles

HASH = "0123456789abcdef" * 4
POSES, FILM, SCENE = f"clips/{HASH}.poses", f"clips/{HASH}.mp4", f"scenes/{HASH}.json"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "media"


@pytest.fixture(params=["path", "text", "file url", "memory url"])
def media(request, folder):
    places = {
        "path": folder,
        "text": str(folder),
        "file url": f"file://{folder}",
        "memory url": f"memory://{uuid.uuid4()}/media",
    }
    return MediaFiles(places[request.param])


@pytest.fixture
def local(folder):
    return MediaFiles(folder)


@pytest.mark.parametrize("key", [POSES, FILM, SCENE])
@pytest.mark.parametrize("content", [b"", b"{}", bytes(range(256)) * 400])
def test_stored_content_is_returned_unchanged(media, key, content):
    assert not media.exists(key)
    media.put(key, content)
    assert media.exists(key)
    assert media.get(key) == content


def test_unknown_key_raises_media_not_found(media):
    with pytest.raises(MediaNotFound, match="clips/0123"):
        media.get(POSES)


def test_removed_key_is_missing_and_can_be_stored_again(media):
    media.put(POSES, b"poses")
    media.put(FILM, b"film")
    media.remove(POSES)
    media.remove(POSES)
    assert not media.exists(POSES)
    assert media.get(FILM) == b"film"
    media.put(POSES, b"poses")
    assert media.get(POSES) == b"poses"


def test_second_put_keeps_first_content(media):
    media.put(POSES, b"first")
    media.put(POSES, b"second")
    assert media.get(POSES) == b"first"


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_flipped_bit_is_detected(local, folder, place, bit):
    local.put(POSES, b"some poses")
    whole = (folder / POSES).read_bytes()
    damaged = bytearray(whole)
    damaged[int(place * len(whole))] ^= 1 << bit
    (folder / POSES).write_bytes(damaged)
    with pytest.raises(CorruptClip, match="cut short or altered"):
        local.get(POSES)
    (folder / POSES).write_bytes(whole)


@pytest.mark.parametrize("kept_bytes", [0, 1, 10, SEAL_BYTES, -1])
def test_truncated_file_is_detected_and_replaced_by_next_put(local, folder, kept_bytes):
    local.put(POSES, b"some poses" * 10)
    (folder / POSES).write_bytes((folder / POSES).read_bytes()[:kept_bytes])
    with pytest.raises(CorruptClip, match="is not what was written"):
        local.get(POSES)
    local.put(POSES, b"some poses" * 10)
    assert local.get(POSES) == b"some poses" * 10


def test_seal_is_free_box_of_mp4(local, folder):
    local.put(FILM, b"film")
    seal = (folder / FILM).read_bytes()[len(b"film") :]
    assert (int.from_bytes(seal[:4]), seal[4:8]) == (len(seal), b"free")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "../labels.sqlite",
        "clips/../../labels.sqlite",
        f"clips/../clips/{HASH}.poses",
        f"/clips/{HASH}.poses",
        f"clips/{HASH}.poses\n",
        f"clips/{HASH.upper()}.poses",
        f"clips/{HASH}.json",
        f"clips\\{HASH}.poses",
        "x" * 10_000,
    ],
)
def test_invalid_key_is_refused_without_creating_folder(media, folder, key):
    for use in (media.get, media.exists, media.remove, lambda key: media.put(key, b"x")):
        with pytest.raises(BadInput, match="is not the key of a clip or a scene"):
            use(key)
    assert not folder.exists()


def test_folder_without_write_permission_raises_run_folder_unusable(local, folder, as_nobody):
    folder.mkdir(mode=0o500)
    as_nobody()
    with pytest.raises(RunFolderUnusable, match="media cannot be used"):
        local.put(POSES, b"poses")


def test_concurrent_puts_leave_one_intact_file(local):
    contents = [bytes([number]) * 100_000 for number in range(8)]
    threads = [threading.Thread(target=local.put, args=(POSES, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert local.get(POSES) in contents


class TestUrls:
    @pytest.mark.parametrize("url", ["nosuch://bucket", "nosuch://me:s3cret@host/folder"])
    def test_unknown_protocol_is_refused(self, url):
        with pytest.raises(BadInput, match="Protocol not known: nosuch") as caught:
            MediaFiles(url)
        assert "s3cret" not in str(caught.value)

    def test_invalid_address_is_refused(self):
        with pytest.raises(BadInput, match="cannot be used") as caught:
            MediaFiles("s3://me:s3cret@[bucket/folder")
        assert "s3cret" not in str(caught.value)

    def test_missing_driver_is_named(self):
        with pytest.raises(BadInput, match=r"adlfs.*pip"):
            MediaFiles("abfs://container/folder")

    def test_failing_remote_is_a_transient_fault_without_password(self, monkeypatch):
        media = MediaFiles("memory://me:s3cret@host/media?token=s3cret")

        def fail(*_args, **_kwargs):
            raise ConnectionError("refused")

        for name in ("pipe_file", "cat_file", "rm_file", "info"):
            monkeypatch.setattr(f"fsspec.implementations.memory.MemoryFileSystem.{name}", fail)
        for use in (media.get, media.exists, lambda key: media.put(key, b"x")):
            with pytest.raises(StoreUnavailable, match="ConnectionError") as caught:
                use(POSES)
            assert "s3cret" not in str(caught.value)
            assert "host" not in str(caught.value.public)
        assert media.label == "memory://host/media"
