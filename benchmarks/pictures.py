"""Image observations: MovingDot until it is solved, and learning curves of Pong and Breakout."""

import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.children import continue_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, key_of, latest_by
from benchmarks.settings import teach_config
from benchmarks.tables import mean_and_spread, number, table
from rl_teacher.config.presets import preset

TRUE_REWARD = 0
LABELS = {
    "MovingDot-v0": (300,),
    "Pong-v0": (TRUE_REWARD, 1_000, 5_500),
    "Breakout-v0": (TRUE_REWARD, 1_000),
}
STEPS = {"MovingDot-v0": 200_000, "Pong-v0": 3_000_000, "Breakout-v0": 3_000_000}
SEEDS = {"MovingDot-v0": (0, 1, 2), "Pong-v0": (0,), "Breakout-v0": (0,)}
BARS = {"MovingDot-v0": 81.0, "Pong-v0": 0.0, "Breakout-v0": 20.0}
"""Returns to reach; 81 is 90 % of the maximum, see docs/images.md."""
RANDOM = {"MovingDot-v0": 2.0, "Pong-v0": -20.7, "Breakout-v0": 1.2}
"""Returns of the random policy."""
HOW = "python -m benchmarks.run pictures [--only MovingDot-v0] [--labels 300] [--seeds 0 1 2]"


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet, one at a time, since each run uses all cores."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run, environment by environment."""
    for env_id in options.only or tuple(LABELS)[: 1 if options.is_quick else None]:
        for num_labels in options.labels or LABELS[env_id]:
            for seed in options.seeds or SEEDS[env_id][: 1 if options.is_quick else None]:
                yield cell(env_id, num_labels, seed, options)


def cell(env_id: str, num_labels: int, seed: int, options: Options) -> Cell:
    """Create a run with the preset that the command line would choose."""
    labels: dict[str, Any] = {"predictor": "rl"}
    if num_labels != TRUE_REWARD:
        labels = {"predictor": "synth", "n_labels": num_labels}
    steps = options.steps or (8_000 if options.is_quick else STEPS[env_id])
    config = teach_config(
        preset("images", has_labels=num_labels != TRUE_REWARD)
        | {"env_id": env_id, "num_timesteps": steps, "seed": seed},
        labels,
        options.settings,
    )
    facts = {"env_id": env_id, "labels": num_labels, "seed": seed}
    settings = {"config": config.saved()}
    name = f"{env_id}-{num_labels}-{seed}-{zlib.crc32(key_of(settings).encode()):08x}"
    work = partial(continue_ours, name, "teach", saved=config.saved(), bar=BARS[env_id])
    return Cell("rl-teacher", facts, settings, work)


def report(records: list[Record]) -> list[str]:
    """Build the table of returns and of the time to reach the threshold."""
    newest = latest_by(records, "env_id", "labels", "seed")
    rows = []
    for env_id, num_labels in dict.fromkeys((each["env_id"], each["labels"]) for each in newest):
        group = [
            each for each in newest if (each["env_id"], each["labels"]) == (env_id, num_labels)
        ]
        reached = [each["reached_s"] for each in group if each["reached_s"] is not None]
        rows.append(
            [
                env_id,
                f"{num_labels} labels" if num_labels else "true reward",
                f"{group[0]['steps']:,}",
                mean_and_spread([each["final_return"] for each in group]),
                number(RANDOM.get(env_id)),
                number(BARS.get(env_id)),
                f"{len(reached)} of {len(group)}",
                ", ".join(f"{seconds / 60:.1f}" for seconds in reached) or "-",
            ]
        )
    headings = ["", "taught by", "steps", "return", "at random", "bar", "reached", "after minutes"]
    return [
        "Mean return of the last 100 episodes, over seeds. MovingDot is to be solved, a return of "
        "81, within 10 minutes; Pong is to rise clearly above random within two hours. Minutes "
        "count from the launch, first labels included; of a run that was stopped and went on, from "
        "the first step of training.",
        "",
        *table(headings, rows),
        "",
        *curves_table([each for each in newest if "curve" in each]),
    ]


def curves_table(records: list[Record]) -> list[str]:
    """Build the table of returns at each tenth of a run."""
    rows = [
        [
            f"{each['env_id']}, {each['labels'] or 'true reward'}, seed {each['seed']}",
            *(number(reached) for _, reached in each["curve"]),
        ]
        for each in records
    ]
    headings = ["after", *(f"{tenth}0 %" for tenth in range(1, 11))]
    return ["Return on the way, of each run:", "", *table(headings, rows), ""] if rows else []
