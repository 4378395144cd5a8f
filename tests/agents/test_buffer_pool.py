"""Memory that is used again."""

import numpy as np

from rl_teacher.agents.collector import MAX_FREE_BUFFERS, ArrayPool

SHAPE = (8, 4, 16)


def place_of(array):
    return array.__array_interface__["data"][0]


def test_an_array_that_nobody_has_any_more_lends_its_memory_to_the_next():
    arrays = ArrayPool()
    array = arrays.empty(SHAPE, np.uint8)
    assert array.shape == SHAPE
    assert array.flags.writeable
    before = place_of(array)
    del array
    assert place_of(arrays.empty(SHAPE, np.uint8)) == before


def test_a_view_of_a_view_keeps_the_memory_from_being_lent():
    arrays = ArrayPool()
    array = arrays.empty(SHAPE, np.float32)
    array[:] = 7
    view = array[2:, 1].reshape(-1)[3:].T
    del array
    for _ in range(3):
        arrays.empty(SHAPE, np.float32)[:] = 0
    np.testing.assert_array_equal(view, 7)


def test_arrays_of_other_sizes_do_not_share_memory():
    arrays = ArrayPool()
    small = arrays.empty((3,), np.uint8)
    place = place_of(small)
    del small
    large = arrays.empty((300,), np.uint8)
    large[:] = 1
    assert place_of(large) != place
    assert large.sum() == 300


def test_only_some_memory_is_kept_while_nobody_uses_it():
    arrays = ArrayPool()
    many = [arrays.empty(SHAPE, np.uint8) for _ in range(5)]
    last = {place_of(array) for array in many[-MAX_FREE_BUFFERS:]}
    while many:
        many.pop(0)
    again = [arrays.empty(SHAPE, np.uint8) for _ in range(MAX_FREE_BUFFERS)]
    assert {place_of(array) for array in again} == last
