"""Stable-Baselines3's agents in the wrapper: synthetic labels against the true reward."""

import json
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.children import Finished, finish
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.tables import NONE, average, number, over_seeds, seeds_of, table

CARTPOLE = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
}
TASKS: tuple[dict[str, Any], ...] = (
    {
        "env_id": "CartPole-v1",
        "agent": "DQN",
        "steps": 80_000,
        "agent_settings": {**CARTPOLE, "policy_kwargs": {"net_arch": [256, 256]}},
        "wrapper": {"n_labels": 600, "pretrain_labels": 100, "steps_between_labels": 60},
        "agent_reset": 600,
    },
    {
        "env_id": "CartPole-v1",
        "agent": "QRDQN",
        "steps": 50_000,
        "agent_settings": {
            **CARTPOLE,
            "policy_kwargs": {"net_arch": [256, 256], "n_quantiles": 10},
        },
        "wrapper": {"n_labels": 300, "schedule": "annealed"},
    },
    {
        "env_id": "Pendulum-v1",
        "agent": "SAC",
        "steps": 10_000,
        "agent_settings": {"learning_rate": 1e-3},
        "wrapper": {"n_labels": 300, "pretrain_labels": 150, "schedule": "annealed"},
    },
)
"""Tasks, with the agent settings of RL Baselines3 Zoo."""
SEEDS = (0, 1, 2, 3, 4)
EPISODES = 20
WANTED = 0.9
KINDS = ("true reward", "labels")
HOW = "python -m benchmarks.run wrappers [--only CartPole-v1 QRDQN] [--seeds 0 1 2 3 4]"


def run(options: Options, records: Records) -> None:
    """Train what is not recorded yet."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run: seed by seed, with the true reward and with labels."""
    for seed in options.seeds or options.limited(SEEDS):
        for task in TASKS:
            if options.wants(task["env_id"]) or options.wants(task["agent"]):
                yield from (cell(task, kind, seed, options) for kind in KINDS)


def cell(task: dict[str, Any], kind: str, seed: int, options: Options) -> Cell:
    """Create one run."""
    job = {
        **task,
        "wrapper": task["wrapper"] if kind == "labels" else None,
        "steps": 2_000 if options.is_quick else options.steps or task["steps"],
        "seed": seed,
        "evaluated": EPISODES,
    }
    facts = {"env_id": task["env_id"], "kind": kind, "seed": seed}
    return Cell(f"{task['agent']} with {kind}", facts, job, partial(train, job))


def train(job: dict[str, Any]) -> Finished:
    """Train in a new process with its own home."""
    with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as home:
        command = [sys.executable, "-m", "benchmarks._wrapped", json.dumps(job)]
        return finish(command, RL_TEACHER_HOME=home)


# --- report ---


def share_reached(learned: float, true: float, random: float) -> float:
    """Compute the share of the improvement over the random policy that labels reach."""
    return (learned - random) / (true - random)


def report(records: list[Record]) -> list[str]:
    """Build the table of returns with labels and with the true reward, and the share reached."""
    lines = [
        "Stable-Baselines3's agents with the settings of RL Baselines3 Zoo in `PreferenceWrapper`, "
        "which asks a synthetic teacher; the agent never sees the true reward. Returns are true "
        f"ones, of {EPISODES} fresh episodes, deterministic: interquartile means over seeds with "
        "95 % bootstrap intervals, of all runs, by settings and source. The share reached counts "
        "means from random actions (0) to what the same agent learns from the true reward in as "
        f"many steps at the same source (1); to reach: {WANTED}.",
        "",
    ]
    found = sorted(groups(records, "env_id", "kind"), key=lambda group: group[0]["env_id"])
    rows = [
        row_of(group, [r for each in found for r in each if is_reference(r, group[0])])
        for group in found
        if group[0]["kind"] == "labels"
    ]
    headings = ["", "labels", "return, labels", "return, true reward", "random", "share", "seeds"]
    return [*lines, *table([*headings, "source"], rows), ""]


def is_reference(record: Record, learned: Record) -> bool:
    """Return True for a run of equal source and settings, with the true reward."""
    at, reference = (
        (source_of(each), {**each["settings"], "seed": None, "wrapper": None})
        for each in (learned, record)
    )
    return record["kind"] == "true reward" and reference == at


def row_of(learned: list[Record], true: list[Record]) -> list[Any]:
    """Build the row of the runs with labels in one environment."""
    random = average(record["random_return"] for record in learned)
    reached, full = (average(record["return"] for record in runs) for runs in (learned, true))
    return [
        f"{learned[0]['settings']['agent']}, {learned[0]['env_id']}",
        number(average(record["labels"] for record in learned)),
        over_seeds(learned, "return"),
        over_seeds(true, "return"),
        number(random),
        f"**{share_reached(reached, full, random):.2f}**" if true else NONE,
        seeds_of(learned),
        source_of(learned[0]),
    ]
