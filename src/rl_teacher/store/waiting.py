"""Repetition of calls while the database, or the storage of the media, does not answer."""

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TypeVar

from tenacity import (
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_delay,
    wait_exponential,
)

from rl_teacher.common.errors import StoreUnavailable

Result = TypeVar("Result")

TIMEOUT_S = 600.0
"""Time without an answer of the database after which a run ends."""

RETRY_S = 0.5

logger = logging.getLogger(__name__)


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
        self.report: Callable[[datetime], AbstractContextManager[None]] = lambda _: nullcontext()
        self.since: datetime | None = None
        self._subject = subject
        self._over = threading.Event()
        self._num_waiting = 0
        self._lock = threading.Lock()
        is_late = stop_after_delay(timeout_s)
        self._retrying = Retrying(
            retry=retry_if_exception(is_transient),
            wait=wait_exponential(retry_s, max=max_retry_s or retry_s),
            stop=lambda state: self.is_over or self.is_stopped() or is_late(state),
            sleep=sleep_using_event(self._over),
            reraise=True,
        )

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
        try:
            return method(*args, **kwargs)
        except StoreUnavailable as error:
            if self.is_over or not error.is_transient:
                raise
            first = error
        with self._waiting(first) as since, self.report(since):
            try:
                return self._retrying(method, *args, **kwargs)
            except StoreUnavailable as error:
                if not error.is_transient:
                    raise
                self.end()  # A run that ends for this reason does not wait again.
                raise StoreUnavailable(
                    f"{error} The same command continues the run.", error.public
                ) from error

    @contextmanager
    def _waiting(self, error: StoreUnavailable) -> Iterator[datetime]:
        """Log the begin and the end of a wait, once for all threads."""
        since = datetime.now(UTC)
        with self._lock:
            self._num_waiting += 1
            if self._num_waiting == 1:
                self.since = since
                logger.warning("Waiting for the %s. %s", self._subject, error)
        try:
            yield since
        finally:
            with self._lock:
                self._num_waiting -= 1
                if not self._num_waiting:
                    self.since = None
                    if not self.is_over:
                        logger.warning("The %s answers again.", self._subject)


def is_transient(error: BaseException) -> bool:
    """Return whether an error may pass by itself."""
    return isinstance(error, StoreUnavailable) and error.is_transient


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
        """Repeat the public methods of a part of a store; not context managers."""
        for name, method in inspect.getmembers(part, inspect.ismethod):
            is_transaction = not inspect.isgeneratorfunction(inspect.unwrap(method))
            if is_transaction and not name.startswith("_"):
                setattr(part, name, functools.partial(self.repeat, method))
