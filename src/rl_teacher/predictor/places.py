"""Where fixed filters find something in a picture: what the reward predictor is told of one.

A few hundred labels are too few to learn filters from, and a map of what filters say is learned by
heart: what holds of one place says nothing of the next. Where something is, and how much of it, is
a few numbers from which a small perceptron learns, as quickly as from any vector.

B: batch, H, W: rows and columns of what a filter says, F: filters, P: numbers told of a picture.
"""

import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float32, Shaped

from rl_teacher.numpy_convolution import convolved
from rl_teacher.picture_shape import PictureShape
from rl_teacher.pictures import filters_for

FILTERS_SEED = 0
"""Others would be as good, but a predictor that was saved knows these."""
PARTS = 3
"""Into which a picture is divided, down and across; each has places of its own."""
WEIGHT_OF_PARTS = 0.1
"""Spread of the numbers told of a part, over that of those told of the whole: they are learned
from later, so what the whole explains is not learned by heart from parts."""
NO_SIZE = 1e-6
"""A filter that says no more than this of a whole picture finds it nowhere: in the middle."""
AT_ONCE = 32
"""Pictures: what the filters say of them fits into the caches."""


class Places:
    """Pictures [B, ...] in, [B, P] numbers out: `of_picture` has one for each kind of pictures.

    Attributes:
        num: P.
        weights: [P] what spread each number shall have beside the others. All filters tell of the
            same things, so together they have the weight of one: else a reward predictor learns by
            heart where, and not what to do there.
    """

    _cores = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="places")

    def __init__(self, picture: PictureShape) -> None:
        """Filters of random numbers, each of length 1."""
        num_filters, width, self._stride = filters_for(picture)
        self._picture = picture
        rng = np.random.default_rng(FILTERS_SEED)
        drawn = rng.standard_normal((width, width, picture.num_channels, num_filters))
        lengths = np.sqrt((drawn**2).sum((0, 1, 2)))
        self._filters = (drawn / lengths / 255).astype(np.float32)
        size = 3 * num_filters
        self.num = size * (1 + 2 * PARTS)
        self.weights = np.full(self.num, num_filters**-0.5, np.float32)
        self.weights[size:] *= WEIGHT_OF_PARTS

    def __call__(self, pictures: Shaped[np.ndarray, "batch ..."]) -> Float32[np.ndarray, "batch n"]:
        """Places in the whole picture, then in its parts from the top down, then from the left."""
        pieces = np.split(pictures, range(AT_ONCE, len(pictures), AT_ONCE))
        return np.concatenate(list(self._cores.map(self._told, pieces)))

    def _told(self, pictures: np.ndarray) -> np.ndarray:
        said = convolved(self._picture.channels_last(pictures), self._filters, self._stride)
        sizes = np.maximum(said, 0.0)
        parts = [part for axis in (1, 2) for part in np.array_split(sizes, PARTS, axis)]
        return np.concatenate([places(each) for each in (sizes, *parts)], axis=-1)


@functools.cache
def of_picture(picture: PictureShape) -> Places:
    """The same for equal kinds of pictures."""
    return Places(picture)


def places(sizes: Float32[np.ndarray, "batch height width filter"]) -> np.ndarray:
    """Where each filter finds something, and how much.

    What counts is by how much the size of what a filter says is above its mean: the background,
    which is everywhere, would draw each centre to the middle.

    Source: the feature points of Levine et al. 2016 (End-to-end training of deep visuomotor
    policies), of sizes in place of a softmax.

    Args:
        sizes: [B, H, W, F] at least 0.

    Returns:
        [B, 3 F] the centres of what counts for each filter, y of all and then x of all, -1 to 1
        from edge to edge; then the means of what counts.
    """
    _, height, width, _ = sizes.shape
    counted = np.maximum(sizes - sizes.mean((1, 2), keepdims=True), 0.0)
    by_row, by_column = counted.sum(2), counted.sum(1)
    totals = by_row.sum(1)
    y, x = (np.linspace(-1, 1, size, dtype=np.float32) for size in (height, width))
    centres = (np.einsum("bhf,h->bf", by_row, y), np.einsum("bwf,w->bf", by_column, x))
    found = [centre / (totals + NO_SIZE) for centre in centres]
    return np.concatenate([*found, totals / (height * width)], axis=-1)
