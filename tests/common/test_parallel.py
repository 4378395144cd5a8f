"""Tests of simultaneous calls."""

import time
from threading import Event

from rl_teacher.common.parallel import in_parallel


def test_items_that_have_not_begun_are_cancelled_before_the_running_calls_end():
    is_cancelled, begun = Event(), []

    def work(item):
        begun.append(item)
        if item > 0:
            is_cancelled.wait()

    def cancel():
        is_cancelled.set()
        time.sleep(0.05)  # as Ray, which ends the processes of all calls one after the other

    finished = in_parallel(work, range(9), 2, cancel)
    next(finished)
    while len(begun) < 3:
        time.sleep(0.001)
    finished.close()
    assert begun == [0, 1, 2]
