"""Elapsed time of a run, across restarts, and actions that are repeated in a thread."""

import contextlib
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

PACE_WINDOW_S, MIN_PACE_S = 30.0, 0.5
"""Training time over which the pace is measured, at most and at least."""


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


class Pace:
    """Steps per second over the last `PACE_WINDOW_S` seconds of training, waiting excluded.

    Attributes:
        steps_per_second: None until it is known: the first step, which compiles, does not count.
    """

    def __init__(self) -> None:
        self.steps_per_second: float | None = None
        self._points: deque[tuple[float, int]] = deque()

    def update(self, training_s: float, num_steps: int) -> None:
        """Add the training time, and the number of steps taken in it, after a step."""
        points = self._points
        points.append((training_s, num_steps))
        while len(points) > 2 and points[1][0] <= training_s - PACE_WINDOW_S:
            points.popleft()
        seconds = training_s - points[0][0]
        if seconds >= MIN_PACE_S:
            self.steps_per_second = (num_steps - points[0][1]) / seconds


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
