"""Five simulated labelers of known reliability: are the estimates right, and do weights help?"""

from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Any

from benchmarks.children import run_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, key_of, latest_by
from benchmarks.settings import teach_config
from benchmarks.tables import mean_and_spread, number, table

SETTINGS: dict[str, Any] = {
    "env_id": "ShortHopper-v1",
    "predictor": "human",
    "n_labels": 300,
    "num_timesteps": 800_000,
}
STUDY: dict[str, Any] = {"overlap": 0.3, "overlap_labelers": 3}
WEIGHTS = ("equal", "reliability")
SEEDS = (0, 1, 2, 3, 4)
WHO = "five labelers"
HOW = "python -m benchmarks.run study [--only equal reliability] [--seeds 0 1]"


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run: seed by seed, with both kinds of weights."""
    quick = {"num_timesteps": 12_000, "n_labels": 40} if options.is_quick else {}
    steps = {"num_timesteps": options.steps} if options.steps else {}
    labels = {"n_labels": options.labels[0]} if options.labels else {}
    for seed in options.seeds or SEEDS[: 1 if options.is_quick else None]:
        config = teach_config(SETTINGS, quick, steps, labels, options.settings, {"seed": seed})
        for weights in WEIGHTS:
            if options.wants(weights):
                job: dict[str, Any] = {"saved": config.saved(), "weights": weights, **STUDY}
                facts = {"weights": weights, "seed": seed}
                yield Cell(WHO, facts, job, partial(run_ours, "study", **job))


# --- report ---


def report(records: list[Record]) -> list[str]:
    """Build the tables of returns, agreement and reliability estimates."""
    newest = newest_group(records)
    config = newest[0]["settings"]["saved"]
    by_weights = {
        weights: [record for record in newest if record["weights"] == weights]
        for weights in WEIGHTS
    }
    return [
        f"`-p human -e {config['env_id']} -l {config['n_labels']} -t {config['num_timesteps']}`, "
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
                    mean_and_spread([record["final_return"] for record in group]),
                    mean_and_spread([record["auc"] for record in group]),
                    mean_and_spread([record[RIGHT_BY[weights]] for record in group]),
                ]
                for weights, group in by_weights.items()
                if group
            ],
        ),
        "",
        *table(
            ["labeler", "reliability", "share right", "estimate", "off by", "answers a run"],
            [labeler_row(name, newest) for name in newest[0]["labelers"]],
        ),
        "",
        f"Krippendorff's alpha {mean_and_spread([record['alpha'] for record in newest])}, of one "
        f"run {number(newest[-1]['alpha'])} ({number(newest[-1]['alpha_low'])} to "
        f"{number(newest[-1]['alpha_high'])}); raw agreement "
        f"{mean_and_spread([record['raw_agreement'] for record in newest])}; both over the "
        f"{number(fmean(record['overlapping'] for record in newest))} comparisons of a run that "
        "several answered. Estimates are of the end of a run, over both kinds of weights.",
        "",
    ]


RIGHT_BY = {"equal": "right_by_mean", "reliability": "right_by_posterior"}


def newest_group(records: list[Record]) -> list[Record]:
    """Return the records of all seeds with the latest settings."""

    def variant(record: Record) -> str:
        saved = {**record["settings"]["saved"], "seed": None}
        return key_of({**record["settings"], "saved": saved, "weights": None})

    return [each for each in latest_by(records, "key") if variant(each) == variant(records[-1])]


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
