"""The same task with imitation 1.0.1 and with ours: Hopper-v4 of fixed horizon from comparisons."""

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

from benchmarks.children import run_ours
from benchmarks.comparisons import common_seeds, unpaired_difference
from benchmarks.fixed_hopper import ENV_ID
from benchmarks.grid import Cell, cell_of_peer, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.settings import teach_config
from benchmarks.tables import (
    NONE,
    average,
    interval,
    named,
    number,
    over_seeds,
    ratio,
    seed_means,
    seeds_of,
    table,
)
from rl_teacher.config.experiment import TeachConfig

SETTINGS = ((200_000, 300), (800_000, 700), (800_000, 100))
QUICK_SETTINGS = ((8_192, 60),)
TO_REACH = {(200_000, 300): "10x", (800_000, 700): "6x", (800_000, 100): "6x"}
SEGMENT_STEPS, QUERY_ROUNDS, QUICK_ROUNDS = 50, 20, 2
SEEDS = tuple(range(10, 20))
"""Seeds of claims: nothing was tuned on them."""
OURS = "rl-teacher"
PEERS: dict[str, dict[str, Any]] = {
    "imitation with VecNormalize": {"configuration": "ours", "is_normalised": True},
    "imitation as in its tutorial": {
        "configuration": "tutorial",
        "fragment_length": 100,
        "iterations": 60,
    },
    "imitation": {"configuration": "ours", "is_normalised": False},
}
"""Configurations of the peer: see `peers/imitation_train.py`."""
HOW = (
    "python -m benchmarks.run versus_imitation [--labels 300 700 100] [--seeds 10 11 12] "
    "[--only rl-teacher 'imitation as in its tutorial'] [--set NAME=VALUE ...]"
)


def run(options: Options, records: Records) -> None:
    """Run the cells, alternating between peers and ours."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run seed by seed, so that an early stop leaves complete comparisons."""
    quick = {"iterations": QUICK_ROUNDS} if options.is_quick else {}
    for seed in options.seeds or options.limited(SEEDS):
        for steps, labels in QUICK_SETTINGS if options.is_quick else SETTINGS:
            if options.labels and labels not in options.labels:
                continue
            facts: dict[str, Any] = {"asked_steps": steps, "labels": labels, "seed": seed}
            job: dict[str, Any] = {
                "env_id": "Hopper-v4",
                "steps": steps,
                "labels": labels,
                "seed": seed,
                "fragment_length": SEGMENT_STEPS,
                "iterations": QUERY_ROUNDS,
                "threads": 1,
            }
            for who, configuration in PEERS.items():
                if options.wants(who):
                    peer = job | configuration | quick
                    yield cell_of_peer(who, facts, "imitation", "imitation_train.py", peer)
            if not options.wants(OURS):
                continue
            config = our_config(steps, labels, seed, options)
            work = partial(
                run_ours,
                "teach",
                saved=config.saved(),
                evaluated=10,
                workers=1,
            )
            yield Cell(OURS, facts | options.changes, {"config": config.saved()}, work)


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
    """Build a table of the newest round, and one of all runs by source."""
    found = groups(records, "who", "asked_steps", "labels", "changes", "parallel")
    found.sort(key=lambda group: _setting(group[0]))
    newest: dict[str, list[Record]] = {}
    for group in sorted(found, key=lambda group: max(record["date"] for record in group)):
        newest[_title(group[0])] = group
    return [
        "Hopper-v4 with 1,000 steps in every episode, and the same teacher: answers at random in "
        "proportion to exp(return). `imitation` and `imitation with VecNormalize` are set up by "
        "this project: segments of 50 steps and an ensemble of 3 as here, 16 environments, "
        "rollouts of 128 steps, minibatches of 256 (Stable-Baselines3's default is 64), 10 epochs; "
        "the latter with VecNormalize around the agent's environment, since our PPO normalises "
        "observations and rewards. `imitation as in its tutorial` has every setting of "
        "docs/tutorials/5_train_preference_comparisons of imitation 1.0.1, with its 60 query "
        "rounds, and segments of 100 steps. Ours as it comes, with segments of 50 steps. One "
        "thread each. Work is what follows the imports, compilation included, evaluation not. "
        "Returns are true ones: of the final policy, deterministic, over 10 fresh episodes, and of "
        "the last episodes of training; the fresh agent is the tutorial's second one, with 100,000 "
        "further steps. Interquartile means with 95 % intervals; times are means.",
        "",
        "Newest source of ours and newest configuration of each peer, of which no run is left out. "
        "Difference: ours minus the peer's, unpaired, on the seeds that both have; faster: the "
        "peer's mean time of work over ours, in processor time where both have it, since that "
        "depends less on other programs.",
        "",
        *table(
            [
                *("", "seeds", "return", "difference", "training return", "fresh agent"),
                *("steps", "work s", "faster", "processor s", "whole process"),
            ],
            [
                _newest_row(group, newest.get(_title(group[0], OURS), []))
                for group in _in_order(newest)
            ],
        ),
        "",
        "By source:",
        "",
        *table(
            ["", "seeds", "return", "of each run", "work s", "process s", "peak MB", "source"],
            [_row(group) for group in found],
        ),
        "",
    ]


def _in_order(newest: dict[str, list[Record]]) -> list[list[Record]]:
    return sorted(newest.values(), key=lambda group: _setting(group[0]))


def _setting(record: Record) -> tuple[int, int]:
    return record["asked_steps"], -record["labels"]


def _title(record: Record, who: str | None = None) -> str:
    setting = f"{record['asked_steps'] // 1000}k steps, {record['labels']} comparisons"
    is_shared = record.get("parallel", 1) > 1
    return named(f"{setting}{', two at a time' * is_shared}: {who or record['who']}", record)


def _process_s(record: Record) -> float:
    return record["process_s"] - record["evaluation_s"]


def _training_return(record: Record) -> float | None:
    return record["training_return"] if record["who"] in PEERS else record["final_return"]


def _newest_row(group: list[Record], ours: list[Record]) -> list[Any]:
    def faster(seconds: Callable[[Record], float]) -> str:
        return ratio(average(map(seconds, group)) / average(map(seconds, ours)))

    first = group[0]
    is_timed = all("work_cpu_s" in record for record in (*group, *ours))
    work = itemgetter("work_cpu_s" if is_timed else "work_s")
    is_compared = first["who"] in PEERS and bool(ours)
    goal = TO_REACH.get((first["asked_steps"], first["labels"]), NONE)
    returns = common_seeds(*({"": seed_means(runs, "return")} for runs in (ours, group)))
    return [
        _title(first),
        seeds_of(group),
        over_seeds(group, "return"),
        interval(unpaired_difference, *returns) if is_compared and returns[0] else NONE,
        over_seeds(group, _training_return),
        over_seeds(group, lambda record: record.get("fresh_agent_return")),
        number(average(record.get("environment_steps") for record in group)),
        number(average(record["work_s"] for record in group)),
        f"**{faster(work)}** (to reach: {goal})" if is_compared else NONE,
        number(average(record.get("work_cpu_s") for record in group)),
        faster(_process_s) if is_compared else NONE,
    ]


def _row(group: list[Record]) -> list[str]:
    return [
        _title(group[0]),
        seeds_of(group),
        over_seeds(group, "return"),
        ", ".join(number(record["return"]) for record in group),
        number(average(record["work_s"] for record in group)),
        number(average(map(_process_s, group))),
        number(max(record["peak_mb"] for record in group)),
        source_of(group[0]),
    ]
