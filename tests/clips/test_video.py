"""Tests of videos, which are decoded as in a browser."""

import io

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence

from rl_teacher.clips.video import (
    GAP_PIXELS,
    decode_mp4,
    encode_gif,
    encode_mp4,
    side_by_side,
)
from rl_teacher.common.errors import CorruptClip


def moving_bar(num_frames, height, width):
    frames = np.full((num_frames, height, width, 3), 30, np.uint8)
    for place, frame in enumerate(frames):
        frame[:, 4 * place : 4 * place + 8] = (250, 120, 20)
    return frames


def decoded(content):
    with av.open(io.BytesIO(content), "r") as file:
        stream = file.streams.video[0]
        pictures = [frame.to_ndarray(format="rgb24") for frame in file.decode(stream)]
        return stream.codec_context, float(stream.average_rate or 0), pictures


@pytest.mark.parametrize(("height", "width", "fps"), [(64, 96, 25.0), (400, 600, 50 / 3)])
def test_video_keeps_frames_rate_and_size(height, width, fps):
    frames = moving_bar(12, height, width)
    _, rate, pictures = decoded(encode_mp4(frames, fps))
    assert len(pictures) == 12
    assert rate == pytest.approx(fps, rel=1e-4)
    for picture, frame in zip(pictures, frames, strict=True):
        assert picture.shape == frame.shape
        assert np.abs(picture.astype(int) - frame).mean() < 6


def test_video_has_browser_format():
    content = encode_mp4(moving_bar(12, 64, 96), 25.0)
    context, _, _ = decoded(content)
    assert (context.name, context.pix_fmt, context.profile) == ("h264", "yuv420p", "High")
    assert 0 < content.index(b"moov") < content.index(b"mdat")


def test_odd_sizes_grow_by_one_pixel():
    _, _, pictures = decoded(encode_mp4(moving_bar(3, 33, 47), 10.0))
    assert pictures[0].shape == (34, 48, 3)


def test_empty_video_is_refused():
    with pytest.raises(ValueError, match="at least one frame"):
        encode_mp4([], 10.0)


def test_equal_frames_give_equal_bytes():
    frames = moving_bar(60, 400, 600)
    assert len({encode_mp4(frames, 30.0) for _ in range(6)}) == 1


def test_gif_has_at_most_twenty_frames_per_second():
    frames = [np.full((8, 8, 3), 8 * number, np.uint8) for number in range(30)]
    with Image.open(io.BytesIO(encode_gif(frames, 30.0))) as gif:
        assert sum(1 for _ in ImageSequence.Iterator(gif)) == 15
        assert gif.info["duration"] == 70


def test_images_side_by_side_have_equal_height():
    black, white = np.zeros((4, 6, 3), np.uint8), np.full((2, 3, 3), 255, np.uint8)
    joined = side_by_side([black, white], (40, 40, 40))
    assert joined.shape == (4, 6 + GAP_PIXELS + 3, 3)
    assert joined[:2, -3:].min() == 255
    assert (joined[2:, -3:] == 40).all()
    assert (joined[:, 6:-3] == 40).all()


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (b"vide", b"soun"),  # no video in it
        (b"stsz", b"xxxx"),  # no sizes of frames
    ],
)
def test_altered_video_is_refused(was, becomes):
    content = encode_mp4(moving_bar(3, 32, 32), 10.0)
    assert was in content
    with pytest.raises(CorruptClip, match="cannot be decoded"):
        list(decode_mp4(content.replace(was, becomes)))
