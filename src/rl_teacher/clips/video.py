"""Encoding of images as MP4 and GIF, and decoding of MP4."""

import itertools
import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import av
import numpy as np
from av.error import FFmpegError
from jaxtyping import UInt8
from PIL import Image

from rl_teacher.common.errors import INVALID_CONTENT, CorruptClip

Frame = UInt8[np.ndarray, "height width 3"]
RgbImage = UInt8[np.ndarray, "_ _ 3"]
"""An image of any size, also beside others."""

GIF_FPS = 20.0

MAX_PIXELS = 1 << 23
"""Pixels of the largest frame that is decoded."""
GAP_PIXELS = 8
"""Width of the gap between images side by side."""

ENCODER = {
    "preset": "veryfast",  # half the time of "medium" for files of the same size
    "crf": "23",
    "profile": "high",
    "bf": "0",  # No B-frames: the first frame is at 0 s, and stepping back is exact.
    "g": "15",
    "x264-params": "mbtree=0",  # Macroblock trees make the bytes depend on timing.
}


def encode_mp4(frames: Iterable[Frame], fps: float) -> bytes:
    """Encode a video that every browser plays: H.264, yuv420p, index first.

    Args:
        frames: at least one [H, W, 3] frame. Odd sizes grow by one pixel, because yuv420p halves
            the resolution of colours.
        fps: frames per second.

    Returns:
        The file. Equal frames give equal bytes.
    """
    images = iter(frames)
    first = next(images, None)
    if first is None:
        raise ValueError("A video needs at least one frame; none was given.")
    odd_height, odd_width = first.shape[0] % 2, first.shape[1] % 2
    # FFmpeg moves the index to the front by reading the file again, which needs a real file.
    with tempfile.TemporaryDirectory(prefix="rl-teacher-") as folder:
        path = Path(folder) / "clip.mp4"
        # `bitexact` leaves out what varies between equal videos, such as the version of FFmpeg.
        with av.open(path, "w", options={"movflags": "+faststart", "fflags": "+bitexact"}) as file:
            # 1001 is the denominator of NTSC frame rates, such as 30000/1001.
            stream = file.add_stream("libx264", Fraction(fps).limit_denominator(1001), ENCODER)
            stream.height, stream.width = first.shape[0] + odd_height, first.shape[1] + odd_width
            stream.pix_fmt = "yuv420p"
            # One thread: training needs the other cores.
            stream.thread_count = 1
            for image in itertools.chain([first], images):
                even = np.pad(image, ((0, odd_height), (0, odd_width), (0, 0)), mode="edge")
                file.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
            file.mux(stream.encode())
        return path.read_bytes()


def decode_mp4(content: bytes) -> Iterator[Frame]:
    """Yield the frames of a video, at least one.

    Raises:
        CorruptClip: the video cannot be decoded.
    """
    size = None
    try:
        with av.open(BytesIO(content), mode="r") as video:
            # The size in the stream counts, which the container need not repeat.
            video.streams.video[0].codec_context.options = {"max_pixels": str(MAX_PIXELS)}
            for frame in video.decode(video=0):
                if size not in (None, (frame.width, frame.height)):
                    raise ValueError("its frames have several sizes")
                size = frame.width, frame.height
                yield frame.to_ndarray(format="rgb24")
        if size is None:
            raise ValueError("it has no frames")
    except (FFmpegError, *INVALID_CONTENT) as error:
        raise CorruptClip(f"The video of the clip cannot be decoded: {error}") from error


def encode_gif(frames: Iterable[Frame], fps: float) -> bytes:
    """Encode an endless GIF with at most 20 frames per second.

    Args:
        frames: at least one [H, W, 3] frame.
        fps: frames per second; every k-th frame is kept where that is too many.
    """
    stride = max(1, math.ceil(fps / GIF_FPS))
    quantised = (
        Image.fromarray(each).quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        for each in itertools.islice(frames, 0, None, stride)
    )
    content = BytesIO()
    # A GIF counts in hundredths of a second.
    duration_ms = 10 * round(100 * stride / fps)
    next(quantised).save(
        content,
        "GIF",
        save_all=True,
        append_images=quantised,
        duration=duration_ms,
        loop=0,
    )
    return content.getvalue()


def side_by_side(images: Sequence[RgbImage], background: tuple[int, int, int]) -> RgbImage:
    """Join images horizontally, with gaps between them and padding below the lower ones."""
    height = max(len(image) for image in images)
    parts: list[np.ndarray] = []
    for image in images:
        if parts:
            parts.append(np.full((height, GAP_PIXELS, 3), background, np.uint8))
        below = np.full((height - len(image), image.shape[1], 3), background, np.uint8)
        parts.append(np.concatenate([image, below]))
    return np.concatenate(parts, axis=1)
