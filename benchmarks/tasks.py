"""The paper's MuJoCo tasks: learning from labels against learning from the true reward."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

from benchmarks.children import run_ours
from benchmarks.comparisons import common_seeds, iqm, normalised_mean, paired_difference
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, key_of, source_of
from benchmarks.settings import TRUE_REWARD, reward_settings, teach_config
from benchmarks.tables import NONE, average, interval, number, scores_of, table
from rl_teacher.report.statistics import Scores, interquartile_mean

TASKS = (
    "Hopper",
    "Walker",
    "Swimmer",
    "Cheetah",
    "Reacher",
    "InvertedDoublePendulum",
    "InvertedPendulum",
)
"""Those of Christiano et al. 2017 that PPO learns in these steps: not Ant, which stands still."""
ENV_IDS = tuple(f"Short{task}-v1" for task in TASKS)
LABELS = (TRUE_REWARD, 50, 100, 350, 700, 1400)
SEEDS = tuple(range(10, 20))
"""Seeds of claims, on which no decision was based; earlier ones are those of decisions."""
STEPS = 800_000
NUM_PARALLEL = 2
OURS = "rl-teacher"
AGENT = "agent"
POLICIES = {"zero actions": "zero", "random policy": "random"}
PREDICTORS = {"constant predictor": "constant", "unfitted predictor": "unfitted"}
ZERO, RANDOM = POLICIES
SOLVED = 0.8
"""Score of zero actions from which on a task is left out of the means."""
FIELDS = {"final_return": "final return", "auc": "area under the curve"}
HOW = (
    "python -m benchmarks.run tasks [--only ShortHopper-v1 ...] [--labels 50 100] [--seeds 0 1] "
    "[--no-controls] [--set agent=sac]"
)


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet, two at a time, each with one thread."""
    fill(cells(options), replace(options, parallel=options.parallel or NUM_PARALLEL), records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run seed by seed, so that an early stop leaves complete comparisons."""
    labels = options.labels or options.limited(LABELS, 2)
    changes = changes_of(options)
    for seed, env_id in seeds_and_tasks(options):
        yield from reference_cells(env_id, seed, options)
        for num_labels in labels:
            if num_labels != TRUE_REWARD or changes:
                yield our_cell(env_id, num_labels, seed, options, changes)
        for who in PREDICTORS if options.has_controls else ():
            yield uninformed_cell(who, env_id, seed, options)


def seeds_and_tasks(options: Options, seeds: Sequence[int] = SEEDS) -> Iterator[tuple[int, str]]:
    """Yield the seeds, these by default, and for each of them the tasks."""
    for seed in options.seeds or options.limited(seeds):
        for env_id in options.only or options.limited(ENV_IDS):
            yield seed, env_id


def changes_of(options: Options) -> dict[str, Any]:
    """Return the changed settings; the agent is not one of them, as scores compare equal agents."""
    return {name: value for name, value in options.settings.items() if name != AGENT}


def reference_cells(env_id: str, seed: int, options: Options) -> Iterator[Cell]:
    """Yield the runs that scores are computed from, with the agent's default settings."""
    for who, policy in POLICIES.items():
        job: dict[str, Any] = {
            "env_id": env_id,
            "policy": policy,
            "num_episodes": 200,
            "seed": seed,
        }
        facts = {"env_id": env_id, "seed": seed}
        yield Cell(who, facts, {"episodes": 200}, partial(run_ours, "fixed_policy", **job))
    yield our_cell(env_id, TRUE_REWARD, seed, options, {})


def our_cell(
    env_id: str, num_labels: int, seed: int, options: Options, changes: Mapping[str, Any]
) -> Cell:
    """Create a run with the true reward or with labels, with some settings changed."""
    config = teach_config(_base(env_id, seed, options), reward_settings(num_labels), changes)
    facts: dict[str, Any] = {"env_id": env_id, "labels": num_labels, "seed": seed}
    if changes:
        facts["changes"] = dict(changes)
    work = partial(run_ours, "teach", saved=config.saved(), workers=1)
    return Cell(OURS, facts, {"config": config.saved()}, work)


def uninformed_cell(who: str, env_id: str, seed: int, options: Options) -> Cell:
    """Create a run with a predictor that is never fitted."""
    config = teach_config(_base(env_id, seed, options), {"predictor": None})
    job: dict[str, Any] = {"saved": config.saved(), "predictor": PREDICTORS[who], "workers": 1}
    facts = {"env_id": env_id, "seed": seed}
    return Cell(who, facts, {"config": config.saved()}, partial(run_ours, "uninformed", **job))


def _base(env_id: str, seed: int, options: Options) -> dict[str, Any]:
    steps = options.steps or (20_000 if options.is_quick else STEPS)
    agent = {name: value for name, value in options.settings.items() if name == AGENT}
    return {"env_id": env_id, "num_timesteps": steps, "seed": seed, **agent}


# --- scores ---


@dataclass(frozen=True)
class Grid:
    """Runs that may be compared: of equal sources, with the same agent, steps and changed settings.

    Attributes:
        records: runs of ours and of the controls.
        source: the earliest of the sources.
        is_claim: the seeds are those of claims.
    """

    records: list[Record]
    source: str
    is_claim: bool

    @property
    def changes(self) -> dict[str, Any]:
        """Settings that differ from the defaults."""
        return next((r["changes"] for r in self.records if "changes" in r), {})

    @property
    def key(self) -> tuple[str, int, str, bool]:
        """Source, steps, agent and kind of seeds, which comparable grids share."""
        config = next(r["settings"]["config"] for r in self.records if "config" in r["settings"])
        return self.source, config["num_timesteps"], config[AGENT], self.is_claim

    @property
    def title(self) -> str:
        """Words for `key`."""
        source, steps, agent, is_claim = self.key
        seeds = "unseen seeds" if is_claim else "seeds of decisions"
        return f"{agent}, {steps:,} steps, {seeds}, source {source}"

    @cached_property
    def arms(self) -> list[str]:
        """Rows of the tables: true reward, numbers of labels, controls."""
        labels = sorted({record["labels"] for record in self.records if record["who"] == OURS})
        found = {record["who"] for record in self.records}
        controls = [who for who in (*PREDICTORS, *POLICIES) if who in found]
        return [*map(arm_of, labels), *controls]

    def values(self, arm: str, field: str) -> Scores:
        """Return a metric of the runs of an arm, by task and seed; of repeated runs, the mean."""
        # A policy does not learn: its return is also its area under the curve.
        field = "final_return" if arm in POLICIES else field
        known = [r for r in self.records if _arm(r) == arm and r[field] is not None]
        return scores_of(known, itemgetter(field))

    def scores(self, arm: str, field: str, reference: "Grid | None" = None) -> Scores:
        """Return the scores of an arm on the tasks whose true reward beats the random policy.

        Args:
            arm: row of the table.
            field: metric.
            reference: grid of the random policy and of the true reward; by default this one.
        """
        zeros, ones = (reference or self).references(field)
        scores = {}
        for env_id, runs in self.values(arm, field).items():
            if env_id in zeros and env_id in ones:
                zero, one = (iqm(values[env_id].values()) for values in (zeros, ones))
                if one > zero:
                    scores[env_id] = {s: (run - zero) / (one - zero) for s, run in runs.items()}
        return scores

    def references(self, field: str) -> tuple[Scores, Scores]:
        """Return the runs whose score is 0, and those whose score is 1."""
        return self.values(RANDOM, field), self.values(arm_of(TRUE_REWARD), field)

    def score(self, arm: str, field: str, runs: Scores, reference: "Grid | None" = None) -> str:
        """Format the mean score of some runs of an arm; see `scores` for the arguments."""
        values = self.values(arm, field)
        returns = {env_id: {s: values[env_id][s] for s in seeds} for env_id, seeds in runs.items()}
        zeros, ones = (reference or self).references(field)
        is_reference = arm == arm_of(TRUE_REWARD) and reference in (None, self)
        mean = partial(normalised_mean, zeros=zeros, ones=None if is_reference else ones)
        return interval(mean, returns)

    @cached_property
    def solved(self) -> set[str]:
        """Tasks that doing nothing solves."""
        scores = self.scores(ZERO, "final_return")
        return {env_id for env_id, runs in scores.items() if iqm(runs.values()) >= SOLVED}

    def counted(self, scores: Scores) -> Scores:
        """Return the scores of the tasks that are in the means."""
        return {env_id: runs for env_id, runs in scores.items() if env_id not in self.solved}


def grids(records: Iterable[Record]) -> list[Grid]:
    """Group records into grids, the latest first.

    Policies have no settings, so their runs belong to every grid of their source with that task.
    """
    records = list(records)
    first = equal_sources(records)
    runs: dict[tuple[tuple[str, bool], str], list[Record]] = {}
    policies: dict[tuple[str, bool], list[Record]] = {}
    seen: set[str] = set()
    facts = ("who", "env_id", "labels", "seed", "changes", "steps", "final_return")
    for record in records:
        source = first[source_of(record)], record.get("seed") in SEEDS
        config = record["settings"].get("config")
        # Repetitions by equal sources are bit for bit the same run.
        run = key_of({"": [source, *map(record.get, facts)]})
        if run in seen:
            continue
        seen.add(run)
        if config is None:
            policies.setdefault(source, []).append(record)
            continue
        own = {"env_id": None, "seed": None, "predictor": None, "n_labels": None}
        settings: dict[str, Any] = {**config, **own}
        if "source" in record:
            # Later sources have more settings, whose defaults change nothing.
            shared = {name: config[name] for name in ("num_timesteps", AGENT)}
            settings = {**shared, **record.get("changes", {})}
        runs.setdefault((source, key_of(settings)), []).append(record)
    found = []
    for (source, _), group in runs.items():
        env_ids = {record["env_id"] for record in group}
        fixed = [each for each in policies.get(source, []) if each["env_id"] in env_ids]
        found.append(Grid([*group, *fixed], *source))
    return sorted(found, key=lambda grid: max(r["date"] for r in grid.records), reverse=True)


def equal_sources(records: Iterable[Record]) -> dict[str, str]:
    """Map each source to the earliest one with the same results.

    Sources are equal if they have two or more runs with labels in common, of equal task, seed,
    steps and changed settings, and the final returns of all of these are equal bit for bit.
    """
    results: dict[str, dict[str, float]] = {}
    first: dict[str, str] = {}
    for record in records:
        runs = results.setdefault(source_of(record), {})
        config = record["settings"].get("config")
        if config is not None and record.get("labels"):
            facts = [record["env_id"], record["labels"], record["seed"], record.get("changes")]
            run = key_of({"": [*facts, config["num_timesteps"], config[AGENT]]})
            runs[run] = record["final_return"]
    for source, runs in results.items():
        first[source] = source
        for earlier in [each for each in first if each != source and first[each] == each]:
            common = runs.keys() & results[earlier].keys()
            if len(common) > 1 and all(runs[run] == results[earlier][run] for run in common):
                first[source] = earlier
                results[earlier] = {**runs, **results[earlier]}
                break
    return first


def arm_of(num_labels: int) -> str:
    """Return the name of a row of ours."""
    return f"{num_labels} labels" if num_labels else "true reward"


def _arm(record: Record) -> str:
    return arm_of(record["labels"]) if record["who"] == OURS else record["who"]


# --- report ---


def report(records: list[Record]) -> list[str]:
    """Build the means of every grid, the latest first, and the table by task of the latest."""
    latest, *earlier = [grid for grid in grids(records) if not grid.changes]
    return [
        f"Up to {NUM_PARALLEL} runs at a time, each with one thread. All runs are shown: those "
        "that agree in agent, steps, settings and source are pooled, others are shown separately. "
        "The source is a digest of the package's Python files without the web service; of older "
        "runs, the commit. A later source whose runs with equal settings and seeds have the same "
        "returns, bit for bit, counts as the earlier one. Final return: mean of the last 100 "
        "episodes of training; area under the curve: mean over the training. Score: (return - "
        "random policy's) / (return with the true reward - random policy's), both of them "
        "interquartile means over seeds; 1 is as good as the same agent with the true reward "
        "after equal steps. There is no score where the true reward did not beat the random "
        "policy. Values are interquartile means over seeds, or over tasks and seeds, "
        "with their 95 % intervals, in which the runs that define 0 and 1 are resampled too. "
        "Differences are paired by task and seed. Settings were chosen on the seeds of decisions, "
        "0 to 9; claims need unseen seeds, 10 to 19. Runs with changed settings are in `ablate`.",
        "",
        *_grid_lines(latest),
        *_rows(latest),
        "",
        *(line for grid in earlier for line in _grid_lines(grid)),
    ]


def summary(records: list[Record]) -> list[str]:
    """Build the tables of the latest grid."""
    latest = next(grid for grid in grids(records) if not grid.changes)
    return [*_grid_lines(latest), *_rows(latest)]


def _grid_lines(grid: Grid) -> list[str]:
    means = _means(grid)
    if not means:
        return []
    commits = ", ".join(dict.fromkeys(record["commit"] for record in grid.records))
    return [f"### {grid.title}", "", f"Commits: {commits}.", "", *means]


def _means(grid: Grid) -> list[str]:
    """Build the table of means over tasks."""
    reference = arm_of(TRUE_REWARD)
    rows = []
    for arm in grid.arms:
        by_field = {field: grid.counted(grid.scores(arm, field)) for field in FIELDS}
        (scores, one) = common_seeds(
            by_field["final_return"], grid.counted(grid.scores(reference, "final_return"))
        )
        if not scores:
            continue
        auc, _ = common_seeds(by_field["auc"], scores)
        difference = NONE if arm == reference else interval(paired_difference, scores, one)
        num_seeds = len(next(iter(scores.values())))
        rows.append(
            [
                arm,
                f"{len(scores)} x {num_seeds}",
                grid.score(arm, "final_return", scores),
                grid.score(arm, "auc", auc) if auc else NONE,
                difference,
            ]
        )
    if not rows:
        return []
    lines = ["Over tasks and seeds, of the seeds that all tasks have."]
    if grid.solved:
        lines[0] += f" Left out, as zero actions score {SOLVED} or more: "
        lines[0] += f"{', '.join(sorted(grid.solved))}."
    headings = ["score", "tasks x seeds", *FIELDS.values(), "final return - true reward's"]
    return [*lines, "", *table(headings, rows), ""]


def _rows(grid: Grid) -> list[str]:
    """Build the table of every task."""
    rows = []
    for env_id in dict.fromkeys([*ENV_IDS, *(record["env_id"] for record in grid.records)]):
        for arm in grid.arms:
            if env_id in grid.values(arm, "final_return"):
                rows.append(_row(grid, env_id, arm))
    headings = ["", "seeds", "final return", "area", "score", "score of the area", "wall s"]
    return table(headings, rows)


def _row(grid: Grid, env_id: str, arm: str) -> list[str]:
    def mean(field: str) -> str:
        runs = grid.values(arm, field)
        return interval(interquartile_mean, {env_id: runs[env_id]}) if env_id in runs else NONE

    def score(field: str) -> str:
        runs = grid.scores(arm, field)
        return grid.score(arm, field, {env_id: runs[env_id]}) if env_id in runs else NONE

    mark = " (solved by doing nothing)" if env_id in grid.solved else ""
    of_row = [r for r in grid.records if _arm(r) == arm and r["env_id"] == env_id]
    return [
        f"{env_id}{mark}, {arm}",
        ", ".join(map(str, sorted(grid.values(arm, "final_return")[env_id]))),
        *map(mean, FIELDS),
        *map(score, FIELDS),
        number(average(record["process_s"] for record in of_row)),
    ]
