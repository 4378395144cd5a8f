"""Reuse of the memory of large arrays."""

import numpy as np

from rl_teacher.common.array_pool import MAX_FREE_BUFFERS, ArrayPool

SHAPE = (8, 4, 16)


def address_of(array):
    return array.__array_interface__["data"][0]


def test_released_array_memory_is_reused():
    pool = ArrayPool()
    array = pool.empty(SHAPE, np.uint8)
    assert array.shape == SHAPE
    assert array.flags.writeable
    address = address_of(array)
    del array
    assert address_of(pool.empty(SHAPE, np.uint8)) == address


def test_memory_with_live_view_is_not_reused():
    pool = ArrayPool()
    array = pool.empty(SHAPE, np.float32)
    array[:] = 7
    view = array[2:, 1].reshape(-1)[3:].T
    del array
    for _ in range(3):
        pool.empty(SHAPE, np.float32)[:] = 0
    np.testing.assert_array_equal(view, 7)


def test_memory_of_other_size_is_not_reused():
    pool = ArrayPool()
    small = pool.empty((3,), np.uint8)
    address = address_of(small)
    del small
    large = pool.empty((300,), np.uint8)
    large[:] = 1
    assert address_of(large) != address
    assert large.sum() == 300


def test_free_buffers_are_limited():
    pool = ArrayPool()
    held = [pool.empty(SHAPE, np.uint8) for _ in range(5)]
    last = {address_of(array) for array in held[-MAX_FREE_BUFFERS:]}
    while held:
        held.pop(0)
    reused = [pool.empty(SHAPE, np.uint8) for _ in range(MAX_FREE_BUFFERS)]
    assert {address_of(array) for array in reused} == last
