"""Clips and scenes."""

import gzip
import hashlib

import pytest

from rl_teacher.clips.poses import unpack
from rl_teacher.store.records import RenderedClip
from tests.web.conftest import (
    ENV_ID,
    FPS,
    MP4,
    NUM_FRAMES,
    SCENE,
    SCENE_HASH,
    assert_problem,
)

IMMUTABLE = "private, max-age=31536000, immutable"


def url(content_hash):
    return f"/api/v1/clips/{content_hash}"


def file_of(tmp_path, content_hash):
    [path] = (tmp_path / "media" / "clips").glob(f"{content_hash}.*")
    return path


@pytest.fixture
def video(trainer):
    return trainer.add_clip("film", "video")


class TestPoses:
    def test_poses_are_sent_unchanged(self, program, trainer):
        response = program.get(url(trainer.add_clip("jump")))
        poses, fps = unpack(response.content)
        assert (len(poses), fps) == (NUM_FRAMES, FPS)
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["cache-control"] == IMMUTABLE


class TestVideo:
    def test_video_is_sent_completely(self, program, video):
        response = program.get(url(video))
        assert response.content == MP4
        assert response.headers["content-type"] == "video/mp4"


class TestDamagedClips:
    @pytest.mark.parametrize("kind", ["poses", "video"])
    @pytest.mark.parametrize(
        "damage",
        [
            lambda content: content[: len(content) // 2],
            lambda content: content[:-1],
            lambda content: content[:50] + bytes([content[50] ^ 1]) + content[51:],
            lambda content: b"",
            gzip.compress,
        ],
        ids=["half", "a byte short", "a bit changed", "empty", "something else"],
    )
    def test_damaged_clip_is_detected_and_named(self, program, trainer, tmp_path, kind, damage):
        clip = trainer.add_clip("jump", kind)
        path = file_of(tmp_path, clip)
        path.write_bytes(damage(path.read_bytes()))
        response = program.get(url(clip))
        assert clip in assert_problem(response, 502)
        assert response.headers["cache-control"] == "no-store"

    @pytest.mark.parametrize("kind", ["hologram", "poses"])
    def test_invalid_metadata_is_named(self, program, trainer, kind):
        rendered = RenderedClip(ENV_ID, 60, kind, f"clips/{'a' * 64}.poses", None, 0, 20.0)
        trainer.store.clips.publish({"a" * 64: rendered})
        assert "a" * 64 in assert_problem(program.get(url("a" * 64)), 502)


class TestMissingClips:
    def test_clip_not_yet_rendered_returns_conflict(self, program, trainer):
        trainer.ask(rendered=False)
        content_hash = hashlib.sha256(b"0 left").hexdigest()
        assert "yet" in assert_problem(program.get(url(content_hash)), 409)


class TestScenes:
    def test_scene_is_immutable_json(self, program, trainer):
        trainer.add_clip("jump")
        response = program.get(f"/api/v1/scenes/{SCENE_HASH}")
        assert response.content == SCENE
        assert response.headers["content-type"] == "application/json"
        assert response.headers["cache-control"] == IMMUTABLE

    def test_damaged_scene_is_detected(self, program, trainer, tmp_path):
        trainer.add_clip("jump")
        path = tmp_path / "media" / "scenes" / f"{SCENE_HASH}.json"
        path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
        assert_problem(program.get(f"/api/v1/scenes/{SCENE_HASH}"), 502)
