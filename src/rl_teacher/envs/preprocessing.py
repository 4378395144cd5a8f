"""Preprocessing of environments with image observations.

H, W: height and width in pixels. C: channels. Resizing, grey-scaling and stacking are done here and
not by a library, because a clip is checked against the observations it replays byte by byte:

* Gymnasium's `ResizeObservation` needs OpenCV, a dependency of 60 MB; its `GrayscaleObservation`
  and `FrameStackObservation` expect channels last and copy each stack once more.
* Pillow's BOX filter counts a pixel whole or not at all. It averages by area for integer ratios
  only: from 210x160 to 84x84 pixels 45 % of the bytes differ from the area average, and a float
  image takes 2.6 times as long as here.
"""

import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.spaces.utils import flatdim, flatten
from jaxtyping import Float32, Int64, Shaped, UInt8

from rl_teacher.common.errors import BadConfig, BadObservation
from rl_teacher.common.text import counted
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.rollout import LARGEST, find_excess
from rl_teacher.nn.encoders import MIN_PIXELS, ImageBox
from rl_teacher.nn.image_layout import ImageLayout, trailing_floats

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a grey image. Source: ITU-R BT.601."""

MAX_CHOICES = 100_000
"""Largest number of choices that is encoded as a one-hot vector."""

Image = UInt8[np.ndarray, "..."]
"""[C, H, W], or a row with a vector."""


def is_image_space(space: gymnasium.Space) -> bool:
    """Return whether observations are images: uint8, or floats in [0, 1], with 2 or 3 axes."""
    if isinstance(space, ImageBox):
        return True
    if not isinstance(space, Box) or len(space.shape) not in (2, 3):
        return False
    if np.issubdtype(space.dtype, np.floating):
        return bool((space.low >= 0).all() and (space.high <= 1).all())
    return space.dtype == np.uint8


def is_large_image_space(space: gymnasium.Space) -> bool:
    """Return whether observations are images that convolutions apply to; see `MIN_PIXELS`."""
    return is_image_space(space) and min(layout_of(space).size) >= MIN_PIXELS


def layout_of(space: gymnasium.Space) -> ImageLayout:
    """Return the declared layout of an image space, or guess it."""
    return space.layout if isinstance(space, ImageBox) else ImageLayout.guess(space.shape or ())


Keys = tuple[Any, ...]
"""Keys that select a part of a Dict or Tuple, one after the other."""


def space_parts(space: gymnasium.Space, keys: Keys = ()) -> Iterator[tuple[Keys, gymnasium.Space]]:
    """Yield the parts of a Dict or Tuple, in the order in which Gymnasium flattens them."""
    if not isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        yield keys, space
        return
    is_dict = isinstance(space, gymnasium.spaces.Dict)
    for key, part in space.spaces.items() if is_dict else enumerate(space.spaces):
        yield from space_parts(part, (*keys, key))


def as_index(keys: Keys) -> str:
    """Return how code selects a part, such as `['goal'][0]`."""
    return "".join(f"[{key!r}]" for key in keys)


def find_space_fault(space: gymnasium.Space) -> str | None:
    """Describe why a space cannot become one image, one vector, or both; None where it can."""
    parts = [(as_index(keys), part) for keys, part in space_parts(space)]
    usable = [index for index, part in parts if find_part_fault(part) is None]
    for index, part in parts:
        if (fault := find_part_fault(part)) is not None:
            example = f" (select others, such as observation{usable[0]})" if usable else ""
            return f"{f'its part {index}' if index else 'it'} {fault}{example}"
    images = [index for index, part in parts if is_large_image_space(part)]
    if len(images) > 1:
        return (
            f"its parts {' and '.join(images)} are images, of which one can be used (leave out "
            f"others, or all parts but one, such as observation{images[0]})"
        )
    return None


def find_part_fault(part: gymnasium.Space) -> str | None:
    """Describe why a space without parts cannot become one vector; None where it can."""
    try:
        is_flattenable = part.is_np_flattenable
    except NotImplementedError:  # a subclass of Space may not say
        is_flattenable = False
    num_choices = int(np.sum(getattr(part, "nvec", getattr(part, "n", 0))))
    if not is_flattenable:
        return "cannot be flattened to vectors of one size"
    if 0 in (part.shape or ()):
        return "has no numbers"
    is_too_long = num_choices > MAX_CHOICES
    return f"would become one-hot vectors of {num_choices:,} numbers" if is_too_long else None


class ImageRows:
    """A function that turns observations with one image into those of an `ImageBox`.

    Attributes:
        space: space of the results: an image, or rows with the other parts, flattened, as vectors.
    """

    def __init__(self, space: gymnasium.Space) -> None:
        """Create the function for a space with one image (`has_image`) and without faults."""
        self._others = dict(space_parts(space))
        self._keys = next(k for k, part in self._others.items() if is_large_image_space(part))
        self._image = self._others.pop(self._keys)
        size = sum(map(flatdim, self._others.values()))
        self.space = ImageBox(replace(layout_of(self._image), vector_size=size))

    def __call__(self, observation: Any) -> UInt8[np.ndarray, "..."]:
        """Convert one observation.

        Raises:
            BadObservation: the image has another size or type than its space, or a number is not
                finite or too large.
        """

        def part(keys: Keys) -> Any:
            return functools.reduce(operator.getitem, keys, observation)

        image = np.asarray(part(self._keys))
        if (fault := find_image_fault(self._image, image)) is not None:
            raise BadObservation(f"The environment returned {fault}")
        flat: list[Any] = [flatten(space, part(keys)) for keys, space in self._others.items()]
        vector = np.concatenate([np.empty(0, np.float32), *flat])
        if (index := find_excess(vector)) is not None:
            raise BadObservation(
                "The environment returned an image with a vector that is not finite, or beyond "
                f"{LARGEST:g}: {vector[index]}. Correct it, or wrap the environment."
            )
        return self.space.layout.join(as_bytes(image), vector)


def has_image(space: gymnasium.Space) -> bool:
    """Return whether observations are, or contain, images that convolutions apply to."""
    return any(is_large_image_space(part) for _, part in space_parts(space))


def find_image_fault(space: gymnasium.Space, observation: Any) -> str | None:
    """Describe how an image violates its space; None where it does not.

    Unlike `Box.contains`, accept any float type for a float space.
    """
    image = np.asarray(observation)
    is_float = np.issubdtype(space.dtype, np.floating)
    has_dtype = np.issubdtype(image.dtype, np.floating) if is_float else image.dtype == np.uint8
    if image.shape != space.shape or not has_dtype:
        return (
            f"an image of {image.dtype} {image.shape}: observation_space declares {space.dtype} "
            f"{space.shape}. The size and type of images must not change: give all of them one "
            "size, for example with gymnasium.wrappers.TransformObservation."
        )
    if is_float and not (image.min() >= 0 and image.max() <= 1):
        return (
            f"an image with values from {image.min()} to {image.max()}: observation_space "
            "declares 0 to 1. Correct the values or the space."
        )
    return None


# --- rendering ---


def is_viewable(space: gymnasium.Space) -> bool:
    """Return whether observations are images that a person can look at: grey or RGB."""
    return is_image_space(space) and layout_of(space).num_channels in (1, 3)


class ObservationRenderer(gymnasium.Wrapper):
    """An environment that renders its latest observation, for those without `rgb_array`."""

    _latest: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._latest, reset_info = super().reset(seed=seed, options=options)
        return self._latest, reset_info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step."""
        self._latest, *others = super().step(action)
        return self._latest, *others  # pyright: ignore[reportReturnType]

    def render(self) -> UInt8[np.ndarray, "height width 3"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the latest observation as an RGB image."""
        image = as_bytes(np.asarray(self._latest))
        channels_last = layout_of(self.observation_space).channels_first(image).transpose(1, 2, 0)
        return np.array(np.broadcast_to(channels_last, (*channels_last.shape[:2], 3)))


# --- observations of agents and predictors ---


class ImagePreprocessing(gymnasium.Wrapper):
    """A wrapper that resizes, grey-scales and stacks images, channels first.

    Before the first image of an episode the stack is black, as in ALE's own environments, so that
    the start of an episode does not look like standing still.
    """

    def __init__(self, env: gymnasium.Env, settings: FrameSettings) -> None:
        """Wrap an environment.

        Args:
            env: an environment with image observations, see `is_image_space`.
            settings: the preprocessing.

        Raises:
            BadConfig: the stack or the size is negative, or the size too small with a vector.
        """
        super().__init__(env)
        if settings.stacked < 0 or settings.size < 0:
            raise BadConfig(
                f"{settings.stacked} stacked frames of size {settings.size} were asked for; both "
                "must be at least 0 (-f, --frame-size)."
            )
        self._layout = layout_of(env.observation_space)
        self._is_grey = converts_to_grey(self._layout, settings)
        self._num_channels = 1 if self._is_grey else self._layout.num_channels
        self._resize = AreaResize.of(self._layout, settings.size)
        height, width = self._resize.height, self._resize.width
        if self._layout.vector_size and min(height, width) < MIN_PIXELS:
            raise BadConfig(
                f"A frame size of {settings.size} was asked for; images with a vector need at "
                f"least {MIN_PIXELS} (--frame-size)."
            )
        stacked = max(settings.stacked, 1)
        self._empty_stack = np.zeros((stacked * self._num_channels, height, width), np.uint8)
        self._stack = self._empty_stack
        self._stacked = ImageLayout(self._empty_stack.shape, 0, self._layout.vector_size)
        self.observation_space = ImageBox(self._stacked)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, dict[str, Any]]:
        """Start an episode with its first image on an empty stack."""
        observation, reset_info = self.env.reset(seed=seed, options=options)
        self._stack = self._empty_stack
        return self._push(observation), reset_info

    def step(self, action: Any) -> tuple[Image, Any, bool, bool, dict[str, Any]]:
        """Take one step and push its image onto the stack."""
        observation, reward, terminated, truncated, step_info = self.env.step(action)
        return self._push(observation), reward, terminated, truncated, step_info

    def _push(self, observation: Any) -> Image:
        """Return the stack with another image, as a new array: callers may keep the old one.

        Raises:
            BadObservation: the image has another size or type than its space.
        """
        fault = find_image_fault(self.env.observation_space, observation)
        if fault is not None:
            name = type(self.unwrapped).__name__ if self.spec is None else self.spec.id
            raise BadObservation(f"{name} returned {fault}")
        image = self._layout.channels_first(as_bytes(np.asarray(observation)))
        resized = self._resize(grey(image)[None] if self._is_grey else image)
        self._stack = np.concatenate([self._stack[self._num_channels :], round_to_bytes(resized)])
        vector = trailing_floats(np.asarray(observation), self._layout.vector_size)
        return self._stacked.join(self._stack, vector)


def preprocess_images(env: gymnasium.Env, settings: FrameSettings | None) -> gymnasium.Env:
    """Wrap an environment with image observations; return any other as it is.

    Args:
        env: any environment.
        settings: the preprocessing; None leaves images as they are.
    """
    if settings is None or not is_image_space(env.observation_space):
        return env
    return ImagePreprocessing(env, settings)


def converts_to_grey(layout: ImageLayout, settings: FrameSettings) -> bool:
    """Return whether images are converted to grey: those with three channels, unless they are tiny.

    Tiny ones are grids of numbers rather than colours, such as the 7x7x3 of MiniGrid.
    """
    return settings.grey and layout.num_channels == 3 and min(layout.size) >= MIN_PIXELS


def describe_preprocessing(layout: ImageLayout, settings: FrameSettings) -> str:
    """Describe images and their preprocessing in one line."""
    vector = f", with a vector of size {layout.vector_size}" if layout.vector_size else ""
    resize = AreaResize.of(layout, settings.size)
    is_grey = layout.num_channels == 1 or converts_to_grey(layout, settings)
    colours = "grey" if is_grey else f"{layout.num_channels} channels"
    height, width = layout.size
    stack = f"{settings.stacked} stacked" if settings.stacked > 1 else "not stacked"
    return (
        f"images of {height} x {width} pixels, "
        f"{counted(layout.num_channels, 'channel')}{vector}; "
        f"preprocessed to {resize.height} x {resize.width}, {colours}, {stack}"
    )


# --- arithmetic ---


def as_bytes(image: Shaped[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Convert floats in [0, 1] to bytes; return bytes as they are."""
    return image if image.dtype == np.uint8 else round_to_bytes(image * np.float32(255))


def round_to_bytes(image: Shaped[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Round numbers in [0, 255] to bytes; return bytes as they are."""
    if image.dtype == np.uint8:
        return image
    return (image + np.float32(0.5)).astype(np.uint8)


def grey(image: UInt8[np.ndarray, "3 h w"]) -> Float32[np.ndarray, "h w"]:
    """Compute the brightness of an RGB image."""
    # One multiplication and addition at a time, not a matrix product: BLAS may split the product
    # differently in another process, and replayed clips are compared to the last byte.
    red, green, blue = (np.float32(weight) for weight in LUMA)
    brightness = np.multiply(image[0], red)
    part = np.multiply(image[1], green)
    brightness += part
    np.multiply(image[2], blue, out=part)
    brightness += part
    return brightness


@dataclass(frozen=True)
class AreaWeights:
    """The weights that average n pixels in a row to m by the area each new pixel covers.

    Attributes:
        indices: [k, m] the old pixels that a new pixel covers.
        weights: [k, m] the share of each; each column sums to 1.
    """

    indices: Int64[np.ndarray, "k m"]
    weights: Float32[np.ndarray, "k m"]

    @staticmethod
    def of(n: int, m: int) -> "AreaWeights":
        """Compute the weights from n pixels to m <= n pixels."""
        # In units of 1/m old pixel, new pixel j covers [j n, (j + 1) n] and old pixel i covers
        # [i m, (i + 1) m]; integers keep the overlaps exact.
        begin = np.arange(m) * n
        first = begin // m
        max_covered = int((-(-(begin + n) // m) - first).max())
        indices = first + np.arange(max_covered)[:, None]
        overlap = np.minimum(begin + n, (indices + 1) * m) - np.maximum(begin, indices * m)
        weights = (np.maximum(overlap, 0) / n).astype(np.float32)
        return AreaWeights(np.minimum(indices, n - 1), weights)


@dataclass(frozen=True)
class AreaResize:
    """A reduction of images to one size by area averaging; smaller images are not enlarged.

    Attributes:
        height: height of the result.
        width: width of the result.
        rows: weights along the height; None where it stays.
        columns: weights along the width; None where it stays.
    """

    height: int
    width: int
    rows: AreaWeights | None
    columns: AreaWeights | None

    @staticmethod
    def of(layout: ImageLayout, size: int) -> "AreaResize":
        """Reduce height and width to `size` where they are larger; 0 keeps them."""
        height, width = (min(pixels, size) if size else pixels for pixels in layout.size)
        rows, columns = (
            None if m == n else AreaWeights.of(n, m)
            for n, m in zip(layout.size, (height, width), strict=True)
        )
        return AreaResize(height, width, rows, columns)

    def __call__(self, image: Shaped[np.ndarray, "*channel h w"]) -> Shaped[np.ndarray, "..."]:
        """Return [..., height, width] float32, or the image itself where nothing changes."""
        if self.rows is not None:
            weights = self.rows.weights[..., None]
            image = weighted_sum(image, self.rows.indices, weights, axis=-2)
        if self.columns is not None:
            image = weighted_sum(image, self.columns.indices, self.columns.weights, axis=-1)
        return image


def weighted_sum(
    image: Shaped[np.ndarray, "*channel h w"],
    indices: Int64[np.ndarray, "k m"],
    weights: Float32[np.ndarray, "k m *one"],
    axis: int,
) -> Float32[np.ndarray, "..."]:
    """Sum weighted rows or columns of an image, in a fixed order (see `grey`)."""
    total = np.take(image, indices[0], axis) * weights[0]
    for index, weight in zip(indices[1:], weights[1:], strict=True):
        total += np.take(image, index, axis) * weight
    return total
