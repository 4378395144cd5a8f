"""The reward overlay: a curve below the video with a moving marker."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from rl_teacher.clips.video import RgbImage

HEAD, TRACK, EDGE = 18, 42, 10
HEIGHT = HEAD + TRACK + EDGE
SUPERSAMPLING = 4
"""Factor of supersampling for smooth curves."""
TEXT_SIZE = 12

# The page's dark theme.
CARD = (26, 28, 32)
LINE = (43, 46, 52)
TEXT = (236, 238, 241)
MUTED = (162, 167, 178)
ACCENT = (147, 167, 255)
AREA = (35, 40, 58)
TRUTH = (242, 213, 146)
TRUTH_AREA = (47, 45, 42)


@dataclass(frozen=True)
class Curve:
    """The rewards of an episode.

    Attributes:
        title: caption.
        values: [F] reward of each frame.
        total: sum over all steps.
        is_truth: whether they are the environment's own rewards.
        limits: lowest and highest value, if curves share a scale.
    """

    title: str
    values: Float[np.ndarray, " frame"]
    total: float
    is_truth: bool = False
    limits: tuple[float, float] | None = None

    @property
    def low_and_high(self) -> tuple[float, float]:
        """The range of the axis, which always includes 0."""
        low, high = self.limits or (float(self.values.min()), float(self.values.max()))
        return min(low, 0.0), max(high, 0.0)


class RewardOverlay:
    """A curve that is drawn once; `at` adds the marker."""

    def __init__(self, curve: Curve, width: int) -> None:
        self._curve = curve
        self._width = width
        size = SUPERSAMPLING * width, SUPERSAMPLING * HEIGHT
        large = Image.new("RGB", size, CARD)
        draw = ImageDraw.Draw(large)
        points = [self._place(i, float(v)) for i, v in enumerate(curve.values)]
        points = [(SUPERSAMPLING * x, SUPERSAMPLING * y) for x, y in points]
        zero = SUPERSAMPLING * self._place(0, 0.0)[1]
        if len(points) > 1:
            outline = [*points, (points[-1][0], zero), (points[0][0], zero)]
            draw.polygon(outline, fill=TRUTH_AREA if curve.is_truth else AREA)
        margin = SUPERSAMPLING * EDGE
        draw.line([(margin, zero), (size[0] - margin, zero)], LINE, SUPERSAMPLING)
        draw.line(points, self._colour, 6, joint="curve")
        self._image = large.resize((width, HEIGHT), Image.Resampling.LANCZOS)
        caption = f"{curve.title}   total {format_reward(curve.total)}"
        ImageDraw.Draw(self._image).text((EDGE, 2), caption, MUTED, font())

    def at(self, frame: int) -> RgbImage:
        """Return the overlay of a frame; after the last frame the marker stays."""
        values = self._curve.values
        frame = min(frame, len(values) - 1)
        image = self._image.copy()
        draw = ImageDraw.Draw(image)
        x, y = self._place(frame, float(values[frame]))
        draw.line([(x, HEAD), (x, HEAD + TRACK)], fill=MUTED)
        draw.circle((x, y), 4, self._colour, CARD)
        draw.text(
            (self._width - EDGE, 2),
            format_reward(float(values[frame])),
            TEXT,
            font(),
            anchor="ra",
        )
        return np.asarray(image)

    def _place(self, frame: int, value: float) -> tuple[float, float]:
        low, high = self._curve.low_and_high
        plot_width = self._width - 2 * EDGE
        # One frame only, or rewards that are all 0, leave nothing to divide by.
        x = EDGE + plot_width * frame / max(len(self._curve.values) - 1, 1)
        return x, HEAD + TRACK * (1 - (value - low) / (high - low or 1.0))

    @property
    def _colour(self) -> tuple[int, int, int]:
        return TRUTH if self._curve.is_truth else ACCENT


def with_title(frame: RgbImage, lines: Sequence[str]) -> Image.Image:
    """Add lines of text to the top left corner of an image."""
    image = Image.fromarray(frame)
    draw = ImageDraw.Draw(image, "RGBA")
    y = 8
    for text in lines:
        left, top, right, bottom = draw.textbbox((EDGE + 8, y + 3), text, font())
        draw.rounded_rectangle([left - 8, top - 3, right + 8, bottom + 4], 9, (*CARD, 190))
        draw.text((EDGE + 8, y + 3), text, TEXT, font())
        y += TEXT_SIZE + 12
    return image


@cache
def font() -> ImageFont.FreeTypeFont:
    """Load Matplotlib's font, which covers more than Latin letters."""
    import matplotlib  # noqa: PLC0415 - here only

    file = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
    return ImageFont.truetype(file, TEXT_SIZE)


def format_reward(value: float) -> str:
    """Format a reward with fewer digits the larger it is, as on the page."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
