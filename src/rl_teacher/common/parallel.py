"""Simultaneous execution of work that waits for other processes."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    num_parallel: int,
    cancel: Callable[[], None] = lambda: None,
) -> Generator[tuple[Item, "Future[Result]"], None, None]:
    """Call a function for each item in threads.

    Items that have not begun are cancelled if the caller stops early.

    Args:
        work: function of one item.
        items: items, started in order.
        num_parallel: number of simultaneous calls.
        cancel: called if the caller stops early; ends the calls that are running.

    Yields:
        Each item with its finished future, in order of completion.
    """
    with ThreadPoolExecutor(num_parallel) as pool:
        futures = {pool.submit(work, item): item for item in items}
        try:
            for future in as_completed(futures):
                yield futures[future], future
        except BaseException:
            # First, or the threads of ended calls would begin others.
            pool.shutdown(wait=False, cancel_futures=True)
            cancel()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
