"""Fits of the reward predictor to saved labels, without an agent that learns from it.

Labels come from the whole training of an agent, so that clips show bad and good behaviour. An
untrained predictor is fitted to some of them, and compared with the true reward on the clips of the
others. A fit takes seconds: a first screening of changes to the predictor.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.children import run_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups
from benchmarks.settings import teach_config
from benchmarks.tables import interval, table
from rl_teacher.report.statistics import common_seeds, interquartile_mean, paired_difference

ENV_IDS = ("ShortHopper-v1", "ShortCheetah-v1", "ShortReacher-v1", "ShortWalker-v1")
SEEDS = (0, 1, 2, 3, 4)
NUM_COLLECTED, STEPS = 700, 300_000
LABELS = (50, 100, 350)
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one hidden layer of 256": {"reward.hidden": (256,)},
    "hidden layers 256 256": {"reward.hidden": (256, 256)},
}
FIELDS = {
    "step_correlation": "correlation of steps",
    "return_correlation": "correlation of returns",
    "accuracy": "accuracy",
}
HOW = "python -m benchmarks.run offline_fits [--only ShortHopper-v1] [--labels 100] [--set ...]"


def run(options: Options, records: Records) -> None:
    """Collect labels once for each task and seed, and fit every variant to them."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield one run for each seed and task; `--set` adds a variant."""
    variants = VARIANTS | ({"set": dict(options.settings)} if options.settings else {})
    settings: dict[str, Any] = {
        "predictor": "synth",
        "n_labels": 60 if options.is_quick else NUM_COLLECTED,
        "num_timesteps": options.steps or (20_000 if options.is_quick else STEPS),
    }
    for seed in options.seeds or SEEDS[: 1 if options.is_quick else None]:
        for env_id in options.only or ENV_IDS[: 1 if options.is_quick else None]:
            config = teach_config(settings, {"env_id": env_id, "seed": seed})
            job = {
                "saved": config.saved(),
                "variants": {
                    name: teach_config(settings, changes).saved()["reward"]
                    for name, changes in variants.items()
                },
                "labels": options.labels or LABELS[: 1 if options.is_quick else None],
            }
            work = partial(run_ours, "offline_fits", **job)
            yield Cell("rl-teacher", {"env_id": env_id, "seed": seed}, job, work)


def report(records: list[Record]) -> list[str]:
    """Build a table of each variant, over all tasks and seeds of a source."""
    lines = [
        f"A predictor fitted to some of {NUM_COLLECTED} labels that were asked during {STEPS:,} "
        "steps of training, against the true reward on the clips of labels that it was not fitted "
        "to. Correlations are those of all steps, and of the returns of the clips. Interquartile "
        "means over tasks and seeds with 95 % stratified bootstrap intervals; differences are "
        "those of equal task and seed.",
        "",
    ]
    by_source: dict[str, list[Record]] = {}
    for group in groups(records, ignored=("env_id",)):
        by_source.setdefault(group[0]["source"], []).extend(group)
    for source, runs in by_source.items():
        lines += [f"### Source {source}", "", *_table(runs), ""]
    return lines


def _table(runs: list[Record]) -> list[str]:
    tasks = sorted({run["env_id"] for run in runs})
    rows = []
    for key in runs[0]["fits"]:
        for name in runs[0]["fits"][key]:
            row = [f"{key} labels, {name}"]
            for field in FIELDS:
                scores, baseline = (
                    {
                        task: {
                            r["seed"]: r["fits"][key][each][field]
                            for r in runs
                            if r["env_id"] == task
                        }
                        for task in tasks
                    }
                    for each in (name, "defaults")
                )
                row.append(interval(interquartile_mean, scores))
                if field == "step_correlation":
                    pairs = common_seeds(scores, baseline)
                    row.append("" if name == "defaults" else interval(paired_difference, *pairs))
            rows.append(row)
    names = list(FIELDS.values())
    return table(["", names[0], "difference to the defaults", *names[1:]], rows)
