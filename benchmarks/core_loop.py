"""Return of `examples/core_loop.py`: learning from labels against learning from the true reward."""

from collections.abc import Iterator
from functools import partial

from benchmarks.children import run_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, latest_by
from benchmarks.statistics import interquartile_mean
from benchmarks.tables import interval, number, table

ENV_ID = "ShortHopper-v1"
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
    for seed in options.seeds or SEEDS[: 1 if options.is_quick else None]:
        for labels in options.labels or LABELS:
            facts = {"labels": labels, "seed": seed}
            job = {"num_steps": steps, "num_labels": labels, "seed": seed}
            yield Cell(
                "core_loop.py", facts, {"steps": steps}, partial(run_ours, "core_loop", **job)
            )


def report(records: list[Record]) -> list[str]:
    """Build the table of returns by number of labels, with all seeds."""
    steps = records[-1]["settings"]["steps"]
    same = [record for record in records if record["settings"]["steps"] == steps]
    rows = []
    for labels in LABELS:
        group = [each for each in latest_by(same, "key") if each["labels"] == labels]
        if not group:
            continue
        group.sort(key=lambda record: record["seed"])
        returns = {record["seed"]: record["final_return"] for record in group}
        rows.append(
            [
                f"{labels} labels" if labels else "true reward",
                interval(interquartile_mean({ENV_ID: returns})),
                ", ".join(map(number, returns.values())),
                ", ".join(map(str, returns)),
            ]
        )
    return [
        f"{ENV_ID}, {steps:,} steps. True returns, means of the last 100 training episodes. "
        "Interquartile mean over seeds, and its 95 % interval from 50,000 bootstrap samples of the "
        "seeds (Agarwal et al. 2021).",
        "",
        *table(["", "return (95 % interval)", "of each seed", "seeds"], rows),
        "",
    ]
