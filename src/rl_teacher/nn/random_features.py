"""Random features of images: the fixed part of the default image encoders.

A few hundred labels are too few to learn convolutions from, and a small network overfits raw
feature maps, because a weight for one position does not generalise to the next. A bank of fixed
random filters is therefore summarised in a few hundred numbers, from which a small MLP learns as
quickly as from a state vector. The fit of a reward predictor selects the one of two summaries that
predicts held-out labels better; agents use the third:

* *keypoints*: the centre of each filter's response (Levine et al. 2016). They move continuously
  with the objects and suit rewards that do so too.
* *profiles*: the sum of each filter's response in each row and in each column. They distinguish
  objects in different rows, and small objects beside large ones, such as a ball beside a paddle.
* *bands*: the profiles of each quarter of the columns, and of each quarter of the rows. They
  distinguish a ball above a wall from the bricks that it breaks.

B: batch, H, W: rows and columns of a response map, F: filters, P: features of an image.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped

from rl_teacher.common.runtime import executor
from rl_teacher.nn.image_layout import (
    MIN_PIXELS_STRIDES,
    MIN_PIXELS_WIDE_FILTERS,
    Convolution,
    ImageLayout,
)
from rl_teacher.nn.numpy_networks import convolve

FILTERS_SEED = 0
"""Part of the file format: a saved predictor does not store its filters."""
NUM_BANDS = 4
"""Bands of columns, and of rows."""
MIN_TOTAL = 1e-6
"""Added to a filter's total response: a filter without any response has its keypoint at 0."""
IMAGES_PER_CALL = 32
"""The response maps of this many images fit into the caches."""


class RandomFeatures:
    """A callable that turns images [B, ...] into features [B, P]; see `random_features_for`.

    Attributes:
        num_features: P.
        filters: [width, width, C, F] the filters.
        stride: their stride.
        num_keypoints: the first features are keypoints, the others profiles.
        num_bands: number of the features that `bands` computes.
        scales: [P] standard deviation that each feature should have after normalisation. All
            filters describe the same objects, and so do neighbouring profile entries. Each kind
            of keypoint therefore has the weight of one number, and so have all profiles together;
            with larger scales the predictor overfits to positions and ignores actions.
    """

    def __init__(self, image: ImageLayout) -> None:
        num_filters, width, self.stride = filters_for(image)
        self._image = image
        rng = np.random.default_rng(FILTERS_SEED)
        # Filters of unit norm; 1/255 maps bytes to 0 to 1.
        filters = rng.standard_normal((width, width, image.num_channels, num_filters))
        norms = np.sqrt((filters**2).sum((0, 1, 2)))
        self.filters = (filters / norms / 255).astype(np.float32)
        # A valid convolution of H by W pixels has ((H - width) // stride + 1) rows, and so on.
        num_lines = sum((size - width) // self.stride + 1 for size in image.size)
        self.num_keypoints = 3 * num_filters
        num_profiles = num_lines * num_filters
        self.num_features = self.num_keypoints + num_profiles
        self.num_bands = NUM_BANDS * num_profiles
        self.scales = np.full(self.num_features, num_filters**-0.5, np.float32)
        self.scales[self.num_keypoints :] = num_profiles**-0.5

    def __call__(self, images: Shaped[np.ndarray, "batch ..."]) -> Float32[np.ndarray, "batch n"]:
        """Compute the keypoints, then the profiles, of each image."""
        return self._in_pieces(keypoints_and_profiles, images)

    def bands(self, images: Shaped[np.ndarray, "batch ..."]) -> Float32[np.ndarray, "batch n"]:
        """Compute the profiles of the bands of each image."""
        return self._in_pieces(bands, images)

    def _in_pieces(self, summary: Callable[[np.ndarray], np.ndarray], images: Any) -> np.ndarray:
        """Compute a summary of the response maps of each image."""

        def summarise(images: np.ndarray) -> np.ndarray:
            maps = convolve(self._image.channels_last(images), self.filters, self.stride)
            return summary(subtract_background(np.maximum(maps, 0.0, out=maps)))

        if len(images) <= IMAGES_PER_CALL:
            return summarise(images)
        pieces = np.split(images, range(IMAGES_PER_CALL, len(images), IMAGES_PER_CALL))
        return np.concatenate(list(executor("random-features").map(summarise, pieces)))


@functools.cache
def random_features_for(image: ImageLayout) -> RandomFeatures:
    """Return the random features for an image layout; equal layouts share one object."""
    return RandomFeatures(image)


def filters_for(layout: ImageLayout) -> Convolution:
    """Return the layer of fixed random filters for images of a size."""
    if min(layout.size) >= MIN_PIXELS_WIDE_FILTERS:
        return Convolution(8, 8, 4)
    is_tiny = min(layout.size) < MIN_PIXELS_STRIDES
    return Convolution(8, 3, 1) if is_tiny else Convolution(8, 4, 2)


def subtract_background(maps: Float32[np.ndarray, "batch height width filter"]) -> np.ndarray:
    """Subtract each response map's mean and clip at 0.

    A uniform background would otherwise pull every keypoint to the centre of the image.
    """
    centred = maps - maps.mean((1, 2), keepdims=True)
    return np.maximum(centred, 0.0, out=centred)


Maps = Float32[np.ndarray, "batch height width filter"]


def row_sums(maps: Maps) -> Float32[np.ndarray, "batch height filter"]:
    """Sum each row over its columns."""
    # A third of the time of `sum`, whose inner loop over a few filters is slow.
    return np.einsum("bhwf->bhf", maps)


def column_sums(maps: Maps) -> Float32[np.ndarray, "batch width filter"]:
    """Sum each column over its rows."""
    return np.einsum("bhwf->bwf", maps)


def keypoints_and_profiles(maps: Maps) -> np.ndarray:
    """Compute [B, P] the keypoints, then the profiles of rows and of columns."""
    by_row, by_column = row_sums(maps), column_sums(maps)
    return np.concatenate(
        [keypoints(by_row, by_column), profiles(by_row), profiles(by_column)], axis=-1
    )


def bands(maps: Maps) -> np.ndarray:
    """Compute [B, NUM_BANDS * (H + W) * F] the profiles of rows, band by band, then of columns."""
    by_row = map(row_sums, np.array_split(maps, NUM_BANDS, axis=2))
    by_column = map(column_sums, np.array_split(maps, NUM_BANDS, axis=1))
    return np.concatenate([profiles(each) for each in (*by_row, *by_column)], axis=-1)


def keypoints(
    by_row: Float32[np.ndarray, "batch height filter"],
    by_column: Float32[np.ndarray, "batch width filter"],
) -> np.ndarray:
    """Compute the centre and the mean of each filter's response.

    Source: the feature points of Levine et al. 2016 (End-to-end training of deep visuomotor
    policies), weighted by the response itself in place of its softmax.

    Args:
        by_row: [B, H, F] response summed over columns, non-negative.
        by_column: [B, W, F] response summed over rows.

    Returns:
        [B, 3 F] the y of all centres, then the x of all centres, -1 to 1 from edge to edge, then
        the mean responses.
    """
    # y_f = sum_h h * response_f(h) / sum_h response_f(h), and x likewise
    height, width = by_row.shape[1], by_column.shape[1]
    totals = by_row.sum(1)
    y = np.einsum("bhf,h->bf", by_row, np.linspace(-1, 1, height, dtype=np.float32))
    x = np.einsum("bwf,w->bf", by_column, np.linspace(-1, 1, width, dtype=np.float32))
    return np.concatenate(
        [y / (totals + MIN_TOTAL), x / (totals + MIN_TOTAL), totals / (height * width)], axis=-1
    )


def profiles(sums: Float32[np.ndarray, "batch line filter"]) -> np.ndarray:
    """Compute the logarithmic response of each filter in each row, or in each column.

    Args:
        sums: [B, H or W, F] summed responses, non-negative.

    Returns:
        [B, (H or W) F] log(1 + response), line by line. The logarithm keeps a small object
        visible beside a large one that is always there.
    """
    num, num_lines, num_filters = sums.shape
    return np.log1p(sums).reshape(num, num_lines * num_filters)
