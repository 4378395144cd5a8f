"""Formatting of metrics and Markdown tables for RESULTS.md and the terminal."""

import math
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.records import Record
from rl_teacher.report.statistics import Estimate, Scores, interquartile_mean

NONE = "-"
MIN_SEEDS = 5
"""Seeds from which on a value has an interval; the bootstrap of fewer is too narrow."""


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Build the lines of a Markdown table; the first column is text, the others are numbers."""
    rules = [":--", *["--:"] * (len(headings) - 1)]
    lines = [headings, rules, *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]


def number(value: float | None) -> str:
    """Format a number as 12,345 or 123 or 12.3 or 0.12."""
    if value is None or not math.isfinite(value):
        return NONE
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def ratio(value: float | None) -> str:
    """Format a ratio as 4.5x."""
    return NONE if value is None or not math.isfinite(value) else f"{value:.2f}x"


def mean_and_spread(values: Sequence[float]) -> str:
    """Format mean and standard deviation over seeds as 1,035 ± 42."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return NONE
    spread = f" ± {number(stdev(known))}" if len(known) > 1 else ""
    return f"{number(fmean(known))}{spread}"


def middle(values: Iterable[float | None]) -> float:
    """Return the median of the values that are not None; NaN if there are none."""
    known = [value for value in values if value is not None]
    return median(known) if known else math.nan


def average(values: Iterable[float | None]) -> float:
    """Return the mean of the values that are not None; NaN if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else math.nan


def over_seeds(records: Iterable[Record], metric: str | Callable[..., float | None]) -> str:
    """Format the interquartile mean over seeds of a field, or of a function of the record."""
    means = seed_means(records, metric)
    return interval(interquartile_mean, {"": means}) if means else NONE


def seed_means(
    records: Iterable[Record], metric: str | Callable[..., float | None]
) -> dict[int, float]:
    """Return the mean of each seed of a field, or of a function of the record.

    Equal values of a seed count once: they come from the same run, repeated with a later source.
    """
    of: Callable[..., Any] = itemgetter(metric) if isinstance(metric, str) else metric
    known: dict[int, set[float]] = {}
    for record in records:
        if of(record) is not None:
            known.setdefault(record["seed"], set()).add(of(record))
    return {seed: fmean(values) for seed, values in known.items()}


def scores_of(records: Iterable[Record], metric: Callable[[Record], float]) -> Scores:
    """Return a metric by task and seed; of repeated runs, the mean."""
    values: dict[str, dict[int, list[float]]] = {}
    for record in records:
        of_task = values.setdefault(record["env_id"], {})
        of_task.setdefault(record.get("seed", 0), []).append(metric(record))
    return {
        env_id: {seed: fmean(repeated) for seed, repeated in seeds.items()}
        for env_id, seeds in values.items()
    }


def seeds_of(records: Iterable[Record]) -> str:
    """Format the seeds as 0, 1, 2."""
    return ", ".join(str(seed) for seed in dict.fromkeys(record["seed"] for record in records))


def named(name: str, record: Record) -> str:
    """Format the name of a row, with the settings that `--set` changed."""
    changes = [f"{setting}={value}" for setting, value in record.get("changes", {}).items()]
    return ", ".join([name, *changes])


def interval(statistic: Callable[..., Estimate], *scores: Scores) -> str:
    """Format a statistic with its 95 % interval as 1,035 (980 to 1,071).

    With fewer than `MIN_SEEDS` seeds, the value is alone.
    """
    estimate = statistic(*scores)
    if min(len(runs) for runs in scores[0].values()) < MIN_SEEDS:
        return number(estimate.value)
    return f"{number(estimate.value)} ({number(estimate.low)} to {number(estimate.high)})"
