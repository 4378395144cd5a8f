"""Worker pool and batching."""

import asyncio
import contextlib
import threading

import pytest

from rl_teacher.web.batching import MAX_BATCH, Batcher


class Doubler:
    """Batch function that doubles numbers, records its batches and can be blocked."""

    def __init__(self):
        self.batches = []
        self.unblocked = threading.Event()
        self.unblocked.set()

    def __call__(self, numbers):
        self.batches.append(list(numbers))
        self.unblocked.wait(10)
        if -13 in numbers:
            raise ValueError("thirteen")
        return [2 * each for each in numbers]


@pytest.fixture
def doubler():
    return Doubler()


@pytest.fixture
def make_batcher():
    with contextlib.ExitStack() as made:

        def make(do):
            batcher = Batcher("batches", do)
            made.callback(batcher.close)
            return batcher

        yield make


async def ask_during_a_batch(batcher, doubler, first, *others):
    """Ask for the others while the batch of the first item is processed; return the tasks."""
    doubler.unblocked.clear()
    tasks = [asyncio.create_task(batcher(first))]
    while not doubler.batches:
        await asyncio.sleep(0.001)
    tasks += [asyncio.create_task(batcher(each)) for each in others]
    await asyncio.sleep(0.01)
    return tasks


class TestBatcher:
    def test_items_that_arrive_during_a_batch_form_the_next_batch(self, make_batcher, doubler):
        batcher = make_batcher(doubler)

        async def ask():
            tasks = await ask_during_a_batch(batcher, doubler, *range(6))
            doubler.unblocked.set()
            return await asyncio.gather(*tasks)

        assert asyncio.run(ask()) == [0, 2, 4, 6, 8, 10]
        assert doubler.batches == [[0], [1, 2, 3, 4, 5]]

    def test_batch_size_is_limited(self, make_batcher, doubler):
        batcher = make_batcher(doubler)
        count = 3 * MAX_BATCH

        async def ask():
            return await asyncio.gather(*(batcher(each) for each in range(count)))

        assert asyncio.run(ask()) == [2 * each for each in range(count)]
        assert max(map(len, doubler.batches)) <= MAX_BATCH
        assert [each for batch in doubler.batches for each in batch] == list(range(count))

    def test_result_that_is_an_exception_reaches_its_item_alone(self, make_batcher, doubler):
        def invert(numbers):
            doubler(numbers)
            return [1 / each if each else ZeroDivisionError("zero") for each in numbers]

        batcher = make_batcher(invert)

        async def ask():
            tasks = await ask_during_a_batch(batcher, doubler, 1, 2, 0, 4)
            doubler.unblocked.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

        one, half, error, quarter = asyncio.run(ask())
        assert (one, half, quarter) == (1, 0.5, 0.25)
        assert isinstance(error, ZeroDivisionError)
        assert doubler.batches == [[1], [2, 0, 4]]

    def test_cancelled_item_does_not_block_others(self, make_batcher, doubler):
        batcher = make_batcher(doubler)

        async def ask():
            tasks = await ask_during_a_batch(batcher, doubler, 1, 2, 3)
            tasks[1].cancel()
            await asyncio.sleep(0.01)
            doubler.unblocked.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

        one, two, three = asyncio.run(ask())
        assert (one, three) == (2, 6)
        assert isinstance(two, asyncio.CancelledError)
        assert doubler.batches == [[1], [3]]
