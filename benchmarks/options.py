"""Command-line options of the benchmarks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """Flags of `python -m benchmarks.run`; empty ones leave the choice to the benchmark.

    Attributes:
        run: identifier of this run in its records.
        is_quick: use tiny settings that only check that the benchmark works.
        only: environment ids or names of parts.
        labels: numbers of labels; 0 is the true reward.
        seeds: seeds of the runs.
        parallel: number of simultaneous runs.
        steps: environment steps of a run.
        settings: settings of our runs by dotted name, which override those of the benchmark.
        is_again: repeat what is already recorded.
        has_controls: also train on predictors that are never fitted, where the benchmark does.
    """

    run: str
    is_quick: bool = False
    only: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    parallel: int = 0
    steps: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_again: bool = False
    has_controls: bool = True

    @property
    def workers(self) -> int | None:
        """Threads of each of our runs: one if they share two cores, otherwise the default."""
        return 1 if self.parallel > 1 else None

    @property
    def changes(self) -> dict[str, Any]:
        """Field of a record that names the changed settings, if there are any."""
        return {"changes": dict(self.settings)} if self.settings else {}

    def limited(self, usual: Sequence[T], num: int = 1) -> Sequence[T]:
        """Return all of the usual values, or in a quick run the first ones."""
        return usual[:num] if self.is_quick else usual

    def wants(self, part: str) -> bool:
        """Return True if a part of the benchmark is selected."""
        return not self.only or part in self.only
