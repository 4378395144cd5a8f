"""Elapsed time of a run, across restarts."""

import contextlib
import time
from collections.abc import Iterator


class RunTimer:
    """Wall time of an experiment over all its runs, in seconds; pauses are not training time."""

    def __init__(self) -> None:
        self._launched = time.monotonic()
        self._is_paused = False
        self._training_began: float | None = None
        self._earlier_wall_s = self._earlier_training_s = 0.0

    def begin_training(self) -> None:
        """Start to count training time."""
        self._training_began = time.monotonic()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time spent in this context from training time; contexts may be nested."""
        if self._is_paused:
            yield
            return
        began, self._is_paused = time.monotonic(), True
        try:
            yield
        finally:
            self._is_paused = False
            if self._training_began is not None:
                # A later start leaves the pause out of every difference.
                self._training_began += time.monotonic() - began

    @property
    def wall_s(self) -> float:
        """Time while the experiment ran, over all runs."""
        return self._earlier_wall_s + time.monotonic() - self._launched

    @property
    def training_this_run_s(self) -> float:
        """Training time of this run."""
        began = self._training_began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def training_s(self) -> float:
        """Training time over all runs."""
        return self._earlier_training_s + self.training_this_run_s

    def to_json(self) -> dict[str, float]:
        """Return the totals for a checkpoint."""
        return {"wall_s": self.wall_s, "training_s": self.training_s}

    def resume(self, saved: dict[str, float]) -> None:
        """Add the totals of a checkpoint to those of this run."""
        self._earlier_wall_s, self._earlier_training_s = saved["wall_s"], saved["training_s"]
