"""Time from launch until an agent that learns from labels is as good as with the true reward."""

from collections.abc import Iterator
from functools import partial

from benchmarks.children import run_ours
from benchmarks.comparisons import iqm
from benchmarks.grid import Cell, fill, recorded_returns
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.settings import teach_config
from benchmarks.tables import number, over_seeds, seeds_of, table

ENV_IDS = ("Hopper-v1",)
SEEDS = (0, 1, 2, 3, 4)
STEPS = 1_000_000
LABELS = (350,)
TRUE, TAUGHT = "true reward", "labels"
HOW = "python -m benchmarks.run time_to_return [--only Hopper-v1 ...] [--labels 350] [--seeds 0 1]"


def run(options: Options, records: Records) -> None:
    """Train on the true reward, then on labels until that return is reached, one run at a time."""
    fill(reference_cells(options), options, records)
    fill(cells(options, records.all()), options, records)


def reference_cells(options: Options) -> Iterator[Cell]:
    """Yield the runs with the true reward."""
    for seed, env_id in seeds_and_environments(options):
        config = teach_config(_base(env_id, seed, options), options.settings)
        facts = {"env_id": env_id, "seed": seed}
        work = partial(run_ours, "teach", saved=config.saved())
        yield Cell(TRUE, facts, {"config": config.saved()}, work)


def cells(options: Options, recorded: list[Record]) -> Iterator[Cell]:
    """Yield the runs with labels, whose bar is the mean of all seeds with the true reward."""
    returns = recorded_returns(reference_cells(options), recorded)
    for seed, env_id in seeds_and_environments(options):
        for num_labels in options.labels or LABELS:
            taught = {"predictor": "synth", "n_labels": num_labels}
            config = teach_config(_base(env_id, seed, options), taught, options.settings)
            facts = {"env_id": env_id, "seed": seed, "labels": num_labels}
            job = {"saved": config.saved(), "bar": iqm(returns[env_id])}
            settings = {"config": config.saved(), "bar": job["bar"]}
            yield Cell(TAUGHT, facts, settings, partial(run_ours, "teach", **job))


def seeds_and_environments(options: Options) -> Iterator[tuple[int, str]]:
    """Yield the seeds, and for each of them the environments."""
    for seed in options.seeds or options.limited(SEEDS):
        for env_id in options.only or ENV_IDS:
            yield seed, env_id


def _base(env_id: str, seed: int, options: Options) -> dict[str, object]:
    steps = options.steps or (262_144 if options.is_quick else STEPS)
    return {"env_id": env_id, "num_timesteps": steps, "seed": seed}


def seconds_from_launch(record: Record) -> float | None:
    """Return the seconds from launch, imports included, until the bar was reached."""
    if record["reached_s"] is None:
        return None
    return record["process_s"] - record["work_s"] + record["reached_s"]


def report(records: list[Record]) -> list[str]:
    """Build the table, by environment, labels, settings and source."""
    rows = []
    for group in groups(records, "who", "env_id", "labels"):
        first, is_taught = group[0], group[0]["who"] == TAUGHT
        reached = [each for each in group if is_taught and each["reached_s"] is not None]
        rows.append(
            [
                f"{first['env_id']}, {first['labels']} labels" if is_taught else first["env_id"],
                over_seeds(group, "final_return"),
                number(first["settings"]["bar"]) if is_taught else "",
                f"{len(reached)} of {len(group)}" if is_taught else "",
                over_seeds(reached, seconds_from_launch) if reached else "",
                over_seeds(reached, "reached_step") if reached else "",
                over_seeds(group, "process_s"),
                seeds_of(group),
                source_of(first),
            ]
        )
    return [
        "Seconds from the launch of the command, imports and compilation included, until the mean "
        "true return of the latest 100 episodes reaches that of the same agent after as many steps "
        "with the true reward (to reach: under 45 s on Hopper). The bar is the interquartile mean "
        "over the seeds with the true reward. Values are interquartile means over seeds with 95 % "
        "bootstrap intervals, times and steps those of the runs that reached the bar.",
        "",
        *table(
            [
                "",
                "final return",
                "bar",
                "reached by",
                "s",
                "step",
                "whole run s",
                "seeds",
                "source",
            ],
            rows,
        ),
        "",
    ]
