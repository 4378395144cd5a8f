"""How long an experiment has taken."""

import contextlib
import time
from collections.abc import Iterator


class RunTimer:
    """How long an experiment has taken, over all its runs, in seconds."""

    def __init__(self) -> None:
        self._launched = time.monotonic()
        self._began_training: float | None = None
        self._whole_before = self._training_before = 0.0

    def begin_training(self) -> None:
        """The first comparisons are behind."""
        self._began_training = time.monotonic()

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """What is done meanwhile is no training."""
        began = time.monotonic()
        try:
            yield
        finally:
            if self._began_training is not None:
                self._began_training += time.monotonic() - began

    @property
    def whole_s(self) -> float:
        """Since the first launch, while it ran."""
        return self._whole_before + time.monotonic() - self._launched

    @property
    def this_training_s(self) -> float:
        """Of training, in this run."""
        began = self._began_training
        return 0.0 if began is None else time.monotonic() - began

    @property
    def training_s(self) -> float:
        """Of training, over all runs."""
        return self._training_before + self.this_training_s

    def to_json(self) -> dict[str, float]:
        """To be saved."""
        return {"whole_s": self.whole_s, "training_s": self.training_s}

    def go_on(self, saved: dict[str, float]) -> None:
        """After a restart."""
        self._whole_before, self._training_before = saved["whole_s"], saved["training_s"]
