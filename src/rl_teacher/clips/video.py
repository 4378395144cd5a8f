"""Video encoding of clips without body poses."""

import tempfile
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from jaxtyping import UInt8

Frame = UInt8[np.ndarray, "height width 3"]
EvenFrame = UInt8[np.ndarray, "even_height even_width 3"]

ENCODER = {
    "preset": "medium",
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
    images = (_pad_to_even(frame) for frame in frames)
    # FFmpeg moves the index to the front by reading the file again, which needs a real file.
    with tempfile.TemporaryDirectory(prefix="rl-teacher-") as folder:
        path = Path(folder) / "clip.mp4"
        _write(path, images, fps)
        return path.read_bytes()


def _write(path: Path, images: Iterator[EvenFrame], fps: float) -> None:
    first = next(images, None)
    if first is None:
        raise ValueError("A video needs at least one frame; none was given.")
    with av.open(path, "w", options={"movflags": "+faststart", "fflags": "+bitexact"}) as file:
        stream = file.add_stream("libx264", Fraction(fps).limit_denominator(1001), ENCODER)
        stream.height, stream.width = first.shape[:2]
        stream.pix_fmt = "yuv420p"
        # One thread: training needs the other cores.
        stream.thread_count = 1
        for image in _prepend(first, images):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        file.mux(stream.encode())


def _prepend(first: EvenFrame, others: Iterator[EvenFrame]) -> Iterator[EvenFrame]:
    yield first
    yield from others


def _pad_to_even(frame: Frame) -> EvenFrame:
    height, width = frame.shape[:2]
    if height % 2 == width % 2 == 0:
        return np.ascontiguousarray(frame)
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
