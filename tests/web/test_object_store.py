"""Tests of clips that the service reads from an object store, with a real server of S3."""

import pytest

from rl_teacher.store.media import MediaFiles
from tests.store.s3 import BUCKET, KEY_ID, SECRET
from tests.web.conftest import SCENE, SCENE_HASH, TOKEN, Trainer, enter


@pytest.fixture
def media(s3):
    return MediaFiles(s3.url)


@pytest.fixture
def trainer(store, s3):
    return Trainer(store, MediaFiles(s3.url))


@pytest.fixture
def program(app):
    with enter(app, TOKEN) as client:
        yield client


def test_clips_are_read_from_the_object_store(program, trainer):
    video, poses = trainer.add_clip("one", "video"), trainer.add_clip("two")
    assert program.get(f"/api/v1/clips/{video}").content[4:8] == b"ftyp"
    assert program.get(f"/api/v1/clips/{poses}").content[:4] == b"RLTP"
    assert program.get(f"/api/v1/scenes/{SCENE_HASH}").content == SCENE


def test_clips_are_unavailable_while_the_store_does_not_answer(program, trainer, s3, caplog):
    clip = trainer.add_clip("one", "video")
    s3.stop()
    response = program.get(f"/api/v1/clips/{clip}")
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    assert BUCKET in caplog.text
    for place in (BUCKET, s3.endpoint, SECRET, KEY_ID):
        assert place not in response.text
    for secret in (SECRET, KEY_ID):
        assert secret not in caplog.text
