from contextlib import closing

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence

from rl_teacher.cli import main
from rl_teacher.clips.offscreen import working_pool
from rl_teacher.clips.renderer import POSES_SIZE, SegmentRenderer
from rl_teacher.clips.video import GAP_PIXELS
from rl_teacher.common.errors import BadInput
from rl_teacher.play import film
from rl_teacher.play.actors import load_actor
from rl_teacher.play.film import frames_per_image, limit_width
from rl_teacher.play.reward_overlay import (
    EDGE,
    HEAD,
    HEIGHT,
    TRACK,
    Curve,
    RewardOverlay,
)


def frames_of(path):
    with av.open(str(path), mode="r") as file:
        return [each.to_ndarray(format="rgb24") for each in file.decode(video=0)]


def count_frames(gif):
    return sum(1 for _ in ImageSequence.Iterator(gif))


@pytest.fixture
def _opengl():
    try:
        working_pool().shutdown()
    except BadInput as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("num_steps", "env_fps", "expected"),
    [
        (50, 50.0, 1.0),
        (200, 50.0, 1.0),
        # 10 images of a fifth of a second become 25 frames, those of a whole second.
        (10, 50.0, 2.5),
        (5, 20.0, 4.0),
        # Not slower than a sixteenth.
        (1, 50.0, 8.0),
    ],
)
def test_images_of_episode_under_a_second_are_repeated(num_steps, env_fps, expected):
    assert frames_per_image(num_steps, env_fps) == pytest.approx(expected)


class TestVideo:
    def test_video_of_images_shows_all_episodes_with_rewards(self, home, tmp_path, capsys):
        path = tmp_path / "cart.mp4"
        assert main(["play", "cart", "--video", str(path), "--episodes", "2"]) == 0
        printed = capsys.readouterr().out
        assert "episode 2:" in printed
        assert str(path) in printed
        frames = frames_of(path)
        with closing((actor := load_actor("cart", "latest")).venv):
            episodes = [film.record_episode(actor, seed, explore=False) for seed in (1, 2)]
        lengths = [len(each.segment) for each in episodes]
        # 50 steps per second give 25 frames, and so do episodes of fewer steps, in slow motion. The
        # last frame of each episode lasts half a second.
        assert len(frames) == sum(max((each + 1) // 2, 25) + 12 for each in lengths)
        # CartPole renders 600 x 400; an agent of the true reward has one reward strip.
        assert frames[0].shape == (400 + HEIGHT, 600, 3)
        assert frames[0][200:300, 200:400].min() < 50
        assert np.abs(frames[0][:400].astype(int) - frames[3][:400]).max() > 50

    def test_comparison_is_side_by_side_and_gif_loops(self, home, tmp_path, capsys):
        path = tmp_path / "both.GIF"
        arguments = ["play", "cart", "--compare", "cart", "--compare-step", "0"]
        assert main([*arguments, "--video", str(path), "--episodes", "1", "--explore"]) == 0
        with Image.open(path) as picture:
            assert picture.format == "GIF"
            assert picture.size == (600 + GAP_PIXELS + 600, 400 + HEIGHT)
            assert picture.info["loop"] == 0
            assert count_frames(picture) > 1
        capsys.readouterr()

    @pytest.mark.usefixtures("_opengl")
    def test_video_of_bodies_needs_no_display(self, home, tmp_path, monkeypatch, capsys):
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            monkeypatch.delenv(name, raising=False)
        path = tmp_path / "reacher.mp4"
        assert main(["play", "synth", "--video", str(path), "--episodes", "1"]) == 0
        frames = frames_of(path)
        assert frames[0].shape == (POSES_SIZE[1] + 2 * HEIGHT, POSES_SIZE[0], 3)
        assert len(frames) == 20 + 5
        moved = np.abs(frames[0][: POSES_SIZE[1]].astype(int) - frames[19][: POSES_SIZE[1]])
        assert moved.max() > 60
        capsys.readouterr()


class TestPlace:
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("film.avi", "ends with .mp4 or .gif"),
            ("film", "ends with .mp4 or .gif"),
            ("nowhere/film.mp4", "there is no folder"),
        ],
    )
    def test_impossible_video_path_is_refused_before_playing(
        self, home, tmp_path, capsys, name, says
    ):
        assert main(["play", "cart", "--video", str(tmp_path / name)]) == 2
        printed = capsys.readouterr()
        assert says in printed.err
        assert printed.out == "Loading the agent of cart...\n"

    def test_failed_video_keeps_earlier_file(self, home, tmp_path, capsys, monkeypatch):
        path = tmp_path / "film.mp4"
        path.write_bytes(b"earlier")

        def break_off(*_):
            raise BadInput("in the middle")
            yield

        monkeypatch.setattr(SegmentRenderer, "images", break_off)
        assert main(["play", "cart", "--video", str(path)]) == 2
        assert path.read_bytes() == b"earlier"
        assert [each.name for each in tmp_path.iterdir() if "film" in each.name] == ["film.mp4"]
        capsys.readouterr()


class TestImages:
    @pytest.mark.parametrize(
        ("size", "expected"),
        [((210, 160), (420, 320)), ((1000, 2000), (320, 640)), ((400, 600),) * 2],
    )
    def test_images_are_resized_into_width_limits(self, size, expected):
        assert limit_width(np.zeros((*size, 3), np.uint8)).shape[:2] == expected


class TestRewardOverlay:
    def strip(self, *values, **more):
        return RewardOverlay(Curve("reward", np.array(values, np.float64), 3.0, **more), 200)

    def test_marker_follows_frame(self):
        strip = self.strip(0, 1, 2, 3, 4)
        for frame in range(5):
            line = strip.at(frame)[HEAD + 1].astype(int)
            before = strip.at((frame + 2) % 5)[HEAD + 1].astype(int)
            changed = np.flatnonzero(np.abs(line - before).max(-1) > 40)
            assert EDGE + round(180 * frame / 4) in changed

    def test_axis_always_includes_zero(self):
        strip = self.strip(1, 1)
        assert strip._place(0, 0.0)[1] == HEAD + TRACK
        assert strip._place(0, 1.0)[1] == HEAD
        assert self.strip(-2, 2)._place(0, 0.0)[1] == HEAD + TRACK / 2

    @pytest.mark.parametrize("values", [(0.0,), (0.0, 0.0), (5.0, 5.0)])
    def test_flat_and_single_frame_curves_are_drawn(self, values):
        assert self.strip(*values).at(0).shape == (HEIGHT, 200, 3)
