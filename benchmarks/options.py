"""What a benchmark is told on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Options:
    """The flags of `python -m benchmarks.run`; empty ones mean the benchmark's own choice.

    Attributes:
        run: names this run, in every record of it.
        is_quick: tiny settings that only show that it works.
        only: environment ids, or names of parts.
        labels: numbers of labels; 0 is the true reward.
        seeds: of the runs.
        parallel: runs at a time.
        steps: environment steps of a run.
        settings: of our runs, by dotted name, over the benchmark's own.
        is_again: do over what is already recorded.
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

    def wants(self, part: str) -> bool:
        """Whether a part of the benchmark is asked for."""
        return not self.only or part in self.only
