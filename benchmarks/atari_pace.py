"""How many Atari steps a second arrive at the agent, of those that ALE's emulators make."""

from benchmarks.children import run_ours
from benchmarks.options import Options
from benchmarks.records import Record, Records, latest_run
from benchmarks.tables import middle, number, ratio, table

GAMES = (("Pong-v0", "pong"), ("Breakout-v0", "breakout"))
NUM_ENVS = 16
ROLLOUT_STEPS = 128
HOW = "python -m benchmarks.run atari_pace [--only Pong-v0]"
ALONE, OURS = "ALE alone", "rl-teacher"


def run(options: Options, records: Records) -> None:
    """ALE alone and ours, in turn, each in a fresh process; three rounds of it."""
    seconds = 1.0 if options.is_quick else 15.0
    games = [game for game in GAMES if options.wants(game[0])]
    for number_of_round in range(1 if options.is_quick else 3):
        for env_id, rom in games[:1] if options.is_quick else games:
            common = {"num_envs": NUM_ENVS, "seconds": seconds}
            measured = {
                ALONE: run_ours("emulators", rom=rom, **common),
                OURS: run_ours("atari", env_id=env_id, rollout_steps=ROLLOUT_STEPS, **common),
            }
            for who, finished in measured.items():
                kept = records.append(
                    run=options.run,
                    round=number_of_round,
                    env_id=env_id,
                    who=who,
                    peak_mb=finished.peak_mb,
                    **common,
                    **finished.figures,
                )
                said = f"  {env_id}, {who}: {number(kept['steps_per_second'])} steps/s"
                print(said, flush=True)


def report(records: list[Record]) -> list[str]:
    """The newest run, game by game."""
    newest = latest_run(records)
    rows, shares = [], []
    for env_id in dict.fromkeys(record["env_id"] for record in newest):
        alone, ours = (
            middle(
                record["steps_per_second"]
                for record in newest
                if (record["env_id"], record["who"]) == (env_id, who)
            )
            for who in (ALONE, OURS)
        )
        rows.append([env_id, number(alone), number(ours), ratio(ours / alone)])
        shares.append(f"{ratio(ours / alone)} on {env_id}")
    num_rounds = len({record["round"] for record in newest})
    return [
        f"**{', '.join(shares)}** of ALE's vector environment alone with {NUM_ENVS} environments "
        "(to reach: 0.90x). Random actions; ours are collected into rollouts of "
        f"{ROLLOUT_STEPS} steps and recorded for clips. Medians of {num_rounds} rounds, in turn, "
        "each in a fresh process.",
        "",
        *table(["steps/s", ALONE, OURS, "ratio"], rows),
        "",
    ]
