"""Fits of the reward predictor to saved labels, without an agent that learns from it.

Labels come from the whole training of an agent, so that clips show bad and good behaviour. A
predictor is fitted to some of them in the order in which they were asked, as in a run, and compared
with the true reward on the clips of the others. That takes seconds: a first screening of changes to
the predictor.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.children import ChildFailed, run_ours
from benchmarks.comparisons import common_seeds, paired_difference
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.settings import teach_config
from benchmarks.tables import NONE, interval, scores_of, table
from rl_teacher.report.statistics import Scores, interquartile_mean

ENV_IDS = ("ShortHopper-v1", "ShortCheetah-v1", "ShortReacher-v1", "ShortWalker-v1")
SEEDS = (0, 1, 2, 3, 4)
NUM_COLLECTED, STEPS = 700, 300_000
LABELS = (50, 100, 350)
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "hidden layers 64 64": {"reward.hidden": (64, 64)},
    "hidden layer 256": {"reward.hidden": (256,)},
    "learning rate 0.001": {"reward.learning_rate": 1e-3},
    "learning rate 0.01": {"reward.learning_rate": 1e-2},
    "seven members": {"reward.ensemble_size": 7},
    "weight decay 0": {"reward.l2": 0.0},
    "weight decay 10": {"reward.l2": 10.0},
    "weight decay 1000": {"reward.l2": 1000.0},
    "minibatches of 8": {"reward.batch_size": 8},
    "minibatches of 128": {"reward.batch_size": 128},
    "error rate 0": {"reward.error_rate": 0.0},
    "error rate 0.3": {"reward.error_rate": 0.3},
    "dropout 0.2": {"reward.dropout": 0.2},
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
    changes = ", ".join(f"{name}={value}" for name, value in options.settings.items())
    variants = VARIANTS | ({changes: dict(options.settings)} if changes else {})
    settings: dict[str, Any] = {
        "predictor": "synth",
        "n_labels": 100 if options.is_quick else NUM_COLLECTED,
        "num_timesteps": options.steps or (20_000 if options.is_quick else STEPS),
    }
    labels = options.labels or options.limited(LABELS)
    if max(labels) > settings["n_labels"] // 2:
        raise ChildFailed(
            f"--labels {max(labels)} is more than half of the {settings['n_labels']} labels; the "
            "other half is for the comparison."
        )
    for seed in options.seeds or options.limited(SEEDS):
        for env_id in options.only or options.limited(ENV_IDS):
            config = teach_config(settings, {"env_id": env_id, "seed": seed})
            job = {
                "saved": config.saved(),
                "variants": {
                    name: teach_config(settings, changes).saved()["reward"]
                    for name, changes in variants.items()
                },
                "labels": labels,
            }
            work = partial(run_ours, "offline_fits", **job)
            yield Cell("rl-teacher", {"env_id": env_id, "seed": seed}, job, work)


def report(records: list[Record]) -> list[str]:
    """Build a table of each group of runs with equal settings and source."""
    lines = [
        "A predictor fitted to some of the labels that were asked during a training, as they "
        "arrived, against the true reward on the clips of labels that it was not fitted to. "
        "Correlations are those of all steps, and of the returns of the clips. Interquartile "
        "means over tasks and seeds, of the seeds that all tasks have, with 95 % stratified "
        "bootstrap intervals; differences are those of equal task and seed.",
        "",
    ]
    for group in groups(records, ignored=("env_id",)):
        saved = group[0]["settings"]["saved"]
        title = f"{saved['n_labels']} labels in {saved['num_timesteps']:,} steps"
        lines += [f"### {title}, source {source_of(group[0])}", "", *_table(group), ""]
    return lines


def _table(runs: list[Record]) -> list[str]:
    rows = []
    for key, by_variant in runs[0]["fits"].items():
        for name in by_variant:
            row = [f"{key} labels, {name}"]
            for field in FIELDS:
                scores, baseline = (_scores(runs, key, each, field) for each in (name, "defaults"))
                row.append(interval(interquartile_mean, scores) if scores else NONE)
                if field == "step_correlation":
                    is_other = scores and name != "defaults"
                    row.append(interval(paired_difference, scores, baseline) if is_other else "")
            rows.append(row)
    names = list(FIELDS.values())
    return table(["", names[0], "difference to the defaults", *names[1:]], rows)


def _scores(runs: list[Record], num_labels: str, variant: str, field: str) -> Scores:
    """Return the mean of the runs of each task and seed, of the seeds that all tasks have."""
    (scores,) = common_seeds(scores_of(runs, lambda run: run["fits"][num_labels][variant][field]))
    return scores
