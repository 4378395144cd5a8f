"""Grids of runs of ours and of a peer; each is recorded once per source and skipped afterwards."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from benchmarks import machine
from benchmarks.children import ChildFailed, Finished, in_parallel, run_peer
from benchmarks.options import Options
from benchmarks.peer_environments import PEERS
from benchmarks.records import Record, Records, key_of, source_of
from benchmarks.tables import number


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        who: ours, or the name of the peer.
        facts: fields that the tables are grouped by: environment, labels, seed.
        settings: everything else that the result depends on, except the commit.
        work: function that executes the run.
    """

    who: str
    facts: dict[str, Any]
    settings: dict[str, Any]
    work: Callable[[], Finished]

    @property
    def key(self) -> str:
        """Key of the run; equal for equal runs."""
        return key_of({"who": self.who, "facts": self.facts, "settings": self.settings})

    def __str__(self) -> str:
        return ", ".join([self.who, *(f"{name} {value}" for name, value in self.facts.items())])


def cell_of_peer(
    who: str, facts: dict[str, Any], peer: str, script: str, job: dict[str, Any]
) -> Cell:
    """Create a run of a script in `peers/`, which is repeated if it or its requirements change."""
    files = machine.digest(PEERS / f"{peer}.txt", PEERS / script)
    return Cell(who, facts, {**job, "files": files}, partial(run_peer, peer, script, **job))


def fill(cells: Iterable[Cell], options: Options, records: Records) -> None:
    """Execute the runs not recorded with this source yet, `options.parallel` at a time.

    Raises:
        ChildFailed: a run failed, or the source changed before or during it.
    """
    current = machine.source()

    def check_source(cell: Cell) -> None:
        if (now := machine.source()) != current:
            raise ChildFailed(
                f"The source changed from {current} to {now} before the end of {cell}. Use a "
                "worktree that stays as it is, or start again for runs of the new source."
            )

    def work(cell: Cell) -> Finished:
        check_source(cell)
        finished = cell.work()
        check_source(cell)
        return finished

    done = {each["key"] for each in records.all() if source_of(each) == current}
    done = set() if options.is_again else done
    missing = [cell for cell in cells if cell.key not in done]
    print(f"  {len(missing)} runs to do", flush=True)
    for cell, finished in in_parallel(work, missing, options.parallel or 1):
        kept_record = records.append(
            current,
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
        reached = kept_record.get("return", kept_record.get("final_return"))
        print(f"  {cell}: return {number(reached)} in {number(finished.wall_s)} s", flush=True)


def recorded_returns(cells: Iterable[Cell], recorded: list[Record]) -> dict[str, list[float]]:
    """Return the final returns of runs by environment; of repeated runs, the mean.

    Args:
        cells: runs, all of which were recorded with the present source.
        recorded: records.
    """
    source = machine.source()
    returns: dict[str, list[float]] = {}
    for cell in cells:
        of_cell = (r for r in recorded if r["key"] == cell.key and source_of(r) == source)
        mean = fmean(record["final_return"] for record in of_cell)
        returns.setdefault(cell.facts["env_id"], []).append(mean)
    return returns
