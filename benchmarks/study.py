"""Five simulated labelers of known reliability: are the estimates right?"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import machine
from benchmarks.children import run_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.settings import teach_config
from benchmarks.tables import mean_and_spread, number, over_seeds, table

SETTINGS: dict[str, Any] = {
    "env_id": "ShortHopper-v1",
    "predictor": "human",
    "n_labels": 300,
    "num_timesteps": 800_000,
}
STUDY: dict[str, Any] = {"overlap": 0.3, "overlap_labelers": 3}
LABELERS = Path(__file__).with_name("simulated_labelers.py")
WEIGHTS = ("equal", "reliability")
"""Weights of labelers who disagree, in the records: later runs have equal ones."""
SEEDS = (0, 1, 2, 3, 4)
WHO = "five labelers"
HOW = "python -m benchmarks.run study [--seeds 0 1]"


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run: seed by seed."""
    quick = {"num_timesteps": 12_000, "n_labels": 40} if options.is_quick else {}
    steps = {"num_timesteps": options.steps} if options.steps else {}
    labels = {"n_labels": options.labels[0]} if options.labels else {}
    for seed in options.seeds or options.limited(SEEDS):
        config = teach_config(SETTINGS, quick, steps, labels, options.settings, {"seed": seed})
        job: dict[str, Any] = {"saved": config.saved(), **STUDY}
        settings = {**job, "labelers": machine.digest(LABELERS)}
        facts = {"weights": "equal", "seed": seed}
        yield Cell(WHO, facts, settings, partial(run_ours, "study", **job))


# --- report ---


def report(records: list[Record]) -> list[str]:
    """Build the tables of every group of runs with equal settings and source."""
    return [line for group in groups(records, ignored=["weights"]) for line in _tables(group)]


def _tables(records: list[Record]) -> list[str]:
    """Build the tables of returns, agreement and reliability estimates."""
    config = records[0]["settings"]["saved"]
    by_weights = {
        weights: [record for record in records if record["weights"] == weights]
        for weights in WEIGHTS
    }
    return [
        f"Source {source_of(records[0])}. `-p human -e {config['env_id']} "
        f"-l {config['n_labels']} -t {config['num_timesteps']}`, "
        f"{STUDY['overlap']:.0%} of the comparisons answered by {STUDY['overlap_labelers']} of "
        "five simulated labelers, the others by one of them. A labeler names the side with the "
        "higher true return as often as its reliability says. They answer through the store, "
        "without HTTP, in the same process; who answers what depends on the clock, so the same "
        "seed does not give the same run.",
        "",
        *table(
            ["weights", "runs", "final return", "mean over training", "targets on the right side"],
            [
                [
                    weights,
                    len(group),
                    over_seeds(group, "final_return"),
                    over_seeds(group, "auc"),
                    over_seeds(group, RIGHT_BY[weights]),
                ]
                for weights, group in by_weights.items()
                if group
            ],
        ),
        "",
        *table(
            ["labeler", "reliability", "share right", "estimate", "off by", "answers a run"],
            [labeler_row(name, records) for name in records[0]["labelers"]],
        ),
        "",
        f"Krippendorff's alpha {mean_and_spread([record['alpha'] for record in records])}, of one "
        f"run {number(records[-1]['alpha'])} ({number(records[-1]['alpha_low'])} to "
        f"{number(records[-1]['alpha_high'])}); raw agreement "
        f"{mean_and_spread([record['raw_agreement'] for record in records])}; both over the "
        f"{number(fmean(record['overlapping'] for record in records))} comparisons of a run that "
        "several answered. Estimates are of the end of a run, over both kinds of weights. Returns "
        "and shares of targets: interquartile means over seeds with 95 % bootstrap intervals.",
        "",
    ]


RIGHT_BY = {"equal": "right_by_mean", "reliability": "right_by_posterior"}


def labeler_row(name: str, records: list[Record]) -> list[Any]:
    """Build the row of one labeler over all runs, with the mean absolute error of the estimates."""
    results = [record["labelers"][name] for record in records]
    return [
        name,
        number(results[0]["reliability"]),
        mean_and_spread([each["right"] for each in results]),
        mean_and_spread([each["estimate"] for each in results]),
        number(fmean(abs(each["estimate"] - each["reliability"]) for each in results)),
        number(fmean(each["answers"] for each in results)),
    ]
