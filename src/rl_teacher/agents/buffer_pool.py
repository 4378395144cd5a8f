"""Large arrays in memory that is used again."""

import weakref

import numpy as np
from jaxtyping import Shaped

MOST_FREE = 2
"""Pieces of memory that are kept while nobody uses them."""


class ArrayPool:
    """Hands out arrays, and takes their memory back when nobody has them any more.

    Note: a rollout of pictures is 60 MB. Memory that is new to the process costs seven times as
    much to write, because the system maps each of its pages and wipes it.
    """

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def empty(self, shape: tuple[int, ...], dtype: np.dtype | type) -> Shaped[np.ndarray, "..."]:
        """An array that holds anything, as `np.empty` makes one."""
        size_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = self._taken(size_bytes)
        # Note: every view of this array refers to it, and to nothing beneath it. So none is left
        # when it goes.
        array = np.frombuffer(memory, dtype)
        weakref.finalize(array, self._take_back, memory).atexit = False
        return array.reshape(shape)

    def _taken(self, size_bytes: int) -> bytearray:
        for place, memory in enumerate(self._free):
            if len(memory) == size_bytes:
                return self._free.pop(place)
        return bytearray(size_bytes)

    def _take_back(self, memory: bytearray) -> None:
        self._free = [*self._free[1 - MOST_FREE :], memory]
