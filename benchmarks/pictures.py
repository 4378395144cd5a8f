"""Image observations: MovingDot until it is solved, and learning curves of Pong and Breakout."""

import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks import machine
from benchmarks.children import continue_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, key_of, source_of
from benchmarks.settings import TRUE_REWARD, reward_settings, teach_config
from benchmarks.tables import NONE, number, over_seeds, seeds_of, table
from rl_teacher.config.presets import preset

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
    for env_id in options.only or options.limited(tuple(LABELS)):
        for num_labels in options.labels or LABELS[env_id]:
            for seed in options.seeds or options.limited(SEEDS[env_id]):
                yield cell(env_id, num_labels, seed, options)


def cell(env_id: str, num_labels: int, seed: int, options: Options) -> Cell:
    """Create a run with the preset that the command line would choose."""
    steps = options.steps or (8_000 if options.is_quick else STEPS[env_id])
    config = teach_config(
        preset(
            "images" if env_id == "MovingDot-v0" else "atari",
            has_labels=num_labels != TRUE_REWARD,
        )
        | {"env_id": env_id, "num_timesteps": steps, "seed": seed},
        reward_settings(num_labels),
        options.settings,
    )
    facts = {"env_id": env_id, "labels": num_labels, "seed": seed}
    settings = {"config": config.saved()}
    # A checkpoint of another source is not continued.
    key = key_of({**settings, "source": machine.source()})
    name = f"{env_id}-{num_labels}-{seed}-{zlib.crc32(key.encode()):08x}"
    work = partial(continue_ours, name, "teach", saved=config.saved(), bar=BARS[env_id])
    return Cell("rl-teacher", facts, settings, work)


def report(records: list[Record]) -> list[str]:
    """Build the table of returns and of the time to reach the threshold, and the curves."""
    found = groups(records, "env_id", "labels")
    found.sort(key=lambda group: [*LABELS, group[0]["env_id"]].index(group[0]["env_id"]))
    headings = ["", "steps", "discount", "entropy", "return", "reached", "minutes", "seeds"]
    bars = [f"{env_id} {bar:g} ({RANDOM[env_id]:g} at random)" for env_id, bar in BARS.items()]
    return [
        "Mean return of the last 100 episodes: interquartile means over seeds with 95 % bootstrap "
        f"intervals, of all runs, by settings and source. To reach: {', '.join(bars)}. "
        "MovingDot is to be solved within 10 minutes; Pong is to rise clearly above random within "
        "two hours. Minutes count from the launch, first labels included; of a run that was "
        "stopped and went on, from the first step of training.",
        "",
        "With labels, the agent does not see the ends of episodes; the true reward is clipped to "
        "1. On MovingDot, the discount with labels is another one than with the true reward. Until "
        "29 November 2026 that was so in Atari, too, and the entropy coefficient differed as well. "
        "The settings since then were chosen on Pong and MovingDot, seeds 0 to 2.",
        "",
        *table([*headings, "source"], [_row(group) for group in found]),
        "",
        *curves_table([record for record in records if "curve" in record]),
    ]


def _row(group: list[Record]) -> list[Any]:
    first = group[0]
    reached = [record["reached_s"] for record in group if record["reached_s"] is not None]
    return [
        f"{first['env_id']}, {_taught_by(first)}",
        f"{first['steps']:,}",
        *_discount_and_entropy(first),
        over_seeds(group, "final_return"),
        f"{len(reached)} of {len(group)}",
        ", ".join(f"{seconds / 60:.1f}" for seconds in reached) or NONE,
        seeds_of(group),
        source_of(first),
    ]


def _taught_by(record: Record) -> str:
    return f"{record['labels']} labels" if record["labels"] else "true reward"


def _discount_and_entropy(record: Record) -> tuple[float, float]:
    """Return the agent's discount and entropy coefficient, whose names were others once."""
    config = record["settings"]["config"]
    agent = config[config["agent"]]
    old = {"gamma": "discount", "entropy_coef": "entropy_bonus"}
    gamma, entropy = (agent[name if name in agent else old[name]] for name in old)
    return gamma, entropy


def curves_table(records: list[Record]) -> list[str]:
    """Build the table of returns at each tenth of a run."""
    rows = [
        [
            f"{each['env_id']}, {_taught_by(each)}, seed {each['seed']}",
            *_discount_and_entropy(each),
            *(number(reached) for _, reached in each["curve"]),
            source_of(each),
        ]
        for each in records
    ]
    tenths = [f"{tenth}0 %" for tenth in range(1, 11)]
    headings = ["after", "discount", "entropy", *tenths, "source"]
    return ["Return on the way, of each run:", "", *table(headings, rows), ""] if rows else []
