"""Elapsed time of a run, across restarts, and actions that are repeated in a thread."""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def repeated(action: Callable[[], object], every_s: float, name: str) -> Iterator[None]:
    """Call an action every few seconds within the context, in a thread of this name."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(every_s):
            action()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class RunTimer:
    """Wall time of an experiment over all its runs, in seconds; pauses are not training time."""

    def __init__(self) -> None:
        self._launched = time.monotonic()
        self._paused_at: float | None = None
        self._training_began: float | None = None
        self._earlier_wall_s = self._earlier_training_s = 0.0
        self._parts_s: defaultdict[str, float] = defaultdict(float)

    def begin_training(self) -> None:
        """Start to count training time."""
        self._training_began = time.monotonic()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time spent in this context from training time; contexts may be nested."""
        if self._paused_at is not None:
            yield
            return
        began = self._paused_at = time.monotonic()
        try:
            yield
        finally:
            self._paused_at = None
            if self._training_began is not None:
                # A later start leaves the pause out of every difference.
                self._training_began += time.monotonic() - began

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time spent in this context as a part of the run, such as `fit`."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._parts_s[name] += time.monotonic() - began

    @property
    def parts_s(self) -> dict[str, float]:
        """Time of each part over all runs."""
        return dict(self._parts_s)

    @property
    def wall_s(self) -> float:
        """Time while the experiment ran, over all runs."""
        return self._earlier_wall_s + time.monotonic() - self._launched

    @property
    def training_this_run_s(self) -> float:
        """Training time of this run."""
        if self._training_began is None:
            return 0.0
        now = time.monotonic() if self._paused_at is None else self._paused_at
        return now - self._training_began

    @property
    def training_s(self) -> float:
        """Training time over all runs."""
        return self._earlier_training_s + self.training_this_run_s

    def to_json(self) -> dict[str, Any]:
        """Return the totals for a checkpoint."""
        return {"wall_s": self.wall_s, "training_s": self.training_s, "parts_s": self.parts_s}

    def resume(self, saved: dict[str, Any]) -> None:
        """Add the totals of a checkpoint to those of this run.

        Raises:
            LookupError, TypeError, ValueError: one is missing, or is no number.
        """
        for name, seconds in saved["parts_s"].items():
            self._parts_s[name] += seconds
        self._earlier_wall_s = float(saved["wall_s"])
        self._earlier_training_s = float(saved["training_s"])
