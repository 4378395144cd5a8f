"""What fixed filters find in a picture, and where: what the reward predictor is told of one.

A few hundred labels are too few to learn filters from, and a map of what filters say is learned by
heart: what holds of one place says nothing of the next. So two summaries are told, a few hundred
numbers from which a small perceptron learns as quickly as from any vector; which of them serves
better depends on what is taught, see `Fitter`. *Places* are the centres of what is found: they move
little by little with what moves, and suit a reward that does so too. *Lines* are how much is found
in each row and each column: they tell things apart that lie in different ones, and small ones
beside large ones, such as a ball beside a paddle.

B: batch, H, W: rows and columns of what a filter says, F: filters, P: numbers told of a picture.
"""

import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float32, Shaped

from rl_teacher.nn.encoders import filters_for
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.nn.numpy_conv import convolved

FILTERS_SEED = 0
"""Others would be as good, but a predictor that was saved knows these."""
NO_SIZE = 1e-6
"""A filter that says no more than this of a whole picture finds it nowhere: in the middle."""
AT_ONCE = 32
"""Pictures: what the filters say of them fits into the caches."""


class Places:
    """Pictures [B, ...] in, [B, P] numbers out: `of_picture` has one for each kind of pictures.

    Attributes:
        num: P.
        num_places: of which the first are places; the others are lines.
        weights: [P] what spread each number shall have beside the others. All filters tell of the
            same things, and so do neighbouring lines, so places have the weight of one number for
            each kind, and all lines that of one: else a reward predictor learns by heart where, and
            not what to do there.
    """

    _cores = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="places")

    def __init__(self, picture: ImageLayout) -> None:
        """Filters of random numbers, each of length 1."""
        num_filters, width, self._stride = filters_for(picture)
        self._picture = picture
        rng = np.random.default_rng(FILTERS_SEED)
        drawn = rng.standard_normal((width, width, picture.num_channels, num_filters))
        lengths = np.sqrt((drawn**2).sum((0, 1, 2)))
        self._filters = (drawn / lengths / 255).astype(np.float32)
        num_lines = sum((size - width) // self._stride + 1 for size in picture.size)
        self.num_places = 3 * num_filters
        self.num = self.num_places + num_lines * num_filters
        self.weights = np.full(self.num, num_filters**-0.5, np.float32)
        self.weights[self.num_places :] = (num_lines * num_filters) ** -0.5

    def __call__(self, pictures: Shaped[np.ndarray, "batch ..."]) -> Float32[np.ndarray, "batch n"]:
        """Places, then lines."""
        pieces = np.split(pictures, range(AT_ONCE, len(pictures), AT_ONCE))
        return np.concatenate(list(self._cores.map(self._told, pieces)))

    def _told(self, pictures: np.ndarray) -> np.ndarray:
        said = convolved(self._picture.channels_last(pictures), self._filters, self._stride)
        found = above_mean(np.maximum(said, 0.0))
        by_row, by_column = found.sum(2), found.sum(1)
        return np.concatenate([places(by_row, by_column), lines(by_row), lines(by_column)], axis=-1)


@functools.cache
def of_picture(picture: ImageLayout) -> Places:
    """The same for equal kinds of pictures."""
    return Places(picture)


def above_mean(sizes: Float32[np.ndarray, "batch height width filter"]) -> np.ndarray:
    """What each filter finds: by how much the size of what it says is above its mean.

    Note: the background, which is everywhere, would draw each centre to the middle.
    """
    return np.maximum(sizes - sizes.mean((1, 2), keepdims=True), 0.0)


def places(
    by_row: Float32[np.ndarray, "batch height filter"],
    by_column: Float32[np.ndarray, "batch width filter"],
) -> np.ndarray:
    """Where each filter finds something, and how much.

    Source: the feature points of Levine et al. 2016 (End-to-end training of deep visuomotor
    policies), of sizes in place of a softmax.

    Args:
        by_row: [B, H, F] sums of what is found, at least 0.
        by_column: [B, W, F] the same of columns.

    Returns:
        [B, 3 F] the centres of what each filter finds, y of all and then x of all, -1 to 1 from
        edge to edge; then the means of it.
    """
    height, width = by_row.shape[1], by_column.shape[1]
    totals = by_row.sum(1)
    y = np.einsum("bhf,h->bf", by_row, _from_edge_to_edge(height))
    x = np.einsum("bwf,w->bf", by_column, _from_edge_to_edge(width))
    return np.concatenate(
        [y / (totals + NO_SIZE), x / (totals + NO_SIZE), totals / (height * width)], axis=-1
    )


def lines(sums: Float32[np.ndarray, "batch line filter"]) -> np.ndarray:
    """How much each filter finds in each row, or in each column.

    Args:
        sums: [B, H or W, F] of what is found, at least 0.

    Returns:
        [B, (H or W) F] the logarithms of 1 plus that, line by line: so a small thing shows beside a
        large one that is always there.
    """
    num, num_lines, num_filters = sums.shape
    return np.log1p(sums).reshape(num, num_lines * num_filters)


def _from_edge_to_edge(num: int) -> Float32[np.ndarray, " line"]:
    return np.linspace(-1, 1, num, dtype=np.float32)
