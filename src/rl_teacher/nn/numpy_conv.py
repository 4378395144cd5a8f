"""Convolutions in NumPy, for what sees pictures where there is no JAX or no need of it.

B: batch, H, W: rows and columns of pixels, C: channels, F: filters.
"""

import numpy as np
from jaxtyping import Float32, Shaped


def convolved(
    x: Shaped[np.ndarray, "batch height width channel"],
    filters: Float32[np.ndarray, "side side channel filter"],
    stride: int,
) -> Float32[np.ndarray, "batch rows columns filter"]:
    """What each filter says of each place: a convolution without padding.

    Note: a filter covers k x k tiles, each as large as the stride. What it says is the sum of what
    its parts say of them, so no pixel is copied more than once. Where the stride does not divide
    the width, the filter gets zeros at its end, and so do the pixels where it reaches beyond them.
    """
    num, *size, channels = x.shape
    width, num_filters = len(filters), filters.shape[-1]
    across = -(-width // stride)
    rows, columns = ((pixels - width) // stride + 1 for pixels in size)
    high, wide = rows + across - 1, columns + across - 1
    x = _of_size(x, (high * stride, wide * stride), (1, 2))
    x = x.reshape(num, high, stride, wide, stride, channels).transpose(0, 1, 3, 2, 4, 5)
    tiles = x.reshape(num * high * wide, stride * stride * channels).astype(np.float32, copy=False)
    parts = _of_size(filters, (across * stride, across * stride), (0, 1))
    parts = parts.reshape(across, stride, across, stride, channels, num_filters)
    parts = parts.transpose(1, 3, 4, 0, 2, 5).reshape(tiles.shape[1], -1)
    said = (tiles @ parts).reshape(num, high, wide, across, across, num_filters)
    places = [(i, j) for i in range(across) for j in range(across)]
    return np.sum([said[:, i : i + rows, j : j + columns, i, j] for i, j in places], axis=0)


def _of_size(x: np.ndarray, sizes: tuple[int, int], axes: tuple[int, int]) -> np.ndarray:
    """Cut off at its end, or with zeros there, along two axes."""
    more = [(0, 0)] * x.ndim
    cut = [slice(None)] * x.ndim
    for axis, size in zip(axes, sizes, strict=True):
        more[axis] = (0, max(size - x.shape[axis], 0))
        cut[axis] = slice(size)
    x = x[tuple(cut)]
    return np.pad(x, more) if any(end for _, end in more) else x
