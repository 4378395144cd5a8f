"""A curve below a film, with a mark that runs along with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFont

HEAD, TRACK, EDGE = 18, 42, 10
HEIGHT = HEAD + TRACK + EDGE
FINER = 4
"""Times that curves are drawn larger, and then made smaller, so that they are smooth."""
TEXT_SIZE = 12

# The page's colours in the dark.
CARD = (26, 28, 32)
LINE = (43, 46, 52)
TEXT = (236, 238, 241)
MUTED = (162, 167, 178)
ACCENT = (147, 167, 255)
AREA = (35, 40, 58)
TRUTH = (242, 213, 146)
TRUTH_AREA = (47, 45, 42)

Picture = UInt8[np.ndarray, "_ _ 3"]


@dataclass(frozen=True)
class Curve:
    """Rewards of an episode.

    Attributes:
        title: what they are.
        values: [F] of each frame.
        total: over all steps.
        is_truth: whether they are the environment's own.
        limits: lowest and highest value of the strip, where curves are to be compared.
    """

    title: str
    values: Float[np.ndarray, " frame"]
    total: float
    is_truth: bool = False
    limits: tuple[float, float] | None = None

    @property
    def low_and_high(self) -> tuple[float, float]:
        """What the strip reaches from and to: 0 is always in it."""
        low, high = self.limits or (float(self.values.min()), float(self.values.max()))
        return min(low, 0.0), max(high, 0.0)


class RewardOverlay:
    """A curve, drawn once; `at` adds the mark."""

    def __init__(self, curve: Curve, width: int) -> None:
        self._curve = curve
        self._width = width
        self._picture = self._drawn()

    def at(self, frame: int) -> Picture:
        """The strip while a frame is shown; after the last one the mark stays."""
        values = self._curve.values
        frame = min(frame, len(values) - 1)
        picture = self._picture.copy()
        pen = ImageDraw.Draw(picture)
        x, y = self._place(frame, float(values[frame]))
        pen.line([(x, HEAD), (x, HEAD + TRACK)], fill=MUTED)
        picture.paste(self._dot, (round(x) - 5, round(y) - 5), self._dot)
        pen.text(
            (self._width - EDGE, 2),
            figure(float(values[frame])),
            TEXT,
            font(TEXT_SIZE),
            anchor="ra",
        )
        return np.asarray(picture)

    def _place(self, frame: int, value: float) -> tuple[float, float]:
        low, high = self._curve.low_and_high
        room = self._width - 2 * EDGE
        x = EDGE + room * frame / max(len(self._curve.values) - 1, 1)
        return x, HEAD + TRACK * (1 - (value - low) / (high - low or 1.0))

    def _drawn(self) -> Image.Image:
        size = FINER * self._width, FINER * HEIGHT
        large = Image.new("RGB", size, CARD)
        pen = ImageDraw.Draw(large)
        points = [self._place(i, float(v)) for i, v in enumerate(self._curve.values)]
        points = [(FINER * x, FINER * y) for x, y in points]
        _, zero = self._place(0, 0.0)
        ends = [(points[-1][0], FINER * zero), (points[0][0], FINER * zero)]
        if len(points) > 1:
            pen.polygon([*points, *ends], fill=TRUTH_AREA if self._curve.is_truth else AREA)
        pen.line(
            [(FINER * EDGE, FINER * zero), (size[0] - FINER * EDGE, FINER * zero)], LINE, FINER
        )
        pen.line(points, self._colour, 6, joint="curve")
        picture = large.resize((self._width, HEIGHT), Image.Resampling.LANCZOS)
        said = f"{self._curve.title}   total {figure(self._curve.total)}"
        ImageDraw.Draw(picture).text((EDGE, 2), said, MUTED, font(TEXT_SIZE))
        return picture

    @property
    def _colour(self) -> tuple[int, int, int]:
        return TRUTH if self._curve.is_truth else ACCENT

    @property
    def _dot(self) -> Image.Image:
        large = Image.new("RGBA", (11 * FINER, 11 * FINER))
        pen = ImageDraw.Draw(large)
        pen.ellipse([FINER, FINER, 10 * FINER, 10 * FINER], (*CARD, 255))
        pen.ellipse([3 * FINER, 3 * FINER, 8 * FINER, 8 * FINER], (*self._colour, 255))
        return large.resize((11, 11), Image.Resampling.LANCZOS)


def with_title(frame: Picture, said: Sequence[str]) -> Image.Image:
    """A picture with a line or two of text in its top left corner."""
    picture = Image.fromarray(frame)
    pen = ImageDraw.Draw(picture, "RGBA")
    y = 8
    for text in said:
        shown = fitting(text, picture.width - 4 * EDGE)
        left, top, right, bottom = pen.textbbox((EDGE + 8, y + 3), shown, font(TEXT_SIZE))
        pen.rounded_rectangle([left - 8, top - 3, right + 8, bottom + 4], 9, (*CARD, 190))
        pen.text((EDGE + 8, y + 3), shown, TEXT, font(TEXT_SIZE))
        y += TEXT_SIZE + 12
    return picture


def fitting(text: str, width: int) -> str:
    """A text that is cut where it would be wider than this."""
    if font(TEXT_SIZE).getlength(text) <= width:
        return text
    while text and font(TEXT_SIZE).getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…"


@cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """The font that Matplotlib brings along: it knows more than Latin letters."""
    import matplotlib  # noqa: PLC0415 - here only

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", size)


def figure(value: float) -> str:
    """A reward: fewer digits the larger it is, as on the page."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
