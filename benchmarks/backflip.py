"""Hopper backflips, learned from comparisons alone: the true reward does not reward them."""

import tempfile
from typing import Any

from benchmarks.children import run_ours
from benchmarks.options import Options
from benchmarks.records import Record, Records, latest_by
from benchmarks.settings import teach_config
from benchmarks.tables import average, number, table

SETTINGS: dict[str, Any] = {
    "env_id": "ShortHopper-v1",
    "predictor": "synth",
    "teacher": "backflip",
    "n_labels": 700,
    "num_timesteps": 1_000_000,
    "clip_length": 2.5,
}
SEEDS = (0, 1, 2)
EPISODES = 10
HOW = "python -m benchmarks.run backflip [--seeds 0 1 2] [--set clip_length=2.0 ...]"


def run(options: Options, records: Records) -> None:
    """Train, evaluate and count the turns."""
    quick = {"num_timesteps": 40_000, "n_labels": 60} if options.is_quick else {}
    steps = {"num_timesteps": options.steps} if options.steps else {}
    for seed in options.seeds or SEEDS[: 1 if options.is_quick else None]:
        config = teach_config(SETTINGS, quick, steps, options.settings, {"seed": seed})
        with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as home:
            taught = run_ours("teach", home, saved=config.saved())
            flips = run_ours("flips", home, saved=config.saved(), num_episodes=EPISODES)
        kept_record = records.append(
            run=options.run,
            seed=seed,
            settings=config.saved(),
            process_s=taught.wall_s,
            peak_mb=taught.peak_mb,
            **taught.figures,
            **flips.figures,
        )
        turns = {
            name: number(average(kept_record[name]["backward_turns"]))
            for name in ("deterministic", "exploring")
        }
        print(f"  seed {seed}: full turns backwards per episode: {turns}", flush=True)


def report(records: list[Record]) -> list[str]:
    """Build the table of turns per episode by seed, for the latest settings."""
    settings = {**records[-1]["settings"], "seed": None}
    same = [record for record in records if {**record["settings"], "seed": None} == settings]
    rows = [
        [
            f"seed {record['seed']}, {name}",
            number(average(record[name]["backward_turns"])),
            f"{min(record[name]['backward_turns'])} to {max(record[name]['backward_turns'])}",
            number(average(record[name]["forward_turns"])),
            number(average(record[name]["mean_height"])),
            record["labels_answered"],
            number(record["process_s"]),
        ]
        for record in latest_by(same, "seed")
        for name in ("deterministic", "exploring")
    ]
    return [
        f"`--teacher {settings['teacher']} -e {settings['env_id']} -l {settings['n_labels']} "
        f"-t {settings['num_timesteps']} -c {settings['clip_length']}`; then {EPISODES} episodes "
        "with the most likely actions, and as many with exploration. A full turn is 2 pi of the "
        "torso's pitch backwards, net of forward turns. No other library has such a task.",
        "",
        *table(
            ["", "turns per episode", "range", "forwards", "mean height m", "labels", "wall s"],
            rows,
        ),
        "",
    ]
