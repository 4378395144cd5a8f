"""Stable-Baselines3's agents in the wrapper: synthetic labels against the true reward."""

import json
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Any

from benchmarks.children import Finished, finish
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, latest_by
from benchmarks.tables import mean_and_spread, number, table

TASKS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "agent": "DQN",
        "steps": 80_000,
        "agent_settings": {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
        "wrapper": {"n_labels": 600, "pretrain_labels": 100, "steps_between_labels": 60},
        "agent_reset": 600,
    },
    "Pendulum-v1": {
        "agent": "SAC",
        "steps": 10_000,
        "agent_settings": {"learning_rate": 1e-3},
        "wrapper": {"n_labels": 300, "pretrain_labels": 150, "schedule": "annealed"},
    },
}
"""Tasks, with the agent settings of RL Baselines3 Zoo."""
SEEDS = (0, 1, 2)
EPISODES = 20
WANTED = 0.9
KINDS = ("true reward", "labels")
HOW = "python -m benchmarks.run wrappers [--only CartPole-v1] [--seeds 0 1 2]"


def run(options: Options, records: Records) -> None:
    """Train what is not recorded yet."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run: seed by seed, with the true reward and with labels."""
    for seed in options.seeds or SEEDS[: 1 if options.is_quick else None]:
        for env_id, task in TASKS.items():
            if options.wants(env_id):
                yield from (cell(env_id, task, kind, seed, options) for kind in KINDS)


def cell(env_id: str, task: dict[str, Any], kind: str, seed: int, options: Options) -> Cell:
    """Create one run."""
    job = {
        "env_id": env_id,
        **task,
        "wrapper": task["wrapper"] if kind == "labels" else None,
        "steps": 2_000 if options.is_quick else options.steps or task["steps"],
        "seed": seed,
        "evaluated": EPISODES,
    }
    facts = {"env_id": env_id, "kind": kind, "seed": seed}
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
        f"ones, of {EPISODES} fresh episodes, deterministic. The share reached counts from random "
        f"actions (0) to what the same agent learns from the true reward (1); to reach: {WANTED}.",
        "",
    ]
    rows = []
    for env_id, task in TASKS.items():
        of = {
            kind: latest_by(
                [r for r in records if r["env_id"] == env_id and r["kind"] == kind], "seed"
            )
            for kind in KINDS
        }
        if all(of.values()):
            rows.append(row_of(env_id, task["agent"], of))
    headings = ["", "seeds", "labels", "return, labels", "return, true reward", "random", "share"]
    return [*lines, *table(headings, rows), ""]


def row_of(env_id: str, agent: str, of: dict[str, list[Record]]) -> list[Any]:
    """Build the row of one environment."""
    learned, true = ([each["return"] for each in of[kind]] for kind in ("labels", "true reward"))
    random = fmean(each["random_return"] for each in of["true reward"])
    share = share_reached(fmean(learned), fmean(true), random)
    return [
        f"{agent}, {env_id}",
        len(learned),
        number(fmean(each["labels"] for each in of["labels"])),
        mean_and_spread(learned),
        mean_and_spread(true),
        number(random),
        f"**{share:.2f}**",
    ]
