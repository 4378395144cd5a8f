"""Changed settings against the defaults on the paper's tasks, paired by task and seed."""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.comparisons import common_seeds, paired_difference, probability_of_improvement
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records
from benchmarks.settings import TRUE_REWARD
from benchmarks.tables import interval, table
from benchmarks.tasks import (
    FIELDS,
    NUM_PARALLEL,
    POLICIES,
    Grid,
    changes_of,
    grids,
    our_cell,
    reference_cells,
    seeds_and_tasks,
)

RECORDS = "tasks"
"""The runs are kept with those of `tasks`, which has the same defaults."""
LABELS = (100, 350)
SEEDS = (0, 1, 2, 3, 4)
"""Seeds of decisions; `tasks` has those of claims."""
HOW = (
    "python -m benchmarks.run ablate --set agent_reset=0.5 [--only ShortHopper-v1 ...] "
    "[--labels 100 350] [--seeds 0 1 2 3 4]"
)


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet, two at a time, each with one thread."""
    fill(cells(options), replace(options, parallel=options.parallel or NUM_PARALLEL), records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run: defaults and changed settings in turn, seed by seed."""
    changes = changes_of(options)
    if not changes:
        return
    for seed, env_id in seeds_and_tasks(options, SEEDS):
        yield from reference_cells(env_id, seed, options)
        for num_labels in options.labels or options.limited(LABELS):
            if num_labels != TRUE_REWARD:
                yield our_cell(env_id, num_labels, seed, options, {})
            yield our_cell(env_id, num_labels, seed, options, changes)


def report(records: list[Record]) -> list[str]:
    """Build the table of changed settings, over all tasks of each comparison."""
    found = grids(records)
    defaults = {grid.key: grid for grid in reversed(found) if not grid.changes}
    rows = [
        row
        for grid in found
        if grid.changes and grid.key in defaults
        for row in _rows(grid, defaults[grid.key])
    ]
    headings = ["", "tasks", "defaults", "changed", "difference", "better", "area", "runs"]
    return [
        "Runs of `tasks` with some settings changed, against those with the defaults at the same "
        "source and steps. Scores are as in `tasks`, with 0 and 1 from the defaults. Interquartile "
        "means with 95 % intervals; for differences, the bootstrap resamples pairs of equal "
        "task and seed. Better: share of the pairs in which the change scores higher. Area: "
        "difference of the score of the area under the curve.",
        "",
        *(table(headings, rows) if rows else []),
        "",
    ]


def _rows(changed: Grid, default: Grid) -> list[list[str]]:
    """Build a row for each number of labels; none if the true reward was not run."""
    changes = ", ".join(f"{name}={value}" for name, value in changed.changes.items())
    rows = []
    for arm in [each for each in changed.arms if each not in POLICIES]:
        (final, base), (area, base_area) = (
            common_seeds(
                default.counted(changed.scores(arm, field, default)),
                default.counted(default.scores(arm, field)),
            )
            for field in FIELDS
        )
        if final and area:
            rows.append(
                [
                    f"{changes}, {arm}",
                    str(len(final)),
                    default.score(arm, "final_return", base),
                    changed.score(arm, "final_return", final, default),
                    interval(paired_difference, final, base),
                    interval(probability_of_improvement, final, base),
                    interval(paired_difference, area, base_area),
                    changed.title,
                ]
            )
    return rows
