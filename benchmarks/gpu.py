"""Speed of MuJoCo Warp's physics on a GPU, against MuJoCo's batch on all cores."""

from benchmarks.children import run_ours
from benchmarks.options import Options
from benchmarks.records import Record, Records, latest_run
from benchmarks.tables import middle, number, ratio, table

ENV_ID = "Humanoid-v5"
CPU_ENVS = 256
GPU_ENVS = 65_536
HOW = "python -m benchmarks.run gpu"


def run(options: Options, records: Records) -> None:
    """Measure both kinds of physics in turn, each in a new process, for several rounds.

    It needs an NVIDIA GPU.
    """
    for number_of_round in range(1 if options.is_quick else 3):
        for who, count in (("cpu", CPU_ENVS), ("warp", GPU_ENVS)):
            finished = run_ours(
                "environments",
                env_id=ENV_ID,
                num_envs=count,
                seconds=1.0 if options.is_quick else 10.0,
                backend=who,
            )
            kept_record = records.append(
                run=options.run,
                round=number_of_round,
                env_id=ENV_ID,
                who=who,
                num_envs=count,
                **finished.figures,
            )
            pace = number(kept_record["steps_per_second"])
            print(f"  {who}, {kept_record['device']}: {pace} steps/s", flush=True)


def report(records: list[Record]) -> list[str]:
    """Build the table of the newest run."""
    newest = latest_run(records)
    sides = {record["who"]: record for record in newest}
    paces = {
        who: middle(record["steps_per_second"] for record in newest if record["who"] == who)
        for who in sides
    }
    if len(paces) != 2:
        return []
    before, after = paces
    rows = [
        [
            f"`--physics {who}`",
            record["device"],
            f"{record['num_envs']:,}",
            number(paces[who]),
        ]
        for who, record in sides.items()
    ]
    return [
        f"### {ENV_ID} with `--physics {after}`",
        "",
        f"**{ratio(paces[after] / paces[before])}** the environment steps/s of MuJoCo's batch on "
        f"{newest[0]['cores']} cores (to reach on a GPU: 20x); random actions, rounds in turn: "
        f"{len(newest) // 2}, of which the medians count.",
        "",
        *table(["physics", "device", "environments", "steps/s"], rows),
        "",
    ]
