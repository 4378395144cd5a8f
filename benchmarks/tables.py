"""Formatting of metrics and Markdown tables for RESULTS.md and the terminal."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.statistics import Estimate, interquartile_mean

NONE = "-"


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


def over_seeds(records: Iterable[Mapping[str, Any]], metric: str | Callable[..., float]) -> str:
    """Format the interquartile mean over seeds of a field, or of a function of the record."""
    of: Callable[..., Any] = itemgetter(metric) if isinstance(metric, str) else metric
    known = {r["seed"]: of(r) for r in records if of(r) is not None}
    return interval(interquartile_mean({"": known})) if known else NONE


def seeds_of(records: Iterable[Mapping[str, Any]]) -> str:
    """Format the seeds as 0, 1, 2."""
    return ", ".join(str(record["seed"]) for record in records)


def interval(estimate: Estimate, form: Callable[[float], str] = number) -> str:
    """Format a value with its 95 % interval as 1,035 (980 to 1,071), or alone if it has none."""
    if not math.isfinite(estimate.low):
        return form(estimate.value)
    return f"{form(estimate.value)} ({form(estimate.low)} to {form(estimate.high)})"
