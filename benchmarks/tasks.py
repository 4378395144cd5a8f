"""The paper's eight MuJoCo tasks: learning from labels against learning from the true reward."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from benchmarks.children import run_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, key_of, latest_by
from benchmarks.settings import teach_config
from benchmarks.tables import NONE, average, geometric_mean, mean_and_spread, number, ratio, table

TASKS = (
    "Hopper",
    "Walker",
    "Swimmer",
    "Cheetah",
    "Ant",
    "Reacher",
    "InvertedDoublePendulum",
    "InvertedPendulum",
)
ENV_IDS = tuple(f"Short{task}-v1" for task in TASKS)
TRUE_REWARD = 0
LABELS = (TRUE_REWARD, 100, 350, 700, 1400)
SEEDS = (0, 1, 2, 3, 4)
STEPS = 800_000
RANDOM, OURS = "random policy", "rl-teacher"
FLOOR = 0.01
HOW = "python -m benchmarks.run tasks [--only ShortHopper-v1 ...] [--labels 0 100] [--seeds 0 1]"


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet, two at a time, each with one physics thread."""
    fill(cells(options), replace(options, parallel=options.parallel or 2), records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run seed by seed, so that an early stop leaves complete comparisons."""
    env_ids = options.only or ENV_IDS[: 1 if options.is_quick else None]
    labels = options.labels or LABELS[: 2 if options.is_quick else None]
    seeds = options.seeds or SEEDS[: 1 if options.is_quick else None]
    for env_id in env_ids:
        yield random_cell(env_id)
    for seed in seeds:
        for env_id in env_ids:
            for num_labels in labels:
                yield our_cell(env_id, num_labels, seed, options)


def random_cell(env_id: str) -> Cell:
    """Create the run of the random policy, the zero of the normalised score."""
    job: dict[str, Any] = {"env_id": env_id, "num_episodes": 200, "seed": 0}
    return Cell(RANDOM, {"env_id": env_id}, job, partial(run_ours, "random", **job))


def our_cell(env_id: str, num_labels: int, seed: int, options: Options) -> Cell:
    """Create one run of ours."""
    steps = options.steps or (20_000 if options.is_quick else STEPS)
    labels: dict[str, Any] = {"predictor": "rl"}
    if num_labels != TRUE_REWARD:
        labels = {"predictor": "synth", "n_labels": num_labels}
    config = teach_config(
        {"env_id": env_id, "num_timesteps": steps, "seed": seed}, labels, options.settings
    )
    facts = {"env_id": env_id, "labels": num_labels, "seed": seed}
    work = partial(run_ours, "teach", saved=config.saved(), workers=1)
    return Cell(OURS, facts, {"config": config.saved()}, work)


# --- report ---


def report(records: list[Record]) -> list[str]:
    """Build the table of scores by task and number of labels, with the newest settings of each."""
    zeros = {r["env_id"]: r["final_return"] for r in records if r["who"] == RANDOM}
    groups = newest_groups([record for record in records if record["who"] == OURS])
    env_ids = [env_id for env_id in ENV_IDS if (env_id, TRUE_REWARD) in groups]
    counts = sorted({labels for _, labels in groups} - {TRUE_REWARD})
    scores = {
        (env_id, labels): score(
            groups[env_id, labels], groups[env_id, TRUE_REWARD], zeros[env_id], "final_return"
        )
        for env_id in env_ids
        for labels in counts
        if (env_id, labels) in groups and env_id in zeros
    }
    means = [
        ratio(geometric_mean([scores[key] for key in scores if key[1] == n], FLOOR)) for n in counts
    ]
    score_rows = [
        [env_id, *(ratio(scores.get((env_id, labels))) for labels in counts)] for env_id in env_ids
    ]
    return [
        "Score: (return - random policy's) / (return with the true reward - random policy's), so "
        "that tasks whose returns are negative count as well; 1 is as good as the true reward. "
        f"In the geometric mean, scores below {FLOOR} count as {FLOOR}. Returns are those of the "
        "last 100 episodes of training, means over seeds.",
        "",
        *table(
            ["score", *(f"{labels} labels" for labels in counts)],
            [*score_rows, ["**geometric mean**", *(f"**{mean}**" for mean in means)]],
        ),
        "",
        *_details(groups, zeros),
    ]


def newest_groups(records: list[Record]) -> dict[tuple[str, int], list[Record]]:
    """Return all seeds of each task and number of labels with the latest settings."""
    groups: dict[tuple[str, int], dict[str, list[Record]]] = {}
    for record in latest_by(records, "key"):
        config = {**record["settings"]["config"], "seed": None}
        variants = groups.setdefault((record["env_id"], record["labels"]), {})
        variants.setdefault(key_of(config), []).append(record)
    return {
        key: max(variants.values(), key=lambda group: max(record["date"] for record in group))
        for key, variants in groups.items()
    }


def score(group: list[Record], best: list[Record], zero: float, field: str) -> float:
    """Normalise a group's mean: 0 is the random policy, 1 the true reward."""
    one = average(record[field] for record in best)
    return (average(record[field] for record in group) - zero) / (one - zero)


def _details(groups: dict[tuple[str, int], list[Record]], zeros: dict[str, float]) -> list[str]:
    rows = []
    for (env_id, labels), group in sorted(groups.items()):
        best = groups.get((env_id, TRUE_REWARD), [])
        true_return = average(record["final_return"] for record in best)
        mean = average(record["final_return"] for record in group)
        rows.append(
            [
                f"{env_id}, {f'{labels} labels' if labels else 'true reward'}",
                ", ".join(str(record["seed"]) for record in sorted(group, key=itemgetter("seed"))),
                mean_and_spread([record["final_return"] for record in group]),
                ratio(mean / true_return) if true_return > 0 and labels else NONE,
                mean_and_spread([record["auc"] for record in group]),
                mean_and_spread([record["process_s"] for record in group]),
            ]
        )
    rows += [
        [f"{env_id}, random policy", "", number(zero), NONE, NONE, NONE]
        for env_id, zero in sorted(zeros.items())
    ]
    headings = ["", "seeds", "final return", "/ true reward", "mean over training", "wall s"]
    return [*table(headings, rows), ""]
