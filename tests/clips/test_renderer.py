"""Tests of videos that are written during a run."""

import io
from contextlib import closing

import av
import numpy as np
import pytest

from rl_teacher.agents.collector import Collector
from rl_teacher.clips.recorder import Recorder
from rl_teacher.clips.renderer import POSES_SIZE, ClipFile, SegmentRenderer, check_videos
from rl_teacher.clips.video import encode_mp4
from rl_teacher.common.errors import BadInput
from rl_teacher.envs.registry import get_env_info, make_vector


def poses_clip(env_id, num_steps):
    """Return the clip of a random policy's first steps."""
    venv = make_vector(env_id, 1)
    collector = Collector(venv, seed=0)
    recorder = Recorder(env_id, segment_steps=num_steps, capacity=num_steps)
    recorder.observe(collector.collect(collector.random_actions, num_steps))
    [segment] = recorder.segments(recorder.cut(1, np.random.default_rng(0)))
    venv.close()
    return SegmentRenderer(get_env_info(env_id)).render(segment, None)


def video_clip(num_frames, fps):
    """Return a video that becomes brighter with each frame."""
    images = (np.full((32, 48, 3), 2 * n, np.uint8) for n in range(num_frames))
    return ClipFile("video", encode_mp4(images, fps), num_frames, fps)


def to_mp4(env_id, clip):
    with closing(SegmentRenderer(get_env_info(env_id))) as renderer:
        return renderer.to_mp4(clip)


def decode(content):
    """Return frame rate and frames of a video."""
    with av.open(io.BytesIO(content), mode="r") as file:
        images = [each.to_ndarray(format="rgb24") for each in file.decode(video=0)]
        return file.streams.video[0].average_rate, np.stack(images)


def test_poses_become_video_of_moving_bodies():
    clip = poses_clip("ShortHopper-v1", 80)
    fps, images = decode(to_mp4("ShortHopper-v1", clip))
    width, height = POSES_SIZE
    assert (fps, images.shape) == (clip.fps, (clip.num_frames, height, width, 3))
    # The body is the only orange thing, and moves.
    orange = images[..., 0] > images[..., 2].astype(int) + 50
    assert (orange.sum((1, 2)) > 500).all()
    assert (orange[0] & ~orange[-1]).sum() > 200


def test_video_is_kept_as_it_is():
    clip = video_clip(30, 20.0)
    assert to_mp4("MovingDot-v0", clip) == clip.content


def test_video_of_less_than_a_second_is_in_slow_motion():
    fps, images = decode(to_mp4("CartPole-v1", video_clip(10, 50.0)))
    # 10 frames in the second that the page takes.
    assert (fps, len(images)) == (10, 10)
    assert images.mean((1, 2, 3)) == pytest.approx(2 * np.arange(10), abs=3)


def test_machine_without_opengl_is_refused(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "none")
    with pytest.raises(BadInput, match="OpenGL"):
        check_videos("ShortHopper-v1")
    check_videos("MovingDot-v0")
