"""A few threads of their own for what labelers wait for.

Where they shared them with everything else, an owner's long list would hold up a labeler's next
comparison. They are few, because Python runs one thread at a time: a hundred labelers are answered
sooner by two threads than by forty that take it from each other.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

NUM_THREADS = 2

P = ParamSpec("P")
T = TypeVar("T")


class Lane:
    """Runs calls on its own threads, in the order they came."""

    def __init__(self, num_threads: int = NUM_THREADS) -> None:
        self._threads = ThreadPoolExecutor(num_threads, "labelers")

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What the call returns."""
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._threads, partial(call, *args, **kwargs))

    def close(self) -> None:
        """End the threads, after what they are at."""
        self._threads.shutdown()
