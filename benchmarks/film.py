"""Time that a video of an agent takes, for each second that it lasts."""

from benchmarks.children import run_ours
from benchmarks.options import Options
from benchmarks.records import Record, Records, latest_run
from benchmarks.tables import middle, number, table

HOW = "python -m benchmarks.run film"
ENV_IDS = ("ShortHopper-v1", "ShortHumanoid-v1")
NUM_EPISODES = 3
TIMES = ("film_s", "rendering_s")


def run(options: Options, records: Records) -> None:
    """Measure films of the selected environments, each three times in a new process."""
    num_episodes, num_rounds = (1, 1) if options.is_quick else (NUM_EPISODES, 3)
    for env_id in options.only or options.limited(ENV_IDS):
        for number_of_round in range(num_rounds):
            finished = run_ours("film", env_id=env_id, num_episodes=num_episodes)
            kept_record = records.append(
                run=options.run,
                env_id=env_id,
                round=number_of_round,
                episodes=num_episodes,
                peak_mb=finished.peak_mb,
                **finished.figures,
            )
            print(f"  {env_id}: {number(cost(kept_record))} s per second of film", flush=True)


def cost(record: Record) -> float:
    """Return the seconds that a second of film takes."""
    return record["rendering_s"] / record["film_s"]


def report(records: list[Record]) -> list[str]:
    """Build the table by environment."""
    newest, rows = latest_run(records), []
    for env_id in dict.fromkeys(record["env_id"] for record in newest):
        group = [record for record in newest if record["env_id"] == env_id]
        film_s, rendering_s = (middle(each[name] for each in group) for name in TIMES)
        rows.append([env_id, number(film_s), number(rendering_s), number(middle(map(cost, group)))])
    slowest = max(float(row[-1]) for row in rows)
    return [
        f"**At most {number(slowest)} s** for a second of film (to reach: under 2 s). "
        f"`rl-teacher play NAME --video film.mp4 --episodes {newest[0]['episodes']}`, from the "
        "loaded agent to the file, in software; medians of "
        f"{len({record['round'] for record in newest})} rounds, each in a new process.",
        "",
        *table(["", "film s", "rendering s", "s per second of film"], rows),
        "",
    ]
