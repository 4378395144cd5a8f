"""Metrics for reports: their points, and their formatting as 412,000 steps, 3 min 20 s, 87 %."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_teacher.common.files import is_finite

UNKNOWN = "-"


def number(value: Any, digits: int = 0) -> str:
    """Format a number as 1,234,567 or 12.3; a missing one is a dash."""
    return UNKNOWN if is_missing(value) else f"{value:,.{digits}f}"


def percent(value: Any) -> str:
    """Format a share: 0.87 becomes 87 %."""
    return UNKNOWN if is_missing(value) else f"{100 * value:.0f} %"


def share(row: Mapping[str, Any], key: str) -> str:
    """Format a metric that is a share, with its interval: 87 % (75 to 94)."""
    low, high = (row.get(f"{key}_{end}") for end in ("low", "high"))
    if low is None or high is None or is_missing(low):
        return percent(row.get(key))
    return f"{percent(row.get(key))} ({100 * low:.0f} to {100 * high:.0f})"


def reward(value: Any) -> str:
    """Format a return; large ones have no decimals."""
    return UNKNOWN if is_missing(value) else f"{value:,.{0 if abs(value) >= 1000 else 1}f}"


def duration(seconds: Any) -> str:
    """Format seconds as 42 s, 3 min 20 s or 2 h 5 min."""
    if is_missing(seconds):
        return UNKNOWN
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def is_missing(value: Any) -> bool:
    """Return True for everything but finite numbers."""
    return not is_finite(value)


def points(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[list[float], list[float]]:
    """Return steps and values of the rows that have both."""
    whole = [
        row for row in rows if not is_missing(row.get("step")) and not is_missing(row.get(key))
    ]
    return [float(row["step"]) for row in whole], [float(row[key]) for row in whole]
