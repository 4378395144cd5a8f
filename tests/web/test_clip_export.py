"""Downloads of clips and comparisons as GIF and MP4."""

import io
import json
import threading

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence

from rl_teacher.clips import offscreen
from rl_teacher.clips.answer import is_swapped
from rl_teacher.clips.video import GAP_PIXELS, encode_mp4
from rl_teacher.store.records import AssignmentPolicy
from rl_teacher.web import clip_export
from tests.web.conftest import NUM_FRAMES, SCENE, SCENE_HASH, assert_problem, label, post

SIDE, GAP = 64, GAP_PIXELS
DARK = [np.full((48, SIDE, 3), value, np.uint8) for value in (0, 60)]
BRIGHT = [np.full((48, SIDE, 3), value, np.uint8) for value in (180, 200, 220)]


@pytest.fixture(autouse=True)
def _small_images(monkeypatch):
    monkeypatch.setattr(clip_export, "WIDTH", 64)
    monkeypatch.setattr(clip_export, "HEIGHT", 48)


def frames_of(video):
    with av.open(io.BytesIO(video), mode="r") as file:
        return [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]


@pytest.fixture
def videos(trainer, store):
    """Id of a comparison of a dark video of two frames with a bright one of three."""
    left = trainer.add_clip("dark", "video", encode_mp4(DARK, 20.0))
    right = trainer.add_clip("bright", "video", encode_mp4(BRIGHT, 20.0))
    [comparison_id] = store.comparisons.add(trainer.id, [(left, right)], "ShortHopper-v1", 60, 0)
    return comparison_id


class TestClip:
    def test_poses_are_rendered_as_video(self, guest, trainer):
        clip = trainer.add_clip("one")
        response = guest.get(f"/api/v1/clips/{clip}/download")
        assert response.headers["content-type"] == "video/mp4"
        disposition = f'attachment; filename="clip-{clip[:12]}.mp4"'
        assert response.headers["content-disposition"] == disposition
        frames = frames_of(response.content)
        assert len(frames) == NUM_FRAMES
        assert frames[0].shape == (48, 64, 3)
        red = frames[0][..., 0].astype(int) - frames[0][..., 1]
        assert red.max() > 80  # the bodies are red
        assert red[[0, -1]].max() < 40  # and whole in the image
        assert red[:, [0, -1]].max() < 40

    def test_stored_video_is_sent_unchanged(self, guest, trainer):
        content = encode_mp4(DARK, 20.0)
        clip = trainer.add_clip("one", "video", content)
        assert guest.get(f"/api/v1/clips/{clip}/download?format=mp4").content == content

    def test_gif_loops_at_the_speed_of_the_clip(self, guest, trainer):
        clip = trainer.add_clip("one", "video", encode_mp4(BRIGHT, 20.0))
        response = guest.get(f"/api/v1/clips/{clip}/download?format=gif")
        assert response.headers["content-type"] == "image/gif"
        with Image.open(io.BytesIO(response.content)) as picture:
            frames = list(ImageSequence.Iterator(picture))
            assert (len(frames), picture.info["duration"], picture.info["loop"]) == (3, 50, 0)

    def test_unknown_clip_and_format_are_rejected(self, guest, trainer):
        assert_problem(guest.get(f"/api/v1/clips/{'0' * 64}/download"), 404)
        assert_problem(guest.get("/api/v1/clips/..%2fsecret/download"), 404)
        clip = trainer.add_clip("one")
        assert_problem(guest.get(f"/api/v1/clips/{clip}/download?format=exe"), 422)

    def test_corrupt_video_is_reported(self, guest, trainer):
        clip = trainer.add_clip("one", "video")
        assert "decoded" in assert_problem(
            guest.get(f"/api/v1/clips/{clip}/download?format=gif"), 502
        )

    @pytest.mark.parametrize(
        ("part", "changed"),
        [
            ("geoms", {"quat": [1.0, 0.0, 0.0]}),
            ("geoms", {"size": []}),
            ("geoms", {"pos": [0.0, 0.0, float("nan")]}),
            ("geoms", {"body": 9}),
            ("geoms", {"type": "mesh", "mesh": 0}),
            ("geoms", {"size": [0.0, 0.0, 0.0]}),  # refused by MuJoCo
            ("camera", {"tracks": 4}),
            ("camera", {"distance": float("inf")}),
            ("camera", {"lookat": [0.0]}),
        ],
    )
    def test_invalid_scene_is_reported(self, guest, trainer, media, part, changed):
        scene = json.loads(SCENE)
        if part == "camera":
            scene["camera"] |= changed
        else:
            scene["geoms"][1] |= changed
        clip = trainer.add_clip("one")
        media.remove(f"scenes/{SCENE_HASH}.json")
        media.put(f"scenes/{SCENE_HASH}.json", json.dumps(scene).encode())
        response = guest.get(f"/api/v1/clips/{clip}/download")
        assert "The scene of the clip" in assert_problem(response, 502)

    def test_machine_without_opengl_reports_it(self, guest, trainer, monkeypatch):
        monkeypatch.setattr(offscreen, "backends", lambda: ("no-such-opengl",))
        clip = trainer.add_clip("one")
        response = guest.get(f"/api/v1/clips/{clip}/download")
        assert "OpenGL" in assert_problem(response, 503)
        assert response.json()["type"] == "urn:rl-teacher:not-rendered"


class TestComparison:
    def test_sides_are_in_the_order_of_the_page(self, guest, videos):
        frames = frames_of(guest.get(f"/api/v1/comparisons/{videos}/download").content)
        assert frames[0].shape == (48, 2 * SIDE + GAP, 3)
        left, right = frames[0][:, :SIDE].mean(), frames[0][:, SIDE + GAP :].mean()
        assert (left > right) == is_swapped(videos, "ann")

    def test_sides_of_a_repeat_are_exchanged(self, guest, trainer, store, videos):
        url = f"/api/v1/comparisons/{videos}/download"
        first = frames_of(guest.get(url).content)[0]
        post(guest, *map(label, [videos, *trainer.ask(11)]))
        store.experiments.set_assignment(trainer.id, AssignmentPolicy(repeats=1.0))
        again = guest.get("/api/v1/experiments/hopper/comparisons/next?limit=12").json()
        assert videos in [each["id"] for each in again["comparisons"]]
        repeated = frames_of(guest.get(url).content)[0]
        was_brighter, is_brighter = (
            frame[:, :SIDE].mean() > frame[:, SIDE + GAP :].mean() for frame in (first, repeated)
        )
        assert was_brighter != is_brighter

    def test_sides_of_different_frame_rates_play_at_one_speed(self):
        sides = [
            clip_export.ExportedClip(encode_mp4(frames, fps), fps, 1.0, None)
            for frames, fps in ((DARK, 40.0), (BRIGHT, 20.0))
        ]
        frames = frames_of(clip_export.encode(sides, "mp4"))
        dark = [frame[:, :SIDE].mean() for frame in frames]
        bright = [frame[:, SIDE + GAP :].mean() for frame in frames]
        np.testing.assert_allclose(dark, [0, 60, 60, 60, 60, 60], atol=12)
        np.testing.assert_allclose(bright, [180, 180, 200, 200, 220, 220], atol=12)


class TestLoad:
    def test_export_beyond_the_queue_is_rejected(self, guest, trainer, monkeypatch):
        slots = threading.BoundedSemaphore(1)
        assert slots.acquire(blocking=False)
        monkeypatch.setattr(clip_export, "SLOTS", slots)
        url = f"/api/v1/clips/{trainer.add_clip('one')}/download"
        response = guest.get(url)
        assert_problem(response, 429)
        assert int(response.headers["retry-after"]) > 0
