"""The curves of some experiments in one picture."""

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, PercentFormatter

from rl_teacher.report.figures import is_missing

Rows = Sequence[Mapping[str, Any]]
Curve = tuple[str, Rows]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito (2008): told apart by colour-blind readers; without the yellow, pale on white."""

LINE_STYLES = ("-", "--", ":", "-.")
"""The second round of colours is dashed, and so on."""

GREY = "#666666"
LABEL_LENGTH = 48


@dataclass(frozen=True)
class Panel:
    """One pair of axes: which figure, and what it is called with its unit."""

    key: str
    title: str
    unit: str
    is_share: bool = False


MAIN = Panel("true_return", "True return", "reward per episode, mean of 100")
SMALL = (
    Panel("predicted_return", "Predicted return", "predicted reward per episode"),
    Panel("held_out_accuracy", "Predictor's held-out accuracy", "labels right", is_share=True),
    Panel("labels_answered", "Labels", "comparisons answered"),
)


def plot(curves: Sequence[Curve], path: Path) -> Path:
    """Draw the experiments' curves against environment steps.

    Args:
        curves: what each is called, and its rows as `Experiment.metrics` gives them.
        path: of the PNG.

    Returns:
        The path.
    """
    small = [panel for panel in SMALL if any(has(rows, panel.key) for _, rows in curves)]
    figure = Figure(figsize=(10, 6.6 if small else 4.6), dpi=130)
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
    canvas = FigureCanvasAgg(figure)
    axes_of = lay_out(figure, small)
    for panel, axes in axes_of:
        draw(axes, panel, curves)
    add_legend(figure, curves)
    with warnings.catch_warnings():
        # Note: a name in a script that the font lacks is drawn as boxes; that is no one's fault.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.print_png(str(path), pil_kwargs={"optimize": True})
    return path


def lay_out(figure: Figure, small: Sequence[Panel]) -> list[tuple[Panel, Axes]]:
    """The true return large, the others in a row beneath it."""
    if not small:
        return [(MAIN, figure.add_subplot())]
    grid = figure.add_gridspec(2, len(small), height_ratios=(1.8, 1))
    below = [(panel, figure.add_subplot(grid[1, column])) for column, panel in enumerate(small)]
    return [(MAIN, figure.add_subplot(grid[0, :])), *below]


def draw(axes: Axes, panel: Panel, curves: Sequence[Curve]) -> None:
    """One figure of every experiment."""
    for (_, rows), style in zip(curves, styles(), strict=False):
        steps, values = points(rows, panel.key)
        axes.plot(steps, values, **style, marker="o" if len(steps) == 1 else "")
    dress(axes, panel)
    if not any(has(rows, panel.key) for _, rows in curves):
        say_nothing_yet(axes)


def say_nothing_yet(axes: Axes) -> None:
    """An empty picture says so, and shows no made-up numbers."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, "nothing yet", transform=axes.transAxes, ha="center", color=GREY)


def dress(axes: Axes, panel: Panel) -> None:
    """Title, units, a quiet grid."""
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


def add_legend(figure: Figure, curves: Sequence[Curve]) -> None:
    """What each colour is, beneath the picture."""
    if not curves:
        return
    lines = [Line2D([], [], **style) for style, _ in zip(styles(), curves, strict=False)]
    names = [legend_text(name) for name, _ in curves]
    figure.legend(
        lines, names, loc="outside lower left", ncols=min(4, len(curves)), frameon=False, fontsize=9
    )


def styles() -> "itertools.starmap[dict[str, Any]]":
    """Colours first, then the same colours dashed, for ever."""
    pairs = itertools.cycle(itertools.product(LINE_STYLES, COLOURS))
    return itertools.starmap(as_style, pairs)


def as_style(line_style: str, colour: str) -> dict[str, Any]:
    """matplotlib's words for it."""
    return {"color": colour, "linestyle": line_style, "linewidth": 1.8}


def points(rows: Rows, key: str) -> tuple[list[float], list[float]]:
    """Steps and values, wherever a row has both."""
    whole = [
        row for row in rows if not is_missing(row.get("step")) and not is_missing(row.get(key))
    ]
    return [float(row["step"]) for row in whole], [float(row[key]) for row in whole]


def has(rows: Rows, key: str) -> bool:
    """Whether there is anything to draw."""
    return bool(points(rows, key)[0])


def legend_text(name: str) -> str:
    """A name that matplotlib takes literally: no formulas, and not left out for its underscore."""
    short = name if len(name) <= LABEL_LENGTH else name[: LABEL_LENGTH - 1] + "…"
    escaped = short.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped
