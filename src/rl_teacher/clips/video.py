"""Clips as video, for environments that have no bodies to pose."""

import tempfile
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from jaxtyping import UInt8

Frame = UInt8[np.ndarray, "height width 3"]
Picture = UInt8[np.ndarray, "even_height even_width 3"]

ENCODER = {
    "preset": "medium",
    "crf": "23",
    "profile": "high",
    "bf": "0",  # The first frame is at 0 s, and stepping back is exact.
    "g": "15",
    "x264-params": "mbtree=0",  # With it, the same frames do not always give the same bytes.
}


def encode_mp4(frames: Iterable[Frame], fps: float) -> bytes:
    """A video that every browser plays: H.264, yuv420p, its index in front.

    Args:
        frames: [T, H, W, 3], or one [H, W, 3] after the other, at least one; odd sizes grow by one
            pixel, because the format halves them.
        fps: frames per second.

    Returns:
        The file; the same frames give the same bytes.
    """
    pictures = (_even(frame) for frame in frames)
    # Note: the index is moved to the front by reading the file again, which needs a real file.
    with tempfile.TemporaryDirectory(prefix="rl-teacher-") as folder:
        path = Path(folder) / "clip.mp4"
        _write(path, pictures, fps)
        return path.read_bytes()


def _write(path: Path, pictures: Iterator[Picture], fps: float) -> None:
    first = next(pictures, None)
    if first is None:
        raise ValueError("A video needs at least one frame; none was given.")
    with av.open(path, "w", options={"movflags": "+faststart", "fflags": "+bitexact"}) as file:
        stream = file.add_stream("libx264", Fraction(fps).limit_denominator(1001), ENCODER)
        stream.height, stream.width = first.shape[:2]
        stream.pix_fmt = "yuv420p"
        # Note: one thread, because training goes on beside it.
        stream.thread_count = 1
        for picture in _with_first(first, pictures):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())


def _with_first(first: Picture, others: Iterator[Picture]) -> Iterator[Picture]:
    yield first
    yield from others


def _even(frame: Frame) -> Picture:
    height, width = frame.shape[:2]
    if height % 2 == width % 2 == 0:
        return np.ascontiguousarray(frame)
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
