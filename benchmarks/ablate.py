"""Changed settings against the defaults on the paper's tasks, paired by task and seed."""

from collections.abc import Iterator
from dataclasses import replace

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
from rl_teacher.report.statistics import (
    Scores,
    common_seeds,
    interquartile_mean,
    paired_difference,
    probability_of_improvement,
)

RECORDS = "tasks"
"""The runs are kept with those of `tasks`, which has the same defaults."""
LABELS = (100, 350)
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
    for seed, env_id in seeds_and_tasks(options):
        yield from reference_cells(env_id, seed, options)
        for num_labels in options.labels or options.limited(LABELS):
            if num_labels != TRUE_REWARD:
                yield our_cell(env_id, num_labels, seed, options, {})
            yield our_cell(env_id, num_labels, seed, options, changes)


def report(records: list[Record]) -> list[str]:
    """Build a summary, and a table for each comparison of changed settings with the defaults."""
    found = grids(records)
    defaults = {grid.key: grid for grid in reversed(found) if not grid.changes}
    pairs = [(grid, defaults[grid.key]) for grid in found if grid.changes and grid.key in defaults]
    summary, tables = [], []
    for changed, default in pairs:
        arms = _rows_by_arm(changed, default)
        if not arms:
            continue  # the true reward has not been run at this source
        changes = ", ".join(f"{name}={value}" for name, value in changed.changes.items())
        summary += [_summary_row(f"{changes}, {arm}", changed, *rows) for arm, rows in arms.items()]
        rows = [row for final, area in arms.values() for row in (*final, *area)]
        headings = ["", "seeds", "defaults", "changed", "difference", "better"]
        tables += [f"### {changes}: {changed.title}", "", *table(headings, rows), ""]
    headings = ["", "tasks", "defaults", "changed", "difference", "better", "area", "runs"]
    return [
        "Runs of `tasks` with some settings changed, against those with the defaults at the same "
        "source and steps. Scores are as in `tasks`, with 0 and 1 from the defaults. Interquartile "
        "means with 95 % stratified bootstrap intervals; the bootstrap resamples pairs of equal "
        "task and seed. Better: share of the pairs in which the change scores higher. Area: "
        "difference of the score of the area under the curve.",
        "",
        *(["### All tasks", "", *table(headings, summary), ""] if summary else []),
        *tables,
    ]


def _rows_by_arm(changed: Grid, default: Grid) -> dict[str, list[list[list[str]]]]:
    """Build the rows of each arm: of its final return and of its area under the curve."""
    rows_of = {}
    for arm in [each for each in changed.arms if each not in POLICIES]:
        compared = [
            common_seeds(
                default.counted(changed.scores(arm, field, default)),
                default.counted(default.scores(arm, field)),
            )
            for field in FIELDS
        ]
        if all(scores for scores, _ in compared):
            rows_of[arm] = [
                _rows(f"{arm}, {name}", *scores)
                for name, scores in zip(FIELDS.values(), compared, strict=True)
            ]
    return rows_of


def _summary_row(
    name: str, changed: Grid, final: list[list[str]], area: list[list[str]]
) -> list[str]:
    """Build the row of one arm from its last rows, which are those of all its tasks."""
    _, _, default_score, score, difference, better = final[-1]
    num_tasks = max(len(final) - 1, 1)
    return [
        name,
        str(num_tasks),
        default_score,
        score,
        difference,
        better,
        area[-1][4],
        changed.title,
    ]


def _rows(title: str, scores: Scores, baseline: Scores) -> list[list[str]]:
    """Build a row for each task and, of several, a last one for all of them."""
    groups = {env_id: [env_id] for env_id in scores}
    if len(scores) > 1:
        groups["**all tasks**"] = list(scores)
    rows = []
    for name, env_ids in groups.items():
        some, base = ({each: runs[each] for each in env_ids} for runs in (scores, baseline))
        rows.append(
            [
                f"{name}, {title}",
                ", ".join(map(str, some[env_ids[0]])),
                interval(interquartile_mean, base),
                interval(interquartile_mean, some),
                interval(paired_difference, some, base),
                interval(probability_of_improvement, some, base),
            ]
        )
    return rows
