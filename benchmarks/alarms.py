"""Warnings of runs whose labels are good, and of runs whose labels are not, or do not suffice."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.children import run_ours
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.settings import teach_config
from benchmarks.tables import number, table
from rl_teacher.quality.warnings import BY_REWARD, label_warnings

HOPPER, REACHER, CHEETAH = "ShortHopper-v1", "ShortReacher-v1", "ShortCheetah-v1"
RUNS: dict[str, list[tuple[str, str, float | None, int, int]]] = {
    "good": [
        (HOPPER, "oracle", None, 60, 50_000),
        (HOPPER, "mistake", 0.1, 100, 60_000),
        (REACHER, "mistake", 0.1, 140, 80_000),
        (CHEETAH, "mistake", 0.1, 100, 60_000),
        (HOPPER, "backflip", None, 140, 80_000),
    ],
    "random labels": [
        (HOPPER, "mistake", 0.5, 60, 50_000),
        (REACHER, "mistake", 0.5, 100, 60_000),
    ],
    "inverted labels": [
        (HOPPER, "mistake", 0.9, 100, 60_000),
        (REACHER, "mistake", 0.9, 80, 50_000),
    ],
    "too few labels": [("LunarLander-v3", "oracle", None, 137, 100_000)],
}
"""Environment, teacher, its share of swapped answers, labels and steps of each run."""
CLAIM_SEEDS = (20, 21, 22, 23)
"""With these, 20 good and 20 bad runs, of which shares are reported, not mean returns."""
HOW = "python -m benchmarks.run alarms [--seeds 20 21 22 23] [--parallel 2] [--only backflip]"


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield a run of each kind for each seed."""
    for kind, runs in RUNS.items():
        for seed in options.seeds or options.limited(CLAIM_SEEDS):
            for env_id, teacher, strength, labels, steps in options.limited(runs):
                if not options.wants(teacher):
                    continue
                layers: list[dict[str, Any]] = [
                    {"env_id": env_id, "predictor": "synth", "teacher": teacher},
                    {"teacher_strength": strength, "n_labels": labels, "num_timesteps": steps},
                    {"n_labels": 20, "num_timesteps": 10_000} if options.is_quick else {},
                ]
                config = teach_config(*layers, options.settings, {"seed": seed})
                facts = {"kind": kind, "env_id": env_id, "teacher": teacher, "seed": seed}
                work = partial(run_ours, "alarms", saved=config.saved(), workers=1)
                yield Cell("rl-teacher", facts, config.saved(), work)


def report(records: list[Record]) -> list[str]:
    """Build the tables: which runs had a warning, with and without instructions."""
    newest = {record["key"]: record for record in records}
    rows = []
    for group in groups(newest.values(), "kind", "env_id", "teacher"):
        first = group[0]
        settings = first["settings"]
        teacher = first["teacher"]
        if settings["teacher_strength"] is not None:
            teacher += f" {settings['teacher_strength']}"
        rows.append(
            [
                first["kind"],
                f"`-e {first['env_id']} --teacher {teacher} -l {settings['n_labels']}`",
                *(
                    f"{sum(has_alarm(each, with_goal) for each in group)} of {len(group)}"
                    for with_goal in (False, True)
                ),
                ", ".join(sorted({kind for each in group for kind in each["alarms"]})) or "none",
                ", ".join(number(each["true_return_at_end"]) for each in group),
            ]
        )
    return [
        f"Sources {', '.join(dict.fromkeys(map(source_of, newest.values())))}, seeds "
        f"{sorted({record['seed'] for record in records})}, the newest run of each seed. A "
        "good run counts if it had a warning at any time, another one if it has one at its end. "
        "Instructions end the comparison with the environment's reward, so that only the labels "
        "themselves are evidence; a goal of one's own, such as `backflip`, needs them.",
        "",
        *table(["kind", "run", "warned", "with instructions", "warnings", "true returns"], rows),
        "",
    ]


def has_alarm(record: Record, has_instructions: bool) -> bool:
    """Return whether a run had a warning that counts."""
    found = set(record["alarms"])
    if record["kind"] != "good":
        found = label_warnings(record["at_end"]).keys() - {"enough"}
    if has_instructions:
        found -= BY_REWARD
    return bool(found)
