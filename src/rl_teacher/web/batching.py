"""Batching of the requests that labelers wait for.

Each batcher has a thread of its own: with shared threads, a long list for an owner would delay the
next comparison of a labeler.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Generic, TypeVar

MAX_BATCH = 100
"""Items per batch."""

PAUSE_FACTOR = 2.0
"""Time from the end of a batch to the next one, relative to the duration of the batch."""

MAX_PAUSE_S = 0.03
"""Maximum time from the end of a batch to the next one."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Batches items that arrive while the previous batch is processed, in a thread of its own.

    One transaction for many requests costs little more than one for a single request. After a
    batch, the next one waits for further items in proportion to the duration of the batch: the
    longer transactions take, the more requests they serve. An item that arrives later is processed
    at once.
    """

    def __init__(
        self,
        name: str,
        do: Callable[[Sequence[Item]], Sequence[Result | Exception]],
    ) -> None:
        """Create a batcher.

        Args:
            name: Name of the thread.
            do: Returns one result per item, in order; an item whose result is an exception
                receives it. All items receive an exception that is raised.
        """
        self._thread = ThreadPoolExecutor(1, name)
        self._do = do
        self._lock = Lock()
        self._pending: list[tuple[Item, Future[Result]]] = []
        self._is_busy = False

    async def __call__(self, item: Item) -> Result:
        """Process an item and return its result."""
        future: Future[Result] = Future()
        with self._lock:
            self._pending.append((item, future))
            is_first, self._is_busy = not self._is_busy, True
        if is_first:
            self._thread.submit(self._process_batches)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Stop the thread once it has processed what waits."""
        self._thread.shutdown()

    def _process_batches(self) -> None:
        """Process batches until no item is left."""
        while True:
            with self._lock:
                batch, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
                self._is_busy = bool(batch)
            if not batch:
                return
            began_s = time.monotonic()
            # Requests that were cancelled meanwhile are left out.
            self._process([each for each in batch if each[1].set_running_or_notify_cancel()])
            took_s = time.monotonic() - began_s
            time.sleep(min(PAUSE_FACTOR * took_s, MAX_PAUSE_S))

    def _process(self, batch: Sequence[tuple[Item, Future[Result]]]) -> None:
        """Process a batch and hand over its results."""
        results: Sequence[Result | BaseException]
        try:
            results = self._do([item for item, _ in batch]) if batch else []
            if len(results) != len(batch):
                raise ValueError(f"{len(batch)} items have {len(results)} results")
        except BaseException as error:
            results = [error] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
