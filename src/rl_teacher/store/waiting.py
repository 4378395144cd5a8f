"""Repetition of calls while the database, or the storage of the media, does not answer."""

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

HEARTBEATS = frozenset({"renew"})
"""Methods that are not repeated, because they are called every few seconds anyway."""

logger = logging.getLogger(__name__)


@contextmanager
def no_report(since: datetime) -> Iterator[None]:  # noqa: ARG001
    """Report no waiting."""
    yield


class Wait:
    """Repeats calls that fail because the database, or the storage of the media, does not answer.

    A call may have had its effect although its answer was lost, so only those that have no further
    effect when they are repeated may be used.

    Attributes:
        is_stopped: Returns whether to stop waiting, which raises the error.
        report: Entered, with the time since which there is no answer, in each thread that waits;
            left when there is one, or the wait is over.
        since: Time since which there is no answer; None while no thread waits.
    """

    def __init__(
        self, subject: str, timeout_s: float, retry_s: float, max_retry_s: float | None = None
    ) -> None:
        """Initialise.

        Args:
            subject: What is waited for, as the log names it.
            timeout_s: Time until the error is raised.
            retry_s: Time between the first two attempts.
            max_retry_s: Time between two attempts to which it doubles; None if it stays.
        """
        self.is_stopped: Callable[[], bool] = lambda: False
        self.report: Callable[[datetime], AbstractContextManager[None]] = no_report
        self.since: datetime | None = None
        self._subject = subject
        self._timeout_s, self._retry_s = timeout_s, retry_s
        self._max_retry_s = retry_s if max_retry_s is None else max_retry_s
        self._over = threading.Event()
        self._num_waiting = 0
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """True after `end`, or after the time limit."""
        return self._over.is_set()

    def end(self) -> None:
        """Repeat nothing any more, so that threads which wait end with an error."""
        self._over.set()

    def repeat(self, method: Callable[..., Result], *args: object, **kwargs: object) -> Result:
        """Call a method until there is an answer.

        Raises:
            StoreUnavailable: It has not answered in time, a stop was requested, or it cannot be
                used for a reason that does not pass by itself.
        """
        began_s = time.monotonic()
        try:
            return method(*args, **kwargs)
        except StoreUnavailable as error:
            if self.is_over or not error.is_transient:
                raise
            first = error
        since = datetime.now(UTC) - timedelta(seconds=time.monotonic() - began_s)
        with self.report(since), self._logged(since, first):
            retry_s = self._retry_s
            while True:
                self._pause(retry_s, began_s, first)
                retry_s = min(2.0 * retry_s, self._max_retry_s)
                try:
                    return method(*args, **kwargs)
                except StoreUnavailable as error:
                    if not error.is_transient:
                        raise

    def _pause(self, retry_s: float, began_s: float, error: StoreUnavailable) -> None:
        """Sleep before the next attempt, or end the wait and raise the error.

        A run that ends for this reason does not wait again.
        """
        waited_s = time.monotonic() - began_s
        if self.is_over or self.is_stopped() or waited_s >= self._timeout_s:
            self.end()
            raise StoreUnavailable(
                f"{error} The run has waited for {waited_s:.0f} s; the same command continues it.",
                error.public,
            ) from error
        self._over.wait(retry_s)

    @contextmanager
    def _logged(self, since: datetime, error: StoreUnavailable) -> Iterator[None]:
        """Log the begin and the end of a wait, once for all threads."""
        with self._lock:
            self._num_waiting += 1
            if self._num_waiting == 1:
                self.since = since
                logger.warning(
                    "Waiting for the %s since %s. %s",
                    self._subject,
                    f"{since.astimezone():%H:%M:%S}",
                    error,
                )
        try:
            yield
        finally:
            with self._lock:
                self._num_waiting -= 1
                if not self._num_waiting:
                    self.since = None
                    if not self.is_over:
                        waited_s = max(0.0, (datetime.now(UTC) - since).total_seconds())
                        logger.warning(
                            "The %s answers again, after %.0f s.", self._subject, waited_s
                        )


class DatabaseWait(Wait):
    """Repeats methods of a store, each of which is one transaction."""

    def __init__(self, timeout_s: float = TIMEOUT_S, retry_s: float = RETRY_S) -> None:
        """Initialise.

        Args:
            timeout_s: Time until the error is raised.
            retry_s: Time between two attempts.
        """
        super().__init__("database", timeout_s, retry_s)

    def repeat_methods(self, part: object) -> None:
        """Repeat the public methods of a part of a store; not context managers and heartbeats."""
        for name, method in inspect.getmembers(part, inspect.ismethod):
            is_transaction = not inspect.isgeneratorfunction(inspect.unwrap(method))
            if is_transaction and not name.startswith("_") and name not in HEARTBEATS:
                setattr(part, name, functools.partial(self.repeat, method))
