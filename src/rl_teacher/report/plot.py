"""Plot of the learning curves of experiments."""

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, PercentFormatter

from rl_teacher.report.figures import points

Rows = Sequence[Mapping[str, Any]]
Curve = tuple[str, Rows]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Palette of Okabe and Ito (2008), safe for colour-blind readers; without its pale yellow."""

LINE_STYLES = ("-", "--", ":", "-.")
"""Line style of each round through the colours."""

GREY = "#666666"
LABEL_LENGTH = 48


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a metric, its title and its unit."""

    key: str
    title: str
    unit: str
    is_share: bool = False


MAIN = Panel("true_return", "True return", "reward per episode, mean of 100")
SMALL = (
    Panel("beats_untrained", "Beats the untrained agent", "share of clips", is_share=True),
    Panel("predicted_return", "Predicted return", "predicted reward per episode"),
    Panel("held_out_accuracy", "Held-out accuracy", "labels predicted correctly", is_share=True),
    Panel("labels_answered", "Labels", "comparisons answered"),
)


def plot(curves: Sequence[Curve], path: Path) -> Path:
    """Plot the experiments' metrics against environment steps.

    Args:
        curves: name and rows of `Experiment.metrics` of each experiment.
        path: PNG file to write.

    Returns:
        The path.
    """
    small = [panel for panel in SMALL if any(has(rows, panel.key) for _, rows in curves)]
    # Without pyplot, whose global state is not safe in threads.
    figure = Figure(figsize=(10, 6.6 if small else 4.6), dpi=130)
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
    canvas = FigureCanvasAgg(figure)
    for panel, axes in add_axes(figure, small):
        draw(axes, panel, curves)
    with warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes; a warning would not help.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        add_legend(figure, canvas, curves)
        canvas.print_png(str(path), pil_kwargs={"optimize": True})
    return path


def add_axes(figure: Figure, small: Sequence[Panel]) -> list[tuple[Panel, Axes]]:
    """Add the axes: the true return large, the others in a row below."""
    if not small:
        return [(MAIN, figure.add_subplot())]
    grid = figure.add_gridspec(2, len(small), height_ratios=(1.8, 1))
    below = [(panel, figure.add_subplot(grid[1, column])) for column, panel in enumerate(small)]
    return [(MAIN, figure.add_subplot(grid[0, :])), *below]


def draw(axes: Axes, panel: Panel, curves: Sequence[Curve]) -> None:
    """Draw one metric of every experiment."""
    for (_, rows), style in zip(curves, styles(), strict=False):
        steps, values = points(rows, panel.key)
        axes.plot(steps, values, **style, marker="o" if len(steps) == 1 else "")
        (steps, low), (_, high) = (points(rows, f"{panel.key}_{end}") for end in ("low", "high"))
        axes.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0)
    format_axes(axes, panel)
    if not any(has(rows, panel.key) for _, rows in curves):
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no data yet", transform=axes.transAxes, ha="center", color=GREY)


def format_axes(axes: Axes, panel: Panel) -> None:
    """Set title, units and grid."""
    is_main = panel is MAIN
    axes.set_title(panel.title, loc="left", fontsize=12 if is_main else 9.5, fontweight="bold")
    axes.set_ylabel(panel.unit, fontsize=9 if is_main else 8, color=GREY)
    axes.set_xlabel("environment steps", fontsize=9 if is_main else 8, color=GREY)
    axes.tick_params(labelsize=9 if is_main else 8, colors=GREY)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbbbbb")
    if panel.is_share:
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))


def add_legend(figure: Figure, canvas: FigureCanvasAgg, curves: Sequence[Curve]) -> None:
    """Add a legend below the axes, one name per line, and enlarge the figure by it."""
    lines = [Line2D([], [], **style) for style, _ in zip(styles(), curves, strict=False)]
    names = [legend_text(name) for name, _ in curves]
    legend = figure.legend(lines, names, loc="outside lower left", frameon=False, fontsize=9)
    height = legend.get_window_extent(canvas.get_renderer()).height
    figure.set_figheight(figure.get_figheight() + height / figure.dpi)


def styles() -> Iterator[dict[str, Any]]:
    """Yield styles of matplotlib lines: all colours with one line style, then with the next."""
    for line_style, colour in itertools.cycle(itertools.product(LINE_STYLES, COLOURS)):
        yield {"color": colour, "linestyle": line_style, "linewidth": 1.8}


def has(rows: Rows, key: str) -> bool:
    """Return True if a metric has at least one point."""
    return bool(points(rows, key)[0])


def legend_text(name: str) -> str:
    """Shorten and escape a name: matplotlib parses $ as TeX and hides labels that start with _."""
    short = name if len(name) <= LABEL_LENGTH else name[: LABEL_LENGTH - 1] + "…"
    escaped = short.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped
