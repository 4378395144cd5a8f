"""Draw the charts from benchmarks/results: `python -m docs.make_charts`.

Run it again when tasks.jsonl, versus_imitation.jsonl or image_returns.jsonl changes. It prints
seeds and values, for the captions in README.md and the tables in docs/results.md and docs/atari.md.
"""

import math
from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import versus_imitation
from benchmarks.comparisons import common_seeds, normalised_mean, unpaired_difference
from benchmarks.records import Record, Records, source_of
from benchmarks.tables import MIN_SEEDS, average, named, seed_means, seeds_of
from benchmarks.tasks import TRUE_REWARD, Grid, arm_of, grids
from rl_teacher.report.statistics import Estimate, Scores, interquartile_mean

IMAGES = Path(__file__).with_name("images")
FIELD = "final_return"
BLUE, GREY, ORANGE = "#2563a8", "#6b7280", "#c2571a"
COLOURS = {
    versus_imitation.OURS: BLUE,
    "imitation": GREY,
    "imitation with VecNormalize": ORANGE,
    "imitation as in its tutorial": "#7a5aa8",
}
MARKERS = dict(zip(COLOURS, "oDs^", strict=True))


def labels_against_true_reward(axes: Axes, grid: Grid) -> None:
    """Draw the score of each task from labels, where 1 is that of the true reward.

    Args:
        axes: where to draw.
        grid: runs of `benchmarks.tasks` with labels and with the true reward.
    """
    arms = arms_of(grid)
    shades = mpl.colormaps["Blues"](0.8 + 0.3 * centred(len(arms)))
    for offset, arm, colour in zip(centred(len(arms)), arms, shades, strict=True):
        scores = scored(grid, arm)
        rows = {"all": scores, **{task: {task: runs} for task, runs in scores.items()}}
        for row, (name, runs) in enumerate(rows.items()):
            estimate = score_of(grid, arm, runs)
            print(f"{name}, {arm}, {len(next(iter(runs.values())))} seeds: {text_of(estimate)}")
            weight = 2.5 if name == "all" else 1.2
            bars = [[estimate.value - estimate.low], [estimate.high - estimate.value]]
            axes.errorbar(
                *([estimate.value], [row + 0.6 * offset], None, bars, "o"),
                color=colour,
                elinewidth=weight,
                markersize=3 + weight,
                label=arm if row == 0 else None,
            )
        axes.set_yticks(range(len(rows)), [spoken(name) for name in rows])
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
    axes.text(1, 1.02, "true reward", transform=axes.get_xaxis_transform(), ha="center")
    axes.text(0, 1.02, "random policy", transform=axes.get_xaxis_transform(), ha="center")
    axes.set_xlim(-0.1, None)
    axes.set_xlabel(f"score from {arms[0] if len(arms) == 1 else 'labels'} (95 % interval)")
    if len(arms) > 1:
        axes.legend(loc="center", bbox_to_anchor=(0.3, 0.5), frameon=False)


def arms_of(grid: Grid) -> list[str]:
    """Return the arms with labels that have enough seeds of every task for an interval."""
    labelled = [arm for arm in grid.arms if arm.endswith("labels")]
    return [
        arm for arm in labelled if min(map(len, scored(grid, arm).values()), default=0) >= MIN_SEEDS
    ]


def scored(grid: Grid, arm: str) -> Scores:
    """Return the scores of the runs whose seeds all tasks have, also with the true reward."""
    own, _ = common_seeds(
        *(grid.counted(grid.scores(each, FIELD)) for each in (arm, arm_of(TRUE_REWARD)))
    )
    return own


def score_of(grid: Grid, arm: str, runs: Scores) -> Estimate:
    """Compute the mean score of some runs, as the tables of `benchmarks.tasks` do."""
    returns = grid.values(arm, FIELD)
    zeros, ones = grid.references(FIELD)
    selected = {task: {seed: returns[task][seed] for seed in seeds} for task, seeds in runs.items()}
    return normalised_mean(selected, zeros, ones)


def time_and_return(axes: Axes, records: list[Record]) -> None:
    """Draw processor time and true return of ours and of imitation, on seeds that were not tuned.

    Args:
        axes: where to draw.
        records: runs of `benchmarks.versus_imitation`; of equal seeds, the newest count.
    """
    steps, labels = versus_imitation.SETTINGS[0]
    newest: dict[str, dict[int, Record]] = {}
    for run in sorted(records, key=itemgetter("date")):
        is_wanted = (run["asked_steps"], run["labels"]) == (steps, labels)
        if is_wanted and run["seed"] in versus_imitation.SEEDS and not run.get("changes"):
            newest.setdefault(run["who"], {})[run["seed"]] = run
    returns = {
        who: {"": seed_means(runs.values(), "return")}
        for who, runs in newest.items()
        if len(runs) >= MIN_SEEDS
    }
    for who in (each for each in COLOURS if each in returns):
        runs = [*newest[who].values()]
        estimate = interquartile_mean(returns[who])
        work_s = average(map(itemgetter("work_cpu_s"), runs))
        difference = unpaired_difference(returns[versus_imitation.OURS], returns[who])
        print(
            f"{labels} labels, {steps:,} steps, {who}: {work_s:.0f} s, return {text_of(estimate)}, "
            f"ours minus it {text_of(difference)}, seeds {seeds_of(runs)}, {source_of(runs[0])}"
        )
        colour, marker = COLOURS[who], MARKERS[who]
        times, each = zip(*((run["work_cpu_s"], run["return"]) for run in runs), strict=True)
        axes.plot(times, each, marker, color=colour, alpha=0.3, markersize=3)
        bars = [[estimate.value - estimate.low], [estimate.high - estimate.value]]
        axes.errorbar(
            *([work_s], [estimate.value], bars, None, marker),
            color=colour,
            elinewidth=1.8,
            markersize=6,
            label=who,
        )
    axes.set_xlabel("seconds of processor time")
    axes.set_ylabel("true return of Hopper")
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.grid(alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def curves_of_games(panels: Mapping[str, Axes], records: list[Record]) -> None:
    """Draw the true return of every run with images over minutes of processor time.

    Args:
        panels: axes by environment.
        records: runs of `benchmarks.image_returns`.
    """
    titles = [named(record["task"], record) for record in records]
    for title in dict.fromkeys(titles):
        runs = [record for record, own in zip(records, titles, strict=True) if own == title]
        game, _, labels = title.partition(", ")
        axes = panels[game]
        colour = f"C{len(axes.get_legend_handles_labels()[0])}"
        for run in runs:
            _, seconds, _, returns = zip(*run["curve"], strict=True)
            is_first = run is runs[0]
            axes.plot(
                [each / 60 for each in seconds],
                [math.nan if each is None else each for each in returns],
                color=colour,
                linewidth=1,
                label=labels if is_first else None,
            )
        print(f"{title}: seeds {seeds_of(runs)}, sources {', '.join({*map(source_of, runs)})}")
    for game, axes in panels.items():
        axes.set_title(game)
        axes.set_xlabel("minutes of one core")
        axes.set_xlim(0, None)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=7)


def centred(number: int) -> np.ndarray:
    """Return offsets from -0.5 to 0.5, or 0 if there is only one."""
    return np.linspace(-0.5, 0.5, number) if number > 1 else np.zeros(1)


def spoken(env_id: str) -> str:
    """Return the name of a task for an axis."""
    name = env_id.removeprefix("Short").removesuffix("-v1")
    return {"all": "all tasks", "InvertedDoublePendulum": "Double pendulum"}.get(name, name)


def text_of(estimate: Estimate) -> str:
    """Format an estimate with its interval."""
    return f"{estimate.value:,.4g} ({estimate.low:,.4g} to {estimate.high:,.4g})"


def main() -> None:
    """Draw all charts."""
    mpl.rcParams["font.size"] = mpl.rcParams["axes.titlesize"] = 9
    mpl.rcParams["axes.spines.top"] = mpl.rcParams["axes.spines.right"] = False
    save = partial(Figure.savefig, dpi=200, facecolor="white")
    found = grids(Records("tasks").all())
    grid = next(each for each in found if each.is_claim and not each.changes and arms_of(each))
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    labels_against_true_reward(figure.subplots(), grid)
    save(figure, IMAGES / "labels-against-true-reward.png")
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    time_and_return(figure.subplots(), Records("versus_imitation").all())
    save(figure, IMAGES / "time-and-return.png")
    # Default settings; the peer has no curves.
    records = Records("image_returns").all()
    records = [each for each in records if "curve" in each and not each.get("changes")]
    games = list(dict.fromkeys(record["task"].partition(",")[0] for record in records))
    num_rows = -(-len(games) // 2)
    figure = Figure(figsize=(8, 2.8 * num_rows), layout="constrained")
    panels = figure.subplots(num_rows, 2, squeeze=False)
    curves_of_games(dict(zip(games, panels.flat, strict=False)), records)
    for axes in panels[:, 0]:
        axes.set_ylabel("true return")
    save(figure, IMAGES / "atari-curves.png")


if __name__ == "__main__":
    main()
