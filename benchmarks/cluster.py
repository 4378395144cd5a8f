"""Speed of training on a Ray cluster: two nodes against one process, and Ray's overhead."""

from typing import Any

from benchmarks.children import run_ours
from benchmarks.options import Options
from benchmarks.parts import measure_parts, pace_of
from benchmarks.records import Record, Records, latest_run
from benchmarks.settings import teach_config
from benchmarks.tables import middle, number, ratio, table
from rl_teacher.config.experiment import TeachConfig

NUM_ENVS, ROLLOUT_STEPS = 64, 128
HOW = "python -m benchmarks.run cluster [--only nodes overhead]"
ONE, TWO = "one process on one core", "two nodes of one core each"
WITHOUT, WITH = "without a cluster", "--cluster local"


def run(options: Options, records: Records) -> None:
    """Measure the selected parts: nodes, overhead."""
    measure_parts({"nodes": measure_nodes, "overhead": measure_overhead}, options, records)


def config_of(env_id: str, options: Options) -> TeachConfig:
    """Return the settings of both sides: rollouts of 8,192 steps."""
    return teach_config(
        {
            "env_id": env_id,
            "num_timesteps": options.steps or (40_000 if options.is_quick else 400_000),
        },
        {"ppo.num_envs": NUM_ENVS, "ppo.rollout_steps": ROLLOUT_STEPS},
        options.settings,
    )


def measure_nodes(options: Options, records: Records) -> None:
    """Measure Humanoid in one process and on two nodes in turn, each pinned to its core."""
    sides = {ONE: ("pinned", {"num_nodes": 0}), TWO: ("pinned", {"num_nodes": 2})}
    measure("nodes", "Humanoid-v5", sides, options, records)


def measure_overhead(options: Options, records: Records) -> None:
    """Measure Hopper without and with a cluster of one node, with all cores, in turn."""
    sides = {WITHOUT: ("teach", {}), WITH: ("teach", {"cluster": "local"})}
    measure("overhead", "Hopper-v5", sides, options, records)


def measure(
    part: str,
    env_id: str,
    sides: dict[str, tuple[str, dict[str, Any]]],
    options: Options,
    records: Records,
) -> None:
    """Measure both sides in turn, each in a new process, for several rounds."""
    config = config_of(env_id, options)
    for number_of_round in range(1 if options.is_quick else 5):
        for who, (job, settings) in sides.items():
            finished = run_ours(job, saved=config.saved(), **settings)
            kept_record = records.append(
                run=options.run,
                part=part,
                round=number_of_round,
                who=who,
                **pace_of(finished, config),
            )
            pace = number(kept_record["steps_per_second"])
            print(f"  {env_id}, {who}: {pace} steps/s", flush=True)


def report(records: list[Record]) -> list[str]:
    """Build the tables of the newest run of each part."""
    return [
        *_part(records, "nodes", ONE, TWO, "Humanoid-v5", "to reach: 1.7x"),
        *_part(records, "overhead", WITHOUT, WITH, "Hopper-v5", "to reach: 0.9x"),
    ]


def _part(
    records: list[Record], part: str, before: str, after: str, env_id: str, target: str
) -> list[str]:
    newest = latest_run([record for record in records if record["part"] == part])
    if not newest:
        return []
    paces = {
        who: [record["steps_per_second"] for record in newest if record["who"] == who]
        for who in (before, after)
    }
    if not all(paces.values()):
        return []
    share = ratio(middle(paces[after]) / middle(paces[before]))
    return [
        f"### {env_id}, {after}",
        "",
        f"**{share}** the steps/s of {before} ({target}). {NUM_ENVS} environments, rollouts of "
        f"{NUM_ENVS * ROLLOUT_STEPS:,} steps, {newest[0]['steps']:,} steps in all; medians of "
        f"{len(paces[before])} rounds, in turn, without the first rollout.",
        "",
        *table(["", "steps/s"], [[who, number(middle(each))] for who, each in paces.items()]),
        "",
    ]
