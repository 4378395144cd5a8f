"""How figures are put into words: 412,000 steps, 3 min 20 s, 87 %."""

import math
from typing import Any

UNKNOWN = "-"


def number(value: Any, digits: int = 0) -> str:
    """1,234,567 or 12.3, or a dash if there is none."""
    return UNKNOWN if is_missing(value) else f"{value:,.{digits}f}"


def percent(value: Any) -> str:
    """87 %, from 0.87."""
    return UNKNOWN if is_missing(value) else f"{100 * value:.0f} %"


def reward(value: Any) -> str:
    """A return: with fewer digits the larger it is."""
    return UNKNOWN if is_missing(value) else f"{value:,.{0 if abs(value) >= 1000 else 1}f}"


def duration(seconds: Any) -> str:
    """42 s, 3 min 20 s, 2 h 5 min."""
    if is_missing(seconds):
        return UNKNOWN
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def is_missing(value: Any) -> bool:
    """Whether a row has no such figure."""
    return value is None or not math.isfinite(value)
