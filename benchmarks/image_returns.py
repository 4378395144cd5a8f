"""Images with default settings, from the true reward and from labels, on one core."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from benchmarks.children import run_ours
from benchmarks.grid import Cell, cell_of_peer, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.settings import reward_settings, teach_config
from benchmarks.tables import named, number, over_seeds, seeds_of, table
from rl_teacher.config.presets import preset


class Task(NamedTuple):
    """An environment and its labels.

    Attributes:
        name: of the environment.
        labels: 0 is the true reward.
        teacher: `score` or `spectator`.
        minutes: processor time after which a run is ended.
        goal: return of the latest 100 episodes at which a run is ended; None for no goal.
        steps: over which the labels are spread; None for the default.
    """

    name: str
    labels: int
    teacher: str
    minutes: float
    goal: float | None
    steps: int | None = None

    @property
    def title(self) -> str:
        """Name of the row."""
        by = {"score": "by score", "spectator": "of the spectator"}[self.teacher]
        return f"{self.name}, " + (f"{self.labels:,} labels {by}" if self.labels else "true reward")


HOUR = 60.0
IMAGES = {"MovingDot": "MovingDot-v0", "CarRacing": "CarRacing-v3"}
"""Environments that are no Atari games."""
TASKS = (
    Task("MovingDot", 300, "score", 10, 81, 200_000),
    Task("Pong", 0, "score", 20, 19),
    Task("Pong", 1_000, "score", 22, 18),
    Task("Pong", 300, "score", 40, 15),
    Task("Pong", 150, "spectator", 30, 15),
    Task("Enduro", 0, "score", 90, 100),
    Task("Enduro", 1_000, "spectator", 90, 100),
    Task("Breakout", 0, "score", HOUR, 60),
    Task("Breakout", 1_000, "score", HOUR, 30),
    *(
        Task(game, labels, "score", HOUR, None)
        for game in ("Seaquest", "SpaceInvaders", "BeamRider", "Qbert")
        for labels in (0, 1_500)
    ),
    Task("CarRacing", 0, "score", HOUR, 900),
    Task("CarRacing", 1_000, "score", HOUR, 900),
)
PEER, PEER_TASK, PEER_SEEDS = "Stable-Baselines3", "Pong, true reward", (10, 11)
PEER_JOB: dict[str, Any] = {
    "env_id": "ALE/Pong-v5",
    "network": "paper",
    "num_envs": 8,
    "arguments": {
        "n_steps": 128,
        "n_epochs": 4,
        "batch_size": 256,
        "learning_rate": 2.5e-4,
        "clip_range": 0.1,
        "ent_coef": 0.01,
    },
    "annealed": ["learning_rate", "clip_range"],
    "threads": 1,
    "processes": False,
    "warm_up_steps": 0,
    "steps": 10_000_000,
}
"""PPO as its zoo configures it for Atari, ended after the minutes that ours has."""
SEEDS = (10, 11, 12, 13, 14)
NUM_PARALLEL = 2
HOW = (
    "python -m benchmarks.run image_returns [--only Pong Stable-Baselines3 ...] [--labels 300 0] "
    "[--seeds 10 11]"
)


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet, two at a time, each with one thread."""
    options = replace(options, parallel=options.parallel or NUM_PARALLEL)
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield a run for each seed and task."""
    for seed in options.seeds or options.limited(SEEDS):
        for task in filter(partial(_is_selected, options), options.limited(TASKS, 2)):
            env_id = IMAGES.get(task.name, f"{task.name}-v4")
            config = teach_config(
                preset("images" if task.name in IMAGES else "atari", has_labels=task.labels > 0),
                {"env_id": env_id, "seed": seed},
                reward_settings(task.labels),
                {"teacher": task.teacher} if task.teacher == "spectator" else {},
                {"num_timesteps": steps} if (steps := options.steps or task.steps) else {},
                options.settings,
            )
            minutes = 0.3 if options.is_quick else task.minutes
            job: dict[str, Any] = {"saved": config.saved(), "minutes": minutes, "goal": task.goal}
            facts = {"task": task.title, "seed": seed} | options.changes
            yield Cell("rl-teacher", facts, job, partial(run_ours, "learn", **job, workers=1))
        if seed in PEER_SEEDS and options.wants(PEER):
            minutes = 0.3 if options.is_quick else 20.0
            facts = {"task": PEER_TASK, "seed": seed}
            job = {**PEER_JOB, "seed": seed, "minutes": minutes}
            yield cell_of_peer(PEER, facts, "sb3", "sb3_atari.py", job)


def _is_selected(options: Options, task: Task) -> bool:
    return options.wants(task.name) and (not options.labels or task.labels in options.labels)


def report(records: list[Record]) -> list[str]:
    """Build a table, by task, settings and source."""
    rows = []
    for group in groups(records, "who", "task", "changes", "parallel"):
        first = group[0]
        goal = first["settings"].get("goal")
        rows.append(
            [
                named(first["task"], first) + (f", {PEER}" if first["who"] == PEER else ""),
                number(first["settings"]["minutes"]),
                number(goal),
                f"{sum(each.get('goal_minutes') is not None for each in group)} of {len(group)}",
                over_seeds(group, lambda record: record.get("goal_minutes")),
                over_seeds(group, "final_return"),
                ", ".join(number(each["final_return"]) for each in group),
                over_seeds(group, "steps"),
                number(max(each.get("labels_answered") or 0 for each in group)),
                number(max(each["peak_mb"] for each in group)),
                seeds_of(group),
                source_of(first),
            ]
        )
    return [
        "Default settings of the command line (presets `atari` and `images`), one thread. A run "
        "ends with its goal or after its minutes, which are of processor time, as are the minutes "
        "to the goal; the return is that of the latest 100 episodes. Interquartile means with 95 % "
        "bootstrap intervals.",
        "",
        *table(
            [
                *("", "minutes", "goal", "reached by", "minutes to goal", "return", "of each run"),
                *("steps", "labels at most", "peak MB", "seeds", "source"),
            ],
            rows,
        ),
        "",
    ]
