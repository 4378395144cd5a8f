"""Environments that show pictures: what an agent and a predictor are given of them.

H, W: pixels of height and width. C: channels.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float32, Int64, Shaped, UInt8

from rl_teacher.common.errors import BadConfig, BadObservation
from rl_teacher.config.preprocessing import FrameSettings

MOST_CHANNELS = 16
"""That a picture may have behind its pixels; where there are more, they are in front."""
COLOURS = (0.299, 0.587, 0.114)
"""What red, green and blue add to grey. Source: ITU-R BT.601."""

Picture = UInt8[np.ndarray, "channel height width"]


def is_image_space(space: gymnasium.Space) -> bool:
    """Whether observations are pictures: bytes, or floats from 0 to 1, with two axes or three."""
    if not isinstance(space, Box) or len(space.shape) not in (2, 3):
        return False
    if np.issubdtype(space.dtype, np.floating):
        return bool((space.low >= 0).all() and (space.high <= 1).all())
    return space.dtype == np.uint8


@dataclass(frozen=True)
class Layout:
    """Where height, width and channels of a picture are.

    Attributes:
        height: H.
        width: W.
        channels: C; 1 where there is no axis for them.
        axis: of the channels; None where there is none.
    """

    height: int
    width: int
    channels: int
    axis: int | None

    @staticmethod
    def of(shape: tuple[int, ...]) -> "Layout":
        """That of [H, W], [H, W, C] or [C, H, W]."""
        if len(shape) == 2:
            return Layout(*shape, channels=1, axis=None)
        first, middle, last = shape
        if last <= MOST_CHANNELS and last < min(first, middle):
            return Layout(first, middle, last, axis=2)
        return Layout(middle, last, first, axis=0)

    def channel_first(self, picture: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "c h w"]:
        """A view of a picture."""
        if self.axis is None:
            return picture[None]
        return picture if self.axis == 0 else picture.transpose(2, 0, 1)


def find_image_fault(space: Box, given: Any) -> str | None:
    """What is wrong with a picture, in words; None where it is what its space promises."""
    picture = np.asarray(given)
    is_float = np.issubdtype(space.dtype, np.floating)
    is_of_type = (
        np.issubdtype(picture.dtype, np.floating) if is_float else picture.dtype == np.uint8
    )
    if picture.shape != space.shape or not is_of_type:
        return (
            f"a picture of {picture.dtype} {picture.shape}: observation_space says {space.dtype} "
            f"{space.shape}. Size and type of pictures may not change: let all of them have one "
            "size, for example with gymnasium.wrappers.ResizeObservation."
        )
    if is_float and not (picture.min() >= 0 and picture.max() <= 1):
        return (
            f"a picture with numbers from {picture.min()} to {picture.max()}: observation_space "
            "promises 0 to 1. Mend the one or the other."
        )
    return None


# --- for a person ---


def is_viewable(space: gymnasium.Space) -> bool:
    """Whether observations are pictures that a person can look at: grey, or in colour."""
    return is_image_space(space) and Layout.of(space.shape or ()).channels in (1, 3)


class ObservationRenderer(gymnasium.Wrapper):
    """An environment that draws nothing else: a person sees what it shows, before it is shrunk."""

    _seen: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._seen, reset_info = super().reset(seed=seed, options=options)
        return self._seen, reset_info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        self._seen, *others = super().step(action)
        return self._seen, *others  # pyright: ignore[reportReturnType]

    def render(self) -> UInt8[np.ndarray, "height width 3"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What was seen last, in three channels."""
        picture = as_bytes(np.asarray(self._seen))
        seen = Layout.of(picture.shape).channel_first(picture).transpose(1, 2, 0)
        return np.array(np.broadcast_to(seen, (*seen.shape[:2], 3)))


# --- for agents and predictors ---


class Frames(gymnasium.Wrapper):
    """Pictures as observations: the latest few of them, shrunk, and grey.

    Before an episode's first picture its stack is black, as in Atari's own environments: so the
    beginning of an episode is not mistaken for standing still.
    """

    def __init__(self, env: gymnasium.Env, settings: FrameSettings) -> None:
        """Wrap an environment.

        Args:
            env: whose observations are pictures, see `is_image_space`.
            settings: what becomes of them.

        Raises:
            BadConfig: a number of pictures, or a size, below 0.
        """
        super().__init__(env)
        if settings.stacked < 0 or settings.size < 0:
            raise BadConfig(
                f"{settings.stacked} stacked frames of size {settings.size} were asked for; both "
                "must be at least 0 (-f, --frame-size)."
            )
        self._layout = Layout.of(env.observation_space.shape or ())
        self._is_grey = settings.grey and self._layout.channels == 3
        self._channels = 1 if self._is_grey else self._layout.channels
        self._shrinking = AreaResize.of(self._layout, settings.size)
        height, width = self._shrinking.height, self._shrinking.width
        stacked = max(settings.stacked, 1)
        self._before = np.zeros((stacked * self._channels, height, width), np.uint8)
        self._stack = self._before
        self.observation_space = Box(0, 255, self._before.shape, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8[np.ndarray, "channel height width"], dict[str, Any]]:
        """Begin an episode, with its first picture alone."""
        shown, reset_info = self.env.reset(seed=seed, options=options)
        self._stack = self._before
        return self._with(shown), reset_info

    def step(
        self, action: Any
    ) -> tuple[UInt8[np.ndarray, "channel height width"], Any, bool, bool, dict[str, Any]]:
        """Act, and see what that led to behind what was seen before."""
        shown, reward, terminated, truncated, step_info = self.env.step(action)
        return self._with(shown), reward, terminated, truncated, step_info

    def _with(self, shown: Any) -> Picture:
        """The stack with another picture; an array of its own, which nobody changes later."""
        self._stack = np.concatenate([self._stack[self._channels :], self._seen(shown)])
        return self._stack

    def _seen(self, shown: Any) -> Picture:
        """One picture, as it is seen.

        Raises:
            BadObservation: it has another size, or type, than the environment says.
        """
        space = self.env.observation_space
        assert isinstance(space, Box)  # noqa: S101 - `is_image_space`
        fault = find_image_fault(space, shown)
        if fault is not None:
            name = type(self.unwrapped).__name__ if self.spec is None else self.spec.id
            raise BadObservation(f"{name} showed {fault}")
        picture = self._layout.channel_first(as_bytes(np.asarray(shown)))
        if self._is_grey:
            return as_bytes_again(self._shrinking(grey(picture))[None])
        return as_bytes_again(self._shrinking(picture))


def preprocess_images(env: gymnasium.Env, settings: FrameSettings | None) -> gymnasium.Env:
    """An environment as agents see it: pictures become frames, everything else stays.

    Args:
        env: any.
        settings: what becomes of pictures; None: they stay too.
    """
    if settings is None or not is_image_space(env.observation_space):
        return env
    return Frames(env, settings)


def in_words(env: gymnasium.Env, settings: FrameSettings) -> str:
    """What is seen of an environment that shows pictures, in one line."""
    return describe_preprocessing(env.observation_space.shape or (), settings)


def describe_preprocessing(shape: tuple[int, ...], settings: FrameSettings) -> str:
    """What is seen of pictures of a shape."""
    shown = Layout.of(shape)
    seen = AreaResize.of(shown, settings.size)
    is_grey = shown.channels == 1 or (settings.grey and shown.channels == 3)
    colours = "grey" if is_grey else f"{shown.channels} channels"
    together = f"{max(settings.stacked, 1)} together" if settings.stacked > 1 else "one at a time"
    return (
        f"pictures of {shown.height} x {shown.width} pixels, {shown.channels} channel"
        f"{'' if shown.channels == 1 else 's'}; "
        f"seen are {seen.height} x {seen.width}, {colours}, {together}"
    )


# --- arithmetic ---


def as_bytes(picture: Shaped[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Floats from 0 to 1 as bytes."""
    if picture.dtype == np.uint8:
        return picture
    return as_bytes_again(picture * np.float32(255))


def as_bytes_again(picture: Shaped[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Numbers from 0 to 255, rounded."""
    if picture.dtype == np.uint8:
        return picture
    return (picture + np.float32(0.5)).astype(np.uint8)


def grey(picture: UInt8[np.ndarray, "3 h w"]) -> Float32[np.ndarray, "h w"]:
    """The brightness of a picture in colour.

    Note: one operation after the other, and no product of matrices: a library may take that apart
    in another way in the next process, and a film is compared with what was seen to the last byte.
    """
    red, green, blue = (np.float32(each) for each in COLOURS)
    brightness = np.multiply(picture[0], red)
    part = np.multiply(picture[1], green)
    brightness += part
    np.multiply(picture[2], blue, out=part)
    brightness += part
    return brightness


@dataclass(frozen=True)
class AreaWeights:
    """How n pixels in a row become m: each of these is the mean of what it covers, by area.

    Attributes:
        places: [k, m] which pixels are added.
        weights: [k, m] how much of each; they sum to 1.
    """

    places: Int64[np.ndarray, "k m"]
    weights: Float32[np.ndarray, "k m"]

    @staticmethod
    def of(n: int, m: int) -> "AreaWeights":
        """From n pixels to m, which are no more."""
        # In units of 1/m pixel: the j-th new pixel covers j n to (j + 1) n, the i-th old one i m
        # to (i + 1) m.
        begin = np.arange(m) * n
        first = begin // m
        most = int((-(-(begin + n) // m) - first).max())
        places = first + np.arange(most)[:, None]
        covered = np.minimum(begin + n, (places + 1) * m) - np.maximum(begin, places * m)
        weights = (np.maximum(covered, 0) / n).astype(np.float32)
        return AreaWeights(np.minimum(places, n - 1), weights)


@dataclass(frozen=True)
class AreaResize:
    """Brings pictures to one size.

    Attributes:
        height: of what comes out.
        width: likewise.
        rows: None where the height stays.
        columns: None where the width stays.
    """

    height: int
    width: int
    rows: AreaWeights | None
    columns: AreaWeights | None

    @staticmethod
    def of(layout: Layout, size: int) -> "AreaResize":
        """Height and width become `size` where they are larger; 0: they stay."""
        height, width = (
            min(each, size) if size else each for each in (layout.height, layout.width)
        )
        return AreaResize(
            height,
            width,
            None if height == layout.height else AreaWeights.of(layout.height, height),
            None if width == layout.width else AreaWeights.of(layout.width, width),
        )

    def __call__(self, picture: Shaped[np.ndarray, "*channel h w"]) -> Shaped[np.ndarray, "..."]:
        """[..., height, width] float32; what it was given where nothing is to be shrunk."""
        if self.rows is not None:
            weights = self.rows.weights[..., None]
            picture = added(picture, self.rows.places, weights, axis=-2)
        if self.columns is not None:
            picture = added(picture, self.columns.places, self.columns.weights, axis=-1)
        return picture


def added(
    picture: Shaped[np.ndarray, "*channel h w"],
    places: Int64[np.ndarray, "k m"],
    weights: Float32[np.ndarray, "k m *one"],
    axis: int,
) -> Float32[np.ndarray, "..."]:
    """The weighted sum of some of a picture's rows, or columns."""
    total = np.take(picture, places[0], axis) * weights[0]
    for place, weight in zip(places[1:], weights[1:], strict=True):
        total += np.take(picture, place, axis) * weight
    return total
