"""Scaling: speed with the number of environments, fits and memory with that of labels."""

from benchmarks.children import run_ours
from benchmarks.options import Options
from benchmarks.parts import describe_parts, measure_parts
from benchmarks.records import Record, Records
from benchmarks.settings import teach_config
from benchmarks.tables import middle, number, ratio, table

ENVS = (4, 8, 16, 32, 64, 128, 256)
LABELS = (100, 300, 1_000, 3_000, 10_000)
ROLLOUT_STEPS = 2048
HOW = "python -m benchmarks.run growth [--only envs labels]"


def run(options: Options, records: Records) -> None:
    """Measure the selected parts: envs, labels."""
    parts = {
        "envs": measure_envs,
        "labels": measure_labels,
    }
    measure_parts(parts, options, records)


def measure_envs(options: Options, records: Records) -> None:
    """Measure physics alone, then the whole command, for each number of environments."""
    steps = options.steps or (20_000 if options.is_quick else 300_000)
    for num_envs in ENVS[2:4] if options.is_quick else ENVS:
        raw = run_ours(
            "physics",
            env_id="Hopper-v5",
            num_envs=num_envs,
            seconds=1.0 if options.is_quick else 6.0,
        )
        config = teach_config(
            {"env_id": "Hopper-v5", "num_timesteps": steps},
            {"ppo.num_envs": num_envs, "ppo.rollout_steps": ROLLOUT_STEPS // num_envs},
            options.settings,
        )
        ours = run_ours("teach", saved=config.saved())
        kept_record = records.append(
            run=options.run,
            part="envs",
            num_envs=num_envs,
            settings=config.saved(),
            steps_per_second=ours.figures["steady_steps_per_second"],
            physics_steps_per_second=raw.figures["steps_per_second"],
            peak_mb=ours.peak_mb,
        )
        print(
            f"  {num_envs} environments: {number(kept_record['steps_per_second'])} steps/s",
            flush=True,
        )


def measure_labels(options: Options, records: Records) -> None:
    """Measure warm fits, queries and memory for each number of labels."""
    for num_labels in options.limited(LABELS):
        finished = run_ours(
            "labels",
            env_id="Hopper-v1",
            num_labels=num_labels,
            num_rounds=2 if options.is_quick else 5,
        )
        kept_record = records.append(
            run=options.run,
            part="labels",
            num_labels=num_labels,
            peak_mb=finished.peak_mb,
            **finished.figures,
        )
        milliseconds = number(1e3 * middle(kept_record["fit_s"]))
        print(f"  {num_labels} labels: a warm fit takes {milliseconds} ms", flush=True)


def report(records: list[Record]) -> list[str]:
    """Build the report of the newest run of each part."""
    return describe_parts({"envs": _envs, "labels": _labels}, records)


def _envs(records: list[Record]) -> list[str]:
    rows = [
        [
            r["num_envs"],
            number(r["steps_per_second"]),
            number(r["physics_steps_per_second"]),
            ratio(r["steps_per_second"] / r["physics_steps_per_second"]),
            number(r["peak_mb"]),
        ]
        for r in records
    ]
    return [
        "### Steps/s and the number of environments",
        "",
        f"`-p rl` on Hopper-v5, rollouts of {ROLLOUT_STEPS:,} steps, against MuJoCo's batch alone "
        "with random controls.",
        "",
        *table(["environments", "steps/s", "physics alone", "ratio", "peak MB"], rows),
        "",
    ]


def _labels(records: list[Record]) -> list[str]:
    rows = [
        [
            f"{r['num_labels']:,}",
            number(1e3 * middle(r["fit_s"])),
            number(middle(r["fit_steps"])),
            number(1e3 * middle(r["ask_s"])),
            number(r["first_fit_s"]),
            number(r["resident_mb"]),
            number(r["peak_mb"]),
        ]
        for r in records
    ]
    return [
        "### Fits, queries, memory and the number of labels",
        "",
        "Hopper-v1, random behaviour, segments of 60 steps, an ensemble of 3. A warm-started "
        "fit follows when labels have grown by 2 %, and includes reading the answers; a query of "
        "50 comparisons among 500 candidates by disagreement includes the store and the oracle's "
        "answers; the first fit takes 200 gradient steps at most, and includes compilation.",
        "",
        *table(
            ["labels", "warm fit ms", "its steps", "query 50 ms", "first fit s", "MB", "peak MB"],
            rows,
        ),
        "",
    ]
