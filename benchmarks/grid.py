"""Many runs of ours and of a peer: each once, recorded when it is done, skipped when it was."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.children import Finished, in_parallel
from benchmarks.options import Options
from benchmarks.records import Records, key_of
from benchmarks.tables import number


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        who: ours, or the peer's name.
        facts: what the tables are made by: environment, labels, seed, ...
        settings: everything it depends on; with `who` and `facts` the run's key. No commit.
        work: does it.
    """

    who: str
    facts: dict[str, Any]
    settings: dict[str, Any]
    work: Callable[[], Finished]

    @property
    def key(self) -> str:
        """Equal for equal runs."""
        return key_of({"who": self.who, "facts": self.facts, "settings": self.settings})

    def __str__(self) -> str:
        return ", ".join([self.who, *(f"{name} {value}" for name, value in self.facts.items())])


def fill(cells: Iterable[Cell], options: Options, records: Records) -> None:
    """Do the runs that are not recorded yet, `options.parallel` at a time."""
    done = set() if options.is_again else {record["key"] for record in records.all()}
    missing = [cell for cell in cells if cell.key not in done]
    print(f"  {len(missing)} runs to do", flush=True)
    for cell, finished in in_parallel(lambda cell: cell.work(), missing, options.parallel or 1):
        kept = records.append(
            run=options.run,
            who=cell.who,
            **cell.facts,
            key=cell.key,
            settings=cell.settings,
            parallel=options.parallel or 1,
            process_s=finished.wall_s,
            peak_mb=finished.peak_mb,
            **finished.figures,
        )
        reached = kept.get("return", kept.get("final_return"))
        print(f"  {cell}: return {number(reached)} in {number(finished.wall_s)} s", flush=True)
