"""Our SAC alone: returns against SBX, speed against SBX and Stable-Baselines3."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.children import run_ours
from benchmarks.grid import Cell, cell_of_peer, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, conditions, groups, source_of
from benchmarks.settings import teach_config
from benchmarks.tables import NONE, average, named, number, over_seeds, ratio, seeds_of, table
from rl_teacher.config.agents import SACConfig

RETURNS = {"Pendulum-v1": 20_000, "HalfCheetah-v5": 50_000}
"""Environments and the steps of a run."""
PACE_STEPS = 6_000
WARM_UP_STEPS = 1_000
SEEDS = (0, 1, 2, 3, 4)
NUM_ENVS, ROLLOUT_STEPS = 8, 8
LEARNING_STARTS = {"returns": 1_000, "pace": NUM_ENVS * ROLLOUT_STEPS}
USUAL = {"hidden": (256, 256), "minibatch_size": 256}
"""Defaults of both libraries."""
CHOSEN = {name: getattr(SACConfig(), name) for name in USUAL}
EVALUATED = 20
"""Fresh episodes that the final policy is evaluated on, deterministically."""
LATEST = 16
"""Episodes at the end of the training."""
OURS, DEFAULT = "rl-teacher", "rl-teacher, its default sizes"
PEERS = {"SBX": "sbx", "SBX with VecNormalize": "sbx", "Stable-Baselines3": "sb3"}
RAW, NORMALISED, SB3 = PEERS
"""SBX does not normalise observations by default; ours always does."""
HOW = (
    "python -m benchmarks.run agents_sac [--only returns pace] [--seeds 0 1 2 3 4] "
    "[--parallel 2] [--set NAME=VALUE ...]"
)


def run(options: Options, records: Records) -> None:
    """Run the cells, alternating between peer and ours."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run in execution order."""
    returns = {"Pendulum-v1": 2_000} if options.is_quick else RETURNS
    seeds = options.seeds or options.limited(SEEDS)
    if options.wants("returns"):
        for seed in seeds:
            for env_id, steps in returns.items():
                facts = {"part": "returns", "env_id": env_id, "seed": seed}
                for who in (RAW, NORMALISED):
                    yield peer_cell(who, facts, options.steps or steps)
                yield our_cell(OURS, facts, options.steps or steps, USUAL, options)
                if CHOSEN != USUAL:
                    yield our_cell(DEFAULT, facts, options.steps or steps, CHOSEN, options)
    if options.wants("pace"):
        for env_id in returns:
            facts = {"part": "pace", "env_id": env_id, "seed": 0}
            steps = 2_000 if options.is_quick else options.steps or PACE_STEPS
            for who in (RAW, SB3):
                yield peer_cell(who, facts, steps)
            yield our_cell(OURS, facts, steps, USUAL, options)
            yield our_cell(DEFAULT, facts, steps, CHOSEN, options)


def peer_cell(who: str, facts: dict[str, Any], steps: int) -> Cell:
    """Create the cell of a peer, with one gradient step per environment step."""
    job = {
        "library": PEERS[who],
        "env_id": facts["env_id"],
        "num_envs": NUM_ENVS,
        **USUAL,
        "learning_rate": 3e-4,
        "buffer_steps": 300_000,
        "learning_starts": LEARNING_STARTS[facts["part"]],
        "seed": facts["seed"],
        "threads": 1,
        "is_normalised": who == NORMALISED,
        **evaluation(facts),
        "warm_up_steps": WARM_UP_STEPS,
        "steps": steps,
    }
    return cell_of_peer(who, facts, "sbx", "sac_train.py", job)


def our_cell(
    who: str, facts: dict[str, Any], steps: int, sizes: dict[str, Any], options: Options
) -> Cell:
    """Create the cell of our run with the same settings, changed by `--set`."""
    settings = {
        "env_id": facts["env_id"],
        "num_timesteps": steps,
        "seed": facts["seed"],
        "agent": "sac",
        "sac.num_envs": NUM_ENVS,
        "sac.rollout_steps": ROLLOUT_STEPS,
        "sac.updates_per_step": 1.0,
        "sac.learning_starts": LEARNING_STARTS[facts["part"]],
        **{f"sac.{name}": value for name, value in sizes.items()},
    }
    config = teach_config(settings, options.settings)
    measured = evaluation(facts)
    work = partial(run_ours, "teach", saved=config.saved(), workers=1, **measured)
    return Cell(who, facts | options.changes, {"config": config.saved(), **measured}, work)


def evaluation(facts: Mapping[str, Any]) -> dict[str, int]:
    """Return how the returns of a run are measured, the same on both sides."""
    is_wanted = facts["part"] == "returns"
    return {"evaluated": EVALUATED if is_wanted else 0, "latest": LATEST}


def report(records: list[Record]) -> list[str]:
    """Build the tables of returns and of speed."""
    parts = {
        name: [each for each in records if each["part"] == name] for name in ("returns", "pace")
    }
    lines = []
    if parts["returns"]:
        lines += returns_table(parts["returns"])
    if parts["pace"]:
        lines += pace_table(parts["pace"])
    return lines


def returns_table(records: list[Record]) -> list[str]:
    """Build the table of returns by environment, settings and source."""
    found = sorted(groups(records, "who", "env_id"), key=lambda group: group[0]["env_id"])
    rows = [
        [
            named(f"{group[0]['env_id']}, {group[0]['who']}", group[0]),
            f"{group[0]['steps']:,}",
            over_seeds(group, "final_return"),
            over_seeds(group, lambda record: record.get("latest_return")),
            over_seeds(group, lambda record: record.get("return")),
            seeds_of(group),
            source_of(group[0]),
        ]
        for group in found
    ]
    return [
        "SAC with the true reward (to reach: as much as SBX with VecNormalize). Final policy: "
        f"deterministic, over {EVALUATED} fresh episodes; latest: the last {LATEST} training "
        "episodes; last 100: of these runs almost the whole training, in which ours leaves out the "
        "incomplete first episodes. Older runs lack what was not measured then. Ours normalises "
        "observations; SBX does so with VecNormalize, and not by default. "
        f"{NUM_ENVS} environments, one gradient step for each environment step, 2 x 256 and "
        f"minibatches of 256, learning rate 3e-4, {LEARNING_STARTS['returns']:,} random steps "
        f"first. Our default sizes are {format_sizes(CHOSEN)}; they were chosen with this "
        "benchmark, for speed. Interquartile means over seeds with 95 % bootstrap intervals.",
        "",
        *table(["", "steps", "last 100", "latest", "final policy", "seeds", "source"], rows),
        "",
    ]


def pace_table(records: list[Record]) -> list[str]:
    """Build the table of environment steps per second of training."""
    rows = []
    for group in groups(records, "who", "env_id"):
        first = group[0]
        wanted = conditions(first, "env_id")
        alike = [r for r in records if conditions(r, "env_id") == wanted]
        pace, cpu_pace = (average(map(of, group)) for of in (pace_of, cpu_pace_of))
        rows.append(
            [
                named(f"{first['env_id']}, {first['who']}", first),
                f"{first['steps']:,}",
                threads_of(first, alike),
                number(pace),
                *(ratio(pace / average(map(pace_of, by(who, alike)))) for who in (SB3, RAW)),
                number(cpu_pace),
                *(
                    ratio(cpu_pace / average(map(cpu_pace_of, by(who, alike))))
                    for who in (SB3, RAW)
                ),
                len(group),
                source_of(first),
            ]
        )
    return [
        "Environment steps per second, each with one gradient step (to reach: three times "
        "Stable-Baselines3). All with 2 x 256 and minibatches of 256, where nothing else is said; "
        f"our default sizes are {format_sizes(CHOSEN)}. The compilation is not counted: the first "
        f"{WARM_UP_STEPS:,} steps of a peer and a tenth of ours are left out. Means over all runs "
        "of equal settings and source. With one thread, each was pinned to one core. CPU: steps "
        "per second of processor time.",
        "",
        *table(
            [
                *("", "steps", "threads", "steps/s", f"to {SB3}", f"to {RAW}"),
                *("CPU", f"to {SB3}", f"to {RAW}", "runs", "source"),
            ],
            rows,
        ),
        "",
    ]


def by(who: str, records: list[Record]) -> list[Record]:
    """Return the runs of a library."""
    return [record for record in records if record["who"] == who]


def threads_of(record: Record, alike: list[Record]) -> str:
    """Return the threads of a run; a run of ours had those of the peer."""
    named_threads = [
        r["settings"]["threads"] for r in (record, *alike) if "threads" in r["settings"]
    ]
    return str(named_threads[0]) if named_threads else NONE


def pace_of(record: Record) -> float:
    """Return the steps/s without compilation and warm-up."""
    steady = record.get("warm_steps_per_second") or record.get("steady_steps_per_second")
    return steady or record["steps_per_second"]


def cpu_pace_of(record: Record) -> float | None:
    """Return the steps per second of processor time; None for older runs of ours."""
    if "cpu_s" in record:
        return record["steps_per_second"] * record["seconds"] / record["cpu_s"]
    return record.get("steps_per_cpu_second")


def format_sizes(sizes: dict[str, Any]) -> str:
    """Format layer and minibatch sizes."""
    layers = " x ".join(map(str, sizes["hidden"]))
    return f"layers of {layers} units and minibatches of {sizes['minibatch_size']}"
