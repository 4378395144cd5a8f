"""A few threads of their own for what labelers wait for.

Where they shared them with everything else, an owner's long list would hold up a labeler's next
comparison. They are few, because Python runs one thread at a time: a hundred labelers are answered
sooner by two threads than by forty that take it from each other.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

NUM_THREADS = 2

MAX_BATCH = 100
"""Things that are done together."""

P = ParamSpec("P")
Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerPool:
    """Runs calls on its own threads, in the order they came."""

    def __init__(self, num_threads: int = NUM_THREADS) -> None:
        self._threads = ThreadPoolExecutor(num_threads, "labelers")

    async def run(self, call: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        """What the call returns."""
        return await asyncio.wrap_future(self._threads.submit(partial(call, *args, **kwargs)))

    def submit(self, call: Callable[[], Any]) -> None:
        """Run a call that nobody waits for."""
        self._threads.submit(call)

    def close(self) -> None:
        """End the threads, after what they are at."""
        self._threads.shutdown()


class Batcher(Generic[Item, Result]):
    """Does at once what has gathered while it was busy.

    What many ask of a database in one transaction costs little more than what one of them asks.
    """

    def __init__(self, lane: WorkerPool, do: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        """A gathering.

        Args:
            lane: where it is done.
            do: it; a result for each item, in their order. What it raises, all of them get.
        """
        self._lane = lane
        self._do = do
        self._lock = Lock()
        self._gathered: list[tuple[Item, Future[Result]]] = []
        self._is_busy = False

    async def __call__(self, item: Item) -> Result:
        """The result of one item."""
        future: Future[Result] = Future()
        with self._lock:
            self._gathered.append((item, future))
            is_first, self._is_busy = not self._is_busy, True
        if is_first:
            self._lane.submit(self._do_some)
        return await asyncio.wrap_future(future)

    def _do_some(self) -> None:
        """Note: then it queues anew, so that it keeps no thread from what else waits."""
        with self._lock:
            some, self._gathered = self._gathered[:MAX_BATCH], self._gathered[MAX_BATCH:]
        wanted = [each for each in some if each[1].set_running_or_notify_cancel()]
        try:
            results = self._do([item for item, _ in wanted]) if wanted else []
        except BaseException as error:
            for _, future in wanted:
                future.set_exception(error)
        else:
            for (_, future), result in zip(wanted, results, strict=True):
                future.set_result(result)
        with self._lock:
            self._is_busy = bool(self._gathered)
        if self._is_busy:
            self._lane.submit(self._do_some)
