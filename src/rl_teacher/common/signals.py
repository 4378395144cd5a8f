"""Graceful shutdown: Ctrl-C and SIGTERM request a stop."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class StopRequest:
    """A flag that is true once a stop was requested."""

    def __init__(self) -> None:
        self._is_requested = False

    def __bool__(self) -> bool:
        return self._is_requested

    def request(self) -> None:
        """Request a stop after the current step."""
        self._is_requested = True


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM into a stop request; a second one interrupts at once."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may install signal handlers
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, frame: object) -> None:  # noqa: ARG001
        stop.request()
        signal.signal(number, signal.default_int_handler)

    try:
        for number in before:
            signal.signal(number, on_signal)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
