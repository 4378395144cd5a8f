"""The same task with imitation 1.0.1 and with ours: Hopper-v4 of fixed horizon from comparisons."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.children import run_ours, run_peer
from benchmarks.fixed_hopper import ENV_ID
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, latest_by
from benchmarks.settings import teach_config
from benchmarks.tables import average, mean_and_spread, number, ratio, table
from rl_teacher.config.experiment import TeachConfig

SETTINGS = ((200_000, 300), (800_000, 700), (800_000, 100))
QUICK_SETTINGS = ((8_192, 60),)
TO_REACH = {(200_000, 300): "10x", (800_000, 700): "6x", (800_000, 100): "6x"}
SEGMENT_STEPS = 50
PEER_THREADS = 2  # Threads of torch; on a busy machine 1 is much faster.
SEEDS = (0, 1)
OURS, PEER = "rl-teacher", "imitation"
HOW = (
    "python -m benchmarks.run versus_imitation [--labels 300 700 100] [--seeds 0 1] "
    "[--set NAME=VALUE ...]"
)


def run(options: Options, records: Records) -> None:
    """Run the cells, alternating between peer and ours."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run in execution order."""
    for steps, labels in QUICK_SETTINGS if options.is_quick else SETTINGS:
        if options.labels and labels not in options.labels:
            continue
        for seed in options.seeds or SEEDS[: 1 if options.is_quick else None]:
            facts = {"asked_steps": steps, "labels": labels, "seed": seed}
            job: dict[str, Any] = {
                "env_id": "Hopper-v4",
                "steps": steps,
                "labels": labels,
                "seed": seed,
                "fragment_length": SEGMENT_STEPS,
                "iterations": 2 if options.is_quick else 20,
                "threads": PEER_THREADS,
            }
            yield Cell(PEER, facts, job, partial(run_peer, PEER, "imitation_train.py", **job))
            config = our_config(steps, labels, seed, options)
            work = partial(run_ours, "teach", saved=config.saved(), evaluated=10)
            yield Cell(OURS, facts, {"config": config.saved()}, work)


def our_config(steps: int, labels: int, seed: int, options: Options) -> TeachConfig:
    """Return our settings; the teacher errs as imitation's does: Boltzmann with temperature 1."""
    from rl_teacher.envs.mujoco.suite import HOPPER

    settings = {
        "env_id": ENV_ID,
        "predictor": "synth",
        "n_labels": labels,
        "num_timesteps": steps,
        "seed": seed,
        "clip_length": SEGMENT_STEPS / HOPPER.fps,
        "teacher": "noisy",
        "teacher_strength": 1.0,
        "reward.ensemble_size": 3,
    }
    return teach_config(settings, options.settings)


def report(records: list[Record]) -> list[str]:
    """Build a table of both by setting, with ratios."""
    newest = latest_by(records, "who", "asked_steps", "labels", "seed")
    rows, ratios = [], []
    for steps, labels in dict.fromkeys((r["asked_steps"], r["labels"]) for r in newest):
        group = [r for r in newest if (r["asked_steps"], r["labels"]) == (steps, labels)]
        both = {who: [r for r in group if r["who"] == who] for who in (PEER, OURS)}
        rows += [_row(steps, labels, who, some) for who, some in both.items() if some]
        if all(both.values()):
            ratios.append(_ratio_row(steps, labels, both[PEER], both[OURS]))
    return [
        "Hopper-v4 with 1,000 steps in every episode; segments of 50 steps, an ensemble of 3, and "
        "the same teacher: answers at random in proportion to exp(return). imitation with 16 "
        "environments and its own PPO settings otherwise (rollouts of 128 steps, minibatches of "
        "256, 10 epochs); ours as it comes. Work is what follows the imports, compilation "
        "included, evaluation not. Returns are true ones: of the final policy, deterministic, over "
        "10 fresh episodes, and of the last episodes of training.",
        "",
        *table(
            ["setting", "faster by (work)", "whole process", "return ours", "return theirs"], ratios
        ),
        "",
        *table(
            ["setting", "seeds", "work s", "process s", "return", "training return", "peak MB"],
            rows,
        ),
        "",
    ]


def _title(steps: int, labels: int) -> str:
    return f"{steps // 1000}k steps, {labels} comparisons"


def _process_s(record: Record) -> float:
    return record["process_s"] - record["evaluation_s"]


def _row(steps: int, labels: int, who: str, group: list[Record]) -> list[str]:
    return [
        f"{_title(steps, labels)}: {who}",
        ", ".join(str(record["seed"]) for record in group),
        mean_and_spread([record["work_s"] for record in group]),
        mean_and_spread([_process_s(record) for record in group]),
        mean_and_spread([record["return"] for record in group]),
        mean_and_spread([_training_return(record) for record in group]),
        number(max(record["peak_mb"] for record in group)),
    ]


def _training_return(record: Record) -> float:
    return record["training_return"] if record["who"] == PEER else record["final_return"]


def _ratio_row(steps: int, labels: int, peer: list[Record], ours: list[Record]) -> list[str]:
    def faster(seconds) -> str:  # noqa: ANN001
        return ratio(average(map(seconds, peer)) / average(map(seconds, ours)))

    goal = TO_REACH.get((steps, labels))
    return [
        _title(steps, labels) + (f" (to reach: {goal})" if goal else ""),
        f"**{faster(lambda record: record['work_s'])}**",
        faster(_process_s),
        number(average(record["return"] for record in ours)),
        number(average(record["return"] for record in peer)),
    ]
