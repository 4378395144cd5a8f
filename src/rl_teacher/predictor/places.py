"""Where fixed filters find something in a picture: what the reward predictor is told of one.

A few hundred labels are too few to learn filters from, and a map of what filters say is learned by
heart: what holds of one place says nothing of the next. Where something is, and how much of it, is
a few numbers from which a small perceptron learns, as quickly as from any vector.

B: batch, H, W: rows and columns of what a filter says, N: either of them, F: filters, K: parts,
P: numbers told of a picture.
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
"""Into which a picture is divided, down and across; one blends into the next."""
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
        found = above_mean(np.maximum(said, 0.0))
        return np.concatenate([places(found), places_in_parts(found)], axis=-1)


@functools.cache
def of_picture(picture: PictureShape) -> Places:
    """The same for equal kinds of pictures."""
    return Places(picture)


def above_mean(sizes: Float32[np.ndarray, "batch height width filter"]) -> np.ndarray:
    """What each filter finds: by how much the size of what it says is above its mean.

    Note: the background, which is everywhere, would draw each centre to the middle.
    """
    return np.maximum(sizes - sizes.mean((1, 2), keepdims=True), 0.0)


def places(found: Float32[np.ndarray, "batch height width filter"]) -> np.ndarray:
    """Where each filter finds something, and how much.

    Source: the feature points of Levine et al. 2016 (End-to-end training of deep visuomotor
    policies), of sizes in place of a softmax.

    Args:
        found: [B, H, W, F] at least 0.

    Returns:
        [B, 3 F] the centres of what each filter finds, y of all and then x of all, -1 to 1 from
        edge to edge; then the means of it.
    """
    _, height, width, _ = found.shape
    by_row, by_column = found.sum(2), found.sum(1)
    totals = by_row.sum(1)
    y = np.einsum("bhf,h->bf", by_row, _from_edge_to_edge(height))
    x = np.einsum("bwf,w->bf", by_column, _from_edge_to_edge(width))
    return np.concatenate(
        [y / (totals + NO_SIZE), x / (totals + NO_SIZE), totals / (height * width)], axis=-1
    )


def places_in_parts(found: Float32[np.ndarray, "batch height width filter"]) -> np.ndarray:
    """What each filter finds in each part, and how far down and across from the part's middle.

    Note: these are sums and not centres, of parts that blend into each other. So whatever moves
    from one part into the next changes what is told of both little by little, and a reward
    predictor cannot learn a part by heart.

    Args:
        found: [B, H, W, F] at least 0.

    Returns:
        [B, 6 K F] part by part, from the top down and then from the left: of all filters the sums
        of what they find, each times how far down it is, and then times how far across; and the
        sums alone. All are divided by the cells of the picture.
    """
    num, height, width, num_filters = found.shape
    y, x = _from_edge_to_edge(height), _from_edge_to_edge(width)
    down_y, down_x, down = _sums_by_part(found.sum(2), np.einsum("bhwf,w->bhf", found, x))
    across_x, across_y, across = _sums_by_part(found.sum(1), np.einsum("bhwf,h->bwf", found, y))
    told = np.stack([(down_y, down_x, down), (across_y, across_x, across)])
    told = told.transpose(2, 0, 3, 1, 4).reshape(num, 2 * PARTS * 3 * num_filters)
    return told / (height * width)


def _sums_by_part(
    lines: Float32[np.ndarray, "batch line filter"], other: Float32[np.ndarray, "batch line filter"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[B, K, F] each, of rows or columns: how far they are from their part's middle, and others."""
    places, parts = _from_edge_to_edge(lines.shape[1]), _parts(lines.shape[1])
    middles = (parts @ places / parts.sum(1))[:, None]
    weighed = (parts * (places - middles), lines), (parts, other), (parts, lines)
    distances, others, sums = (np.einsum("kn,bnf->bkf", *each) for each in weighed)
    return distances, others, sums


def _from_edge_to_edge(num: int) -> Float32[np.ndarray, " line"]:
    return np.linspace(-1, 1, num, dtype=np.float32)


def _parts(num: int) -> Float32[np.ndarray, "part line"]:
    """[K, N] how far each row or column belongs to a part: 1 at its middle, 0 at the next's."""
    middles = (np.arange(PARTS) + 0.5) * num / PARTS - 0.5
    parts = [np.interp(np.arange(num), middles, belongs) for belongs in np.eye(PARTS)]
    return np.stack(parts).astype(np.float32)
