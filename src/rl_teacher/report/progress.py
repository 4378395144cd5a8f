"""Live progress of a run: a panel in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rl_teacher.config.experiment import UNLIMITED_STEPS
from rl_teacher.report.figures import duration, is_missing, number, percent, reward, share

REFRESHES_PER_S = 2.0
"""One refresh costs about 2 ms, so the display stays under 1 % of a core."""

LINE_EVERY_S = 10.0
BAR_WIDTH = 30
MAX_WIDTH = 88
STATUS_DURATION_AFTER_S = 3.0
"""Seconds after which a status shows its duration."""

Row = Mapping[str, Any]


class Progress:
    """Live display of an experiment's metrics and status.

    Args:
        name: name of the experiment.
        env_id: environment of the experiment.
        total_steps: environment steps of training in the whole run; 0 for a run that does not
            train, whose steps and speed are not shown.
        metrics: metrics of the run so far, if it is resumed.
        console: output; the standard output by default.
        now: clock in seconds, with an arbitrary origin.
    """

    def __init__(
        self,
        name: str,
        env_id: str,
        total_steps: int,
        metrics: Row | None = None,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console()
        self._title = f"{name} · {env_id}"
        self._total_steps = total_steps
        self._now = now
        self._row = dict(metrics or {})
        self._status = "starting"
        self._started_s = self._status_since_s = now()
        self._line_due_s = now()
        self._live = (
            Live(
                get_renderable=self.panel,
                console=self.console,
                refresh_per_second=REFRESHES_PER_S,
            )
            if self.console.is_terminal
            else None
        )

    def update(self, metrics: Row) -> None:
        """Update the metrics; those not given keep their values."""
        self._row.update(metrics)
        self._print_line_if_due()

    def extend(self, total_steps: int) -> None:
        """Change the number of environment steps in the whole run."""
        self._total_steps = total_steps

    def page(self, link: str) -> None:
        """Print the link to the page."""
        self.console.out(f"page: {link}", highlight=False)

    def status(self, text: str) -> None:
        """Set the status text."""
        if text != self._status:
            self._status, self._status_since_s = text, self._now()
            self._line_due_s = self._now()
        self._print_line_if_due()

    def __enter__(self) -> "Progress":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            self._print_line()

    def _print_line_if_due(self) -> None:
        if self._live is None and self._now() >= self._line_due_s:
            self._print_line()
            self._line_due_s = self._now() + LINE_EVERY_S

    def _print_line(self) -> None:
        line = plain_line(self._row, self._total_steps, self._status_text())
        self.console.out(line, highlight=False)

    def _status_text(self) -> str:
        lasted_s = self._now() - self._status_since_s
        return (
            self._status
            if lasted_s < STATUS_DURATION_AFTER_S
            else f"{self._status} ({duration(lasted_s)})"
        )

    def panel(self) -> RenderableType:
        """Render the current panel."""
        elapsed_s = self._now() - self._started_s
        width = min(self.console.width, MAX_WIDTH)
        lines = [
            figures_grid(self._row),
            Text(f"> {self._status_text()}", style="bold", overflow="ellipsis", no_wrap=True),
        ]
        if self._total_steps:
            lines = [
                steps_line(self._row, self._total_steps),
                pace_line(self._row, self._total_steps, elapsed_s),
                *lines,
            ]
        return Panel(Group(*lines), title=Text(self._title), title_align="left", width=width)


def steps_line(row: Row, total_steps: int) -> RenderableType:
    """Render the progress bar with the number of steps."""
    step = row.get("step") or 0
    if total_steps >= UNLIMITED_STEPS:
        return Text(f"{number(step)} steps")
    line = Table.grid(padding=(0, 2))
    line.add_row(
        ProgressBar(total=total_steps, completed=step, width=BAR_WIDTH),
        Text(percent(step / total_steps)),
        Text(f"{number(step)} of {number(total_steps)} steps"),
    )
    return line


def pace_line(row: Row, total_steps: int, elapsed_s: float) -> RenderableType:
    """Render speed, elapsed time and time left."""
    pace, left_s = row.get("steps_per_second"), time_left_s(row, total_steps)
    known = [
        *([] if is_missing(pace) else [f"{number(pace)} steps/s"]),
        f"{duration(elapsed_s)} elapsed",
        *([] if left_s is None else [f"{duration(left_s)} left"]),
    ]
    return Text(" · ".join(known))


def figures_grid(row: Row) -> RenderableType:
    """Render the metrics, one per line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(justify="right", min_width=14)
    grid.add_row("true return", reward(row.get("true_return")))
    grid.add_row(*predicted(row))
    answered, asked = number(row.get("labels_answered")), number(row.get("labels_asked"))
    grid.add_row("labels", f"{answered} of {asked} asked")
    if "clips_sorted" in row:
        grid.add_row("clips", clips_of(row, " of "))
    grid.add_row("held-out accuracy", share(row, "held_out_accuracy"))
    return grid


def predicted(row: Row) -> tuple[str, str]:
    """Name and format how good the agent is by the predictor."""
    if is_missing(row.get("predicted_return")):
        return "beats untrained agent", percent(row.get("beats_untrained"))
    return "predicted return", reward(row["predicted_return"])


def clips_of(row: Row, divider: str) -> str:
    """Format the number of sorted clips and, if there is a limit, the number to sort."""
    counts = [row[key] for key in ("clips_sorted", "clips_wanted") if not is_missing(row.get(key))]
    return divider.join(map(number, counts))


def time_left_s(row: Row, total_steps: int) -> float | None:
    """Estimate the seconds left at the current speed; None if it is unknown."""
    pace = row.get("steps_per_second")
    if is_missing(pace) or not pace or total_steps >= UNLIMITED_STEPS:
        return None
    return max(0, total_steps - (row.get("step") or 0)) / pace


def plain_line(row: Row, total_steps: int, status: str) -> str:
    """Format metrics and status as one line, for log files."""
    total = "" if total_steps >= UNLIMITED_STEPS else f"/{number(total_steps)}"
    pace, left_s = row.get("steps_per_second"), time_left_s(row, total_steps)
    training = [
        f"{number(row.get('step') or 0)}{total} steps",
        *([] if is_missing(pace) else [f"{number(pace)}/s"]),
        *([] if left_s is None else [f"{duration(left_s)} left"]),
    ]
    return " | ".join(
        [
            *(training if total_steps else []),
            f"true return {reward(row.get('true_return'))}",
            " ".join(predicted(row)),
            f"labels {number(row.get('labels_answered'))}/{number(row.get('labels_asked'))}",
            *([f"clips {clips_of(row, '/')}"] if "clips_sorted" in row else []),
            f"accuracy {share(row, 'held_out_accuracy')}",
            status,
        ]
    )
