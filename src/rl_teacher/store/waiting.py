"""Repetition of transactions while the database does not answer, as during a restart."""

import functools
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from rl_teacher.common.errors import StoreUnavailable

Result = TypeVar("Result")

TIMEOUT_S = 600.0
"""Time without an answer of the database after which a run ends."""

RETRY_S = 0.5

HEARTBEATS = frozenset({"confirm_status", "renew"})
"""Methods that are not repeated, because they are called every few seconds anyway."""

logger = logging.getLogger(__name__)


@contextmanager
def no_report(since: datetime) -> Iterator[None]:  # noqa: ARG001
    """Report no waiting."""
    yield


class DatabaseWait:
    """Repeats methods of a store that fail because the database is locked or does not answer.

    Each method is one transaction. It may have been committed although its answer was lost, so
    only methods that have no further effect when they are repeated may be used.

    Attributes:
        is_stopped: Returns whether to stop waiting, which raises the error.
        report: Entered, with the time since which the database does not answer, in each thread
            that waits; left when it answers, or the wait is over.
    """

    def __init__(self, timeout_s: float = TIMEOUT_S, retry_s: float = RETRY_S) -> None:
        """Initialise.

        Args:
            timeout_s: Time until the error is raised.
            retry_s: Time between two attempts.
        """
        self.is_stopped: Callable[[], bool] = lambda: False
        self.report: Callable[[datetime], AbstractContextManager[None]] = no_report
        self._timeout_s, self._retry_s = timeout_s, retry_s
        self._is_over = False
        self._num_waiting = 0
        self._lock = threading.Lock()

    def repeat_methods(self, part: object) -> None:
        """Repeat the public methods of a part of a store; not context managers and heartbeats."""
        for name, method in inspect.getmembers(part, inspect.ismethod):
            is_transaction = not inspect.isgeneratorfunction(inspect.unwrap(method))
            if is_transaction and not name.startswith("_") and name not in HEARTBEATS:
                setattr(part, name, functools.partial(self.repeat, method))

    def end(self) -> None:
        """Repeat nothing any more, so that threads which wait end with an error."""
        self._is_over = True

    def repeat(self, method: Callable[..., Result], *args: object, **kwargs: object) -> Result:
        """Call a method until the database answers.

        Raises:
            StoreUnavailable: It has not answered in time, a stop was requested, or it cannot be
                used for a reason that does not pass by itself.
        """
        began_s = time.monotonic()
        try:
            return method(*args, **kwargs)
        except StoreUnavailable as error:
            if self._is_over or not error.is_transient:
                raise
            first = error
        since = datetime.now(UTC) - timedelta(seconds=time.monotonic() - began_s)
        with self.report(since), self._logged(since, first):
            while True:
                self._pause(began_s, first)
                try:
                    return method(*args, **kwargs)
                except StoreUnavailable as error:
                    if not error.is_transient:
                        raise

    def _pause(self, began_s: float, error: StoreUnavailable) -> None:
        """Sleep before the next attempt, or end the wait and raise the error.

        A run that ends for this reason does not wait again.
        """
        waited_s = time.monotonic() - began_s
        if self._is_over or self.is_stopped() or waited_s >= self._timeout_s:
            self.end()
            raise StoreUnavailable(
                f"{error} The run has waited for {waited_s:.0f} s; the same command continues it.",
                error.public,
            ) from error
        time.sleep(self._retry_s)

    @contextmanager
    def _logged(self, since: datetime, error: StoreUnavailable) -> Iterator[None]:
        """Log the begin and the end of a wait, once for all threads."""
        with self._lock:
            self._num_waiting += 1
            if self._num_waiting == 1:
                logger.warning(
                    "Waiting for the database since %s. %s", f"{since.astimezone():%H:%M:%S}", error
                )
        try:
            yield
        finally:
            with self._lock:
                self._num_waiting -= 1
                if not self._num_waiting and not self._is_over:
                    waited_s = (datetime.now(UTC) - since).total_seconds()
                    logger.warning("The database answers again, after %.0f s.", max(0.0, waited_s))
