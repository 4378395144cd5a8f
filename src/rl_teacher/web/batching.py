"""Worker threads and batching for requests that labelers wait for.

With shared threads, a long list for an owner would delay the next comparison of a labeler. The
pool is small because Python runs one thread at a time: two threads serve a hundred labelers
sooner than forty that compete for the interpreter lock.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock, Timer
from typing import Any, Generic, ParamSpec, TypeVar

NUM_THREADS = 2

MAX_BATCH = 100
"""Items per batch."""

MAX_PAUSE_S = 0.03
"""Maximum time from the end of a batch of several items to the next one."""

P = ParamSpec("P")
Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerPool:
    """Dedicated threads that run calls in order of arrival."""

    def __init__(self, name: str = "labelers", num_threads: int = NUM_THREADS) -> None:
        self._threads = ThreadPoolExecutor(num_threads, name)

    async def run(self, call: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        """Run a call and return its result."""
        return await asyncio.wrap_future(self._threads.submit(partial(call, *args, **kwargs)))

    def submit(self, call: Callable[[], Any]) -> None:
        """Run a call in the background."""
        self._threads.submit(call)

    def close(self) -> None:
        """Stop the threads after their current calls."""
        self._threads.shutdown()


class Batcher(Generic[Item, Result]):
    """Batches items that arrive while the previous batch is processed.

    One transaction for many requests costs little more than one for a single request. An item that
    arrives alone is processed at once. After a batch of several, the next one waits for further
    items as long as that batch took: the longer transactions take, the more requests they serve.
    """

    def __init__(
        self,
        pool: WorkerPool,
        do: Callable[[Sequence[Item]], Sequence[Result | Exception]],
        max_pause_s: float = MAX_PAUSE_S,
    ) -> None:
        """Create a batcher.

        Args:
            pool: Threads that process the batches.
            do: Returns one result per item, in order; an item whose result is an exception
                receives it. All items receive an exception that is raised.
            max_pause_s: Maximum time from the end of a batch of several items to the next one.
        """
        self._pool = pool
        self._do = do
        self._max_pause_s = max_pause_s
        self._next_s = 0.0
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
            self._start()
        return await asyncio.wrap_future(future)

    def _start(self) -> None:
        """Process the next batch once it is due."""
        wait_s = self._next_s - time.monotonic()
        if wait_s > 0:
            # Not a timer of an event loop, which may end before the pause does.
            timer = Timer(wait_s, self._submit)
            timer.daemon = True
            timer.start()
        else:
            self._submit()

    def _submit(self) -> None:
        with suppress(RuntimeError):  # the pool was closed, and all requests are cancelled
            self._pool.submit(self._process_batch)

    def _process_batch(self) -> None:
        """Process one batch, then queue the next one behind other waiting calls."""
        began_s = time.monotonic()
        with self._lock:
            batch, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
        # A request that is cancelled while it waits, as at shutdown, cancels its future.
        active = [each for each in batch if each[1].set_running_or_notify_cancel()]
        try:
            results = self._do([item for item, _ in active]) if active else []
            answered = list(zip(active, results, strict=True))
        except BaseException as error:
            for _, future in active:
                future.set_exception(error)
        else:
            for (_, future), result in answered:
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        ended_s = time.monotonic()
        pause_s = min(ended_s - began_s, self._max_pause_s) if len(active) > 1 else 0.0
        self._next_s = ended_s + pause_s
        with self._lock:
            self._is_busy = bool(self._pending)
        if self._is_busy:
            self._start()
