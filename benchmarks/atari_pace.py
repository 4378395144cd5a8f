"""Atari speed: steps per second delivered to the agent and learned from, and memory."""

from typing import Any

from benchmarks.children import run_ours, run_peer
from benchmarks.options import Options
from benchmarks.parts import describe_parts, measure_parts, pace_of
from benchmarks.records import Record, Records
from benchmarks.settings import sb3_arguments, teach_config
from benchmarks.tables import middle, number, ratio, table
from rl_teacher.config.presets import preset
from rl_teacher.nn.encoders import NetworkSize

GAMES = (("Pong-v0", "pong"), ("Breakout-v0", "breakout"))
NUM_ENVS = 16
ROLLOUT_STEPS = 128
NETWORKS: tuple[NetworkSize, ...] = ("small", "paper")
PEERS = (
    {"threads": 1, "processes": False},
    {"threads": 2, "processes": False},
    {"threads": 1, "processes": True},
)
"""Threads of torch, and whether each environment runs in its own process."""
LABELS = 500
"""Comparisons; they have 1,000 segments."""
HOW = "python -m benchmarks.run atari_pace [--only delivered learning memory]"
ALONE, OURS, PEER = "ALE alone", "rl-teacher", "Stable-Baselines3"


def run(options: Options, records: Records) -> None:
    """Measure the selected parts: delivered, learning, memory."""
    parts = {
        "delivered": measure_delivered,
        "learning": measure_learning,
        "memory": measure_memory,
    }
    measure_parts(parts, options, records)


def rounds(options: Options) -> range:
    """Return the rounds: three, or one with `--quick`."""
    return range(1 if options.is_quick else 3)


# --- delivered: steps/s of the environments ---


def measure_delivered(options: Options, records: Records) -> None:
    """Measure ALE alone and our environments in turn, each in a new process."""
    seconds = 1.0 if options.is_quick else 15.0
    for number_of_round in rounds(options):
        for env_id, rom in options.limited(GAMES):
            common = {"num_envs": NUM_ENVS, "seconds": seconds}
            measured = {
                ALONE: run_ours("emulators", rom=rom, **common),
                OURS: run_ours("atari", env_id=env_id, rollout_steps=ROLLOUT_STEPS, **common),
            }
            for who, finished in measured.items():
                kept_record = records.append(
                    run=options.run,
                    part="delivered",
                    round=number_of_round,
                    env_id=env_id,
                    who=who,
                    peak_mb=finished.peak_mb,
                    **common,
                    **finished.figures,
                )
                line = f"  {env_id}, {who}: {number(kept_record['steps_per_second'])} steps/s"
                print(line, flush=True)


def delivered_report(records: list[Record]) -> list[str]:
    """Build the table by game."""
    rows, shares = [], []
    for env_id in dict.fromkeys(record["env_id"] for record in records):
        alone, ours = (
            middle(
                record["steps_per_second"]
                for record in records
                if (record["env_id"], record["who"]) == (env_id, who)
            )
            for who in (ALONE, OURS)
        )
        rows.append([env_id, number(alone), number(ours), ratio(ours / alone)])
        shares.append(f"{ratio(ours / alone)} on {env_id}")
    return [
        "### Steps/s that arrive at the agent",
        "",
        f"**{', '.join(shares)}** of ALE's vector environment alone with {NUM_ENVS} environments "
        "(to reach: 0.90x). Random actions; ours are collected into rollouts of "
        f"{ROLLOUT_STEPS} steps and recorded for clips. Medians of {num_rounds(records)} rounds, "
        "in turn, each in a fresh process.",
        "",
        *table(["steps/s", ALONE, OURS, "ratio"], rows),
        "",
    ]


# --- learning: steps/s of PPO with the true reward ---


def measure_learning(options: Options, records: Records) -> None:
    """Measure Stable-Baselines3 with its threads and processes, then ours, per network."""
    for number_of_round in rounds(options):
        for network in options.limited(NETWORKS):
            peers = [peer_learning(network, how, options) for how in PEERS]
            for figures in [*peers, our_learning(network, options)]:
                kept_record = records.append(
                    run=options.run,
                    part="learning",
                    round=number_of_round,
                    network=network,
                    **figures,
                )
                pace = number(kept_record["steps_per_second"])
                line = f"  {network}, {kept_record['who']}: {pace} steps/s"
                print(line, flush=True)


def peer_learning(network: NetworkSize, how: dict[str, Any], options: Options) -> dict[str, Any]:
    """Run the peer with the same game, rollouts, minibatches, epochs and network."""
    per_rollout = NUM_ENVS * ROLLOUT_STEPS
    settings = teach_config(preset("atari", has_labels=False)).ppo
    finished = run_peer(
        "sb3",
        "sb3_atari.py",
        env_id="ALE/Pong-v5",
        network=network,
        num_envs=settings.num_envs,
        arguments=sb3_arguments(settings),
        seed=1,
        warm_up_steps=per_rollout,
        steps=per_rollout * (1 if options.is_quick else 5),
        **how,
    )
    processes = "a process each" if how["processes"] else "one process"
    return {
        "who": f"{PEER}, {how['threads']} threads, {processes}",
        "peak_mb": finished.peak_mb,
        **finished.figures,
    }


def our_learning(network: NetworkSize, options: Options) -> dict[str, Any]:
    """Run `rl-teacher teach -p rl -e Pong-v0`, with reports and checkpoints."""
    config = teach_config(
        preset("atari", has_labels=False)
        | {
            "env_id": GAMES[0][0],
            "num_timesteps": NUM_ENVS * ROLLOUT_STEPS * (2 if options.is_quick else 10),
        },
        {"ppo.image_encoder": network},
        options.settings,
    )
    finished = run_ours("teach", saved=config.saved())
    return {"who": OURS, **pace_of(finished, config)}


def learning_report(records: list[Record]) -> list[str]:
    """Build the table by network, against the peer's best."""
    rows, ratios = [], []
    for network in dict.fromkeys(record["network"] for record in records):
        group = [record for record in records if record["network"] == network]
        paces = {
            who: middle(each["steps_per_second"] for each in group if each["who"] == who)
            for who in dict.fromkeys(each["who"] for each in group)
        }
        peak = {who: max(e["peak_mb"] for e in group if e["who"] == who) for who in paces}
        rows += [[network, who, number(paces[who]), number(peak[who])] for who in paces]
        best = max(pace for who, pace in paces.items() if who != OURS)
        ratios.append(f"{ratio(paces[OURS] / best)} with the {network} network")
    return [
        "### Steps/s of PPO on Pong with the true reward",
        "",
        f"**{', '.join(ratios)}**, of Stable-Baselines3's PPO with the same network at its best "
        f"(to reach: 3x). {NUM_ENVS} environments, rollouts of {ROLLOUT_STEPS} steps each, "
        "minibatches of 256, 4 epochs. Ours is the whole command with its reports and checkpoints. "
        f"The first rollout is not counted. Medians of {num_rounds(records)} rounds, in turn, each "
        "in a fresh process; peak MB is of the main process alone.",
        "",
        *table(["network", "", "steps/s", "peak MB"], rows),
        "",
    ]


# --- memory: 16 environments and 1,000 segments ---


def measure_memory(options: Options, records: Records) -> None:
    """Measure a run that asks all its labels at the start."""
    num_labels = 20 if options.is_quick else LABELS
    config = teach_config(
        preset("atari", has_labels=True)
        | {
            "env_id": GAMES[0][0],
            "predictor": "synth",
            "n_labels": num_labels,
            "schedule": "upfront",
            "pretrain_iters": 64,
            "num_timesteps": 4 * NUM_ENVS * ROLLOUT_STEPS,
        },
        options.settings,
    )
    finished = run_ours("teach", saved=config.saved())
    kept_record = records.append(
        run=options.run,
        part="memory",
        settings=config.saved(),
        segments=2 * num_labels,
        peak_mb=finished.peak_mb,
        **finished.figures,
    )
    print(f"  memory: {number(kept_record['peak_mb'])} MB", flush=True)


def memory_report(records: list[Record]) -> list[str]:
    """Build the report of peak memory."""
    newest = records[-1]
    return [
        "### Memory",
        "",
        f"**{number(newest['peak_mb'])} MB** at the most (to reach: under 4,000 MB), of a run on "
        f"Pong with {NUM_ENVS} environments that learns from {newest['segments']:,} segments.",
        "",
    ]


# --- report ---


def num_rounds(records: list[Record]) -> int:
    """Return the number of rounds measured."""
    return len({record["round"] for record in records})


REPORTS = {
    "delivered": delivered_report,
    "learning": learning_report,
    "memory": memory_report,
}


def report(records: list[Record]) -> list[str]:
    """Build the report of the newest run of each part."""
    return describe_parts(REPORTS, records)
