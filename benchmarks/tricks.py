"""Tricks that no true reward rewards, learned from comparisons alone."""

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

BACKFLIP = "backflip"
SHARED: dict[str, Any] = {
    "predictor": "synth",
    "agent": "sac",
    "n_labels": 400,
    "num_timesteps": 250_000,
    "schedule_fraction": 1.0,
}
TRICKS: dict[str, dict[str, Any]] = {
    BACKFLIP: {
        "env_id": "ShortHopper-v1",
        "clip_length": 2.5,
        "n_labels": 200,
        "num_timesteps": 160_000,
    },
    "ballerina": {"env_id": "ShortWalker-v1"},
    "opposite": {"env_id": "Reacher-v1"},
    "tapdance": {"env_id": "ShortCheetah-v1"},
}
"""Settings by task teacher."""
SEEDS = (10, 11, 12, 13, 14)
NUM_PARALLEL = 2
EPISODES = 10
SECONDS = 10.0
"""Time in which turns are counted, at the speed of clips."""
MODES = ("deterministic", "exploring")
HOW = (
    "python -m benchmarks.run tricks [--only backflip ...] [--seeds 10 11 12 13 14] "
    "[--set clip_length=2.0 ...]"
)


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet, two at a time, each with one thread."""
    options = replace(options, parallel=options.parallel or NUM_PARALLEL)
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield a run for each trick and seed."""
    quick = {"num_timesteps": 40_000, "n_labels": 60} if options.is_quick else {}
    steps = {"num_timesteps": options.steps} if options.steps else {}
    for trick in filter(options.wants, TRICKS):
        settings = SHARED | TRICKS[trick] | {"teacher": trick}
        for seed in options.seeds or options.limited(SEEDS):
            config = teach_config(settings, quick, steps, options.settings, {"seed": seed})
            work = partial(_train_and_measure, config.saved(), options.workers)
            yield Cell("rl-teacher", {"seed": seed, "seconds": SECONDS}, config.saved(), work)


def _train_and_measure(saved: dict[str, Any], workers: int | None) -> Finished:
    """Train an agent; measure its episodes, and count the turns of a backflip."""
    with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as home:
        taught = run_ours("teach", home, saved=saved, workers=workers)
        played = run_ours("task_measure", home, saved=saved, num_episodes=EPISODES)
        figures = taught.figures | played.figures
        if saved["teacher"] == BACKFLIP:
            flips = run_ours("flips", home, saved=saved, num_episodes=EPISODES, seconds=SECONDS)
            figures |= flips.figures
    return replace(taught, figures=figures)


def report(records: list[Record]) -> list[str]:
    """Build a table for each group of equal settings and source."""
    lines = []
    for group in groups(records, "parallel"):
        lines += _turns(group) if group[0]["settings"]["teacher"] == BACKFLIP else _measures(group)
    return lines


def _measures(records: list[Record]) -> list[str]:
    rows = [
        [
            f"seed {record['seed']}",
            number(mean_measure(record)),
            f"{min(record['measure']):.2f} to {max(record['measure']):.2f}",
            record["labels_answered"],
            number(record["process_s"]),
        ]
        for record in records
    ]
    return [
        f"{_command(records)}; {EPISODES} episodes of the most likely actions, with the "
        "[measure](../docs/teachers.md#task-teachers) of each.",
        "",
        *table(
            ["", "measure", "range", "labels", "wall s"],
            [*rows, ["**all seeds**", over_seeds(records, mean_measure), *[NONE] * 3]],
        ),
        "",
    ]


def mean_measure(record: Record) -> float:
    """Return the mean measure of an episode."""
    return average(record["measure"])


def _turns(records: list[Record]) -> list[str]:
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
        f"{_command(records)}; then {EPISODES} episodes of "
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


def _command(records: list[Record]) -> str:
    """Return the settings of a group as flags, with its source."""
    settings = records[0]["settings"]
    fraction, errors = settings.get("schedule_fraction"), settings.get("teacher_strength")
    optional = "" if fraction is None else f" --schedule-fraction {fraction:g}"
    optional += "" if errors is None else f" --teacher-strength {errors:g}"
    shared = ", two at a time" if records[0].get("parallel", 1) > 1 else ""
    return (
        f"`-a {settings['agent']} --teacher {settings['teacher']} -e {settings['env_id']} "
        f"-l {settings['n_labels']} -t {settings['num_timesteps']} -c {settings['clip_length']}"
        f"{optional}`, source {source_of(records[0])}{shared}"
    )


def turns(name: str, record: Record) -> float:
    """Return the mean number of backward turns of an episode, deterministic or exploring."""
    return average(record[name]["backward_turns"])
