"""Hopper backflips, learned from comparisons alone: the true reward does not reward them."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.children import Finished, run_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.settings import teach_config
from benchmarks.tables import NONE, average, number, over_seeds, table

SETTINGS: dict[str, Any] = {
    "env_id": "ShortHopper-v1",
    "predictor": "synth",
    "teacher": "backflip",
    "n_labels": 700,
    "num_timesteps": 1_000_000,
    "clip_length": 2.5,
}
SEEDS = (0, 1, 2, 3, 4)
EPISODES = 10
SECONDS = 10.0
"""Time in which turns are counted, at the speed of clips."""
MODES = ("deterministic", "exploring")
HOW = (
    "python -m benchmarks.run backflip [--seeds 0 1 2 3 4] [--parallel 2] "
    "[--set clip_length=2.0 ...]"
)


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield a run for each seed."""
    quick = {"num_timesteps": 40_000, "n_labels": 60} if options.is_quick else {}
    steps = {"num_timesteps": options.steps} if options.steps else {}
    for seed in options.seeds or options.limited(SEEDS):
        config = teach_config(SETTINGS, quick, steps, options.settings, {"seed": seed})
        work = partial(_train_and_count, config.saved(), options.workers)
        yield Cell("rl-teacher", {"seed": seed, "seconds": SECONDS}, config.saved(), work)


def _train_and_count(saved: dict[str, Any], workers: int | None) -> Finished:
    """Train an agent and count its turns."""
    with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as home:
        taught = run_ours("teach", home, saved=saved, workers=workers)
        flips = run_ours("flips", home, saved=saved, num_episodes=EPISODES, seconds=SECONDS)
    return replace(taught, figures=taught.figures | flips.figures)


def report(records: list[Record]) -> list[str]:
    """Build the tables of turns per episode, one for each group of equal settings and source."""
    return [line for group in groups(records, "parallel") for line in _turns(group)]


def _turns(records: list[Record]) -> list[str]:
    settings = records[0]["settings"]
    fraction = settings.get("schedule_fraction")
    schedule = "" if fraction is None else f" --schedule-fraction {fraction:g}"
    shared = ", two at a time" if records[0].get("parallel", 1) > 1 else ""
    rows = []
    for name in MODES:
        rows += [
            [
                f"seed {record['seed']}, {name}",
                number(turns(name, record)),
                f"{min(record[name]['backward_turns'])} to {max(record[name]['backward_turns'])}",
                number(average(record[name]["forward_turns"])),
                number(average(record[name]["mean_height"])),
                record["labels_answered"],
                number(record["process_s"]),
            ]
            for record in records
        ]
        over_all = over_seeds(records, partial(turns, name))
        rows.append([f"**all seeds, {name}**", over_all, *[NONE] * 5])
    return [
        f"`-a {settings['agent']} --teacher {settings['teacher']} -e {settings['env_id']} "
        f"-l {settings['n_labels']} -t {settings['num_timesteps']} -c {settings['clip_length']}"
        f"{schedule}`, "
        f"source {source_of(records[0])}{shared}; then {EPISODES} episodes of "
        f"{records[0].get('seconds', 7.5):g} s with the most likely actions, and as many with "
        "exploration. A full turn is 2 pi of the torso's pitch backwards, net of forward turns. Of "
        "all seeds: interquartile mean with its 95 % bootstrap interval. No other library has such "
        "a task.",
        "",
        *table(
            ["", "turns per episode", "range", "forwards", "mean height m", "labels", "wall s"],
            rows,
        ),
        "",
    ]


def turns(name: str, record: Record) -> float:
    """Return the mean number of backward turns of an episode, deterministic or exploring."""
    return average(record[name]["backward_turns"])
