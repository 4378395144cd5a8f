"""Return of `examples/core_loop.py`: learning from labels against learning from the true reward."""

from collections.abc import Iterator
from functools import partial

from benchmarks import machine
from benchmarks.children import run_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.tables import number, over_seeds, seeds_of, table

ENV_ID = "ShortHopper-v1"
EXAMPLE = machine.ROOT / "examples" / "core_loop.py"
LABELS = (300, 0)
SEEDS = (0, 1, 2, 3, 4)
STEPS = 400_000
HOW = "python -m benchmarks.run core_loop [--labels 300 0] [--seeds 0 1 2 3 4] [--steps 400000]"


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run, seed by seed."""
    steps = options.steps or (20_480 if options.is_quick else STEPS)
    for seed in options.seeds or options.limited(SEEDS):
        for labels in options.labels or LABELS:
            facts = {"labels": labels, "seed": seed}
            job = {"num_steps": steps, "num_labels": labels, "seed": seed}
            settings = {"steps": steps, "example": machine.digest(EXAMPLE)}
            yield Cell("core_loop.py", facts, settings, partial(run_ours, "core_loop", **job))


def report(records: list[Record]) -> list[str]:
    """Build the table of returns by number of labels, with all seeds."""
    rows = [
        [
            f"{group[0]['labels']} labels" if group[0]["labels"] else "true reward",
            f"{group[0]['settings']['steps']:,}",
            over_seeds(group, "final_return"),
            ", ".join(number(record["final_return"]) for record in group),
            seeds_of(group),
            source_of(group[0]),
        ]
        for group in groups(records, "labels")
    ]
    return [
        f"{ENV_ID}. True returns, means of the last 100 training episodes. Interquartile mean over "
        "seeds with its 95 % bootstrap interval.",
        "",
        *table(["", "steps", "return", "of each seed", "seeds", "source"], rows),
        "",
    ]
