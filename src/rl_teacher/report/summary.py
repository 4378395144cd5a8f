"""Summary table of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from rl_teacher.report.figures import duration, is_missing, number, percent, points, reward, share

Row = Mapping[str, Any]


def summary(name: str, env_id: str, rows: Sequence[Row]) -> Table:
    """Build the summary table of a run; metrics that it does not have are left out.

    Args:
        name: name of the experiment.
        env_id: its environment.
        rows: rows of `Experiment.metrics`.

    Returns:
        A table with one metric per row.
    """
    table = Table(title=Text(f"{name} · {env_id}"), show_header=False, title_justify="left")
    for label, text in facts(rows):
        table.add_row(Text(label), Text(text))
    return table


def facts(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the rows of the table: label and formatted value."""
    accuracy = "held_out_accuracy"
    latest = {key: newest(rows, key) for key in (accuracy, f"{accuracy}_low", f"{accuracy}_high")}
    shown = [
        ("steps", newest(rows, "step"), number),
        ("time", newest(rows, "wall_s"), duration),
        ("time of rollouts", newest(rows, "rollout_s"), duration),
        ("time of agent updates", newest(rows, "update_s"), duration),
        ("time of predictor fits", newest(rows, "fit_s"), duration),
        ("steps per second", newest(rows, "steps_per_second"), number),
        ("true return", newest(rows, "true_return"), reward),
        ("highest true return", highest(rows, "true_return"), reward),
        ("predicted return", newest(rows, "predicted_return"), reward),
        ("beats untrained agent", newest(rows, "beats_untrained"), percent),
        ("labels answered", newest(rows, "labels_answered"), number),
        ("labels asked", newest(rows, "labels_asked"), number),
        ("clips sorted", newest(rows, "clips_sorted"), number),
        ("clips to sort", newest(rows, "clips_wanted"), number),
        ("held-out accuracy", newest(rows, accuracy), lambda _: share(latest, accuracy)),
        ("correlation with true reward", newest(rows, "correlation"), correlation),
        ("fits of the predictor", newest(rows, "fits"), number),
    ]
    known = [(label, to_text(value)) for label, value, to_text in shown if not is_missing(value)]
    return known or [("steps", "0")]


def correlation(value: float) -> str:
    """Format a correlation with two decimals."""
    return number(value, digits=2)


def present(rows: Sequence[Row], key: str) -> list[float]:
    """Return the values of a metric, oldest first, without missing ones."""
    return [float(row[key]) for row in rows if not is_missing(row.get(key))]


def newest(rows: Sequence[Row], key: str) -> float | None:
    """Return the newest value of a metric."""
    return next(reversed(present(rows, key)), None)


def highest(rows: Sequence[Row], key: str) -> float | None:
    """Return the highest value of a metric."""
    return max(present(rows, key), default=None)


def area_under_curve(rows: Sequence[Row]) -> float | None:
    """Compute the mean true return over the steps of a run; None with fewer than two values.

    Steps before the first value, of the exploration, count with it.
    """
    steps, returns = points(rows, "true_return")
    if len(steps) < 2 or steps[-1] == steps[0]:
        return None
    return float(np.trapezoid([returns[0], *returns], [0, *steps]) / steps[-1])
