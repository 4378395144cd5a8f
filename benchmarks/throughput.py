"""Throughput of the loop: against Stable-Baselines3, SBX, raw physics, and itself with labels."""

import math
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any

from benchmarks.children import ChildFailed, child, run_ours, run_peer
from benchmarks.options import Options
from benchmarks.parts import describe_parts, measure_parts, pace_of
from benchmarks.records import Record, Records
from benchmarks.settings import sb3_arguments, teach_config, with_settings
from benchmarks.tables import NONE, middle, number, ratio, table
from rl_teacher.config.agents import PPOConfig
from rl_teacher.config.experiment import TeachConfig

ROLLOUT_STEPS = 2048
ENVS = (16, 64)
PEERS = tuple(product(("DummyVecEnv", "SubprocVecEnv", "EnvPool"), (1, 2)))
"""Environments of the peer, and threads of its torch."""
MATCHED_PEERS = {
    "Stable-Baselines3": ("sb3", "DummyVecEnv"),
    "Stable-Baselines3, EnvPool": ("sb3", "EnvPool"),
    "SBX": ("sbx", "DummyVecEnv"),
}
"""Libraries and environments of `matched`; SBX compiles its updates, as ours does."""
MATCHED_ENVS, MATCHED_STEPS = 16, 60_000
OURS = "rl-teacher"
LABELS = 700
POLL_S = 0.02
GIVE_UP_S = 300.0
HOW = (
    "python -m benchmarks.run throughput [--only pace labels launch]; "
    "taskset -c 0 python -m benchmarks.run throughput --only matched"
)


def run(options: Options, records: Records) -> None:
    """Measure the selected parts: pace, matched, labels, launch."""
    parts = {
        "pace": measure_pace,
        "matched": measure_matched,
        "labels": measure_labels,
        "launch": measure_launch,
    }
    measure_parts(parts, options, records)


# --- pace: steps/s with the true reward ---


def measure_pace(options: Options, records: Records) -> None:
    """Measure peer, ours and physics in turn, each in new processes, for several rounds."""
    for number_of_round in range(1 if options.is_quick else 3):
        measured = [measure(options) for measure in (peer_pace, our_pace, raw_physics)]
        _append_round(records, options, "pace", number_of_round, chain(*measured))


def _append_round(
    records: Records,
    options: Options,
    part: str,
    number_of_round: int,
    measured: Iterable[dict[str, Any]],
) -> None:
    """Record a round at once, since a ratio needs both sides."""
    for metrics in measured:
        records.append(run=options.run, part=part, round=number_of_round, **metrics)
        print(f"  {metrics['who']}: {number(metrics['steps_per_second'])} steps/s", flush=True)


def peer_pace(options: Options) -> list[dict[str, Any]]:
    """Measure Stable-Baselines3 for each kind and number of environments and threads."""
    steps = 4_096 if options.is_quick else 100_000
    metrics = []
    for num_envs in options.limited(ENVS):
        config = pace_config(num_envs, options)
        for environments, threads in PEERS:
            finished = run_peer(
                "sb3",
                "sb3_train.py",
                env_id="Hopper-v5",
                environments=environments,
                num_envs=num_envs,
                arguments=sb3_arguments(config.ppo),
                seed=1,
                threads=threads,
                is_normalised=False,
                warm_up_steps=0 if options.is_quick else 3 * ROLLOUT_STEPS,
                steps=steps,
            )
            who = f"Stable-Baselines3, {num_envs} environments, {environments}, {threads} threads"
            metrics.append(
                {
                    "who": who,
                    "num_envs": num_envs,
                    "environments": environments,
                    "threads": threads,
                    "steps": finished.figures["steps"],
                    "steps_per_second": finished.figures["steps_per_second"],
                    "peak_mb": finished.peak_mb,
                    "peer_versions": finished.figures["peer_versions"],
                }
            )
    return metrics


def our_pace(options: Options) -> list[dict[str, Any]]:
    """Measure `rl-teacher teach -p rl` with all outputs, for each number of environments."""
    metrics = []
    for num_envs in options.limited(ENVS):
        config = pace_config(num_envs, options)
        finished = run_ours("teach", saved=config.saved())
        metrics.append(
            {
                "who": f"rl-teacher, {num_envs} environments",
                "num_envs": num_envs,
                **pace_of(finished, config),
            }
        )
    return metrics


def pace_config(num_envs: int, options: Options) -> TeachConfig:
    """Return the settings of both sides."""
    steps = 40_000 if options.is_quick else 400_000
    return teach_config(
        {"env_id": "Hopper-v5", "num_timesteps": options.steps or steps},
        {"ppo.num_envs": num_envs, "ppo.rollout_steps": ROLLOUT_STEPS // num_envs},
        options.settings,
    )


def raw_physics(options: Options) -> list[dict[str, Any]]:
    """Measure MuJoCo's batch alone with as many environments."""
    seconds = 1.0 if options.is_quick else 8.0
    return [
        {
            "who": f"physics alone, {num_envs} environments",
            "num_envs": num_envs,
            **run_ours("physics", env_id="Hopper-v5", num_envs=num_envs, seconds=seconds).figures,
        }
        for num_envs in options.limited(ENVS)
    ]


# --- matched: steps/s of PPO with one thread each, by environment and minibatch ---


def measure_matched(options: Options, records: Records) -> None:
    """Measure the peers and ours in turn, one thread each, for two rounds."""
    for number_of_round in range(1 if options.is_quick else 2):
        for env_id, minibatch_size in product(("Hopper-v5", "HalfCheetah-v5"), (64, 256)):
            changes = {"env_id": env_id, "ppo.minibatch_size": minibatch_size}
            facts = {**changes, "affinity": len(os.sched_getaffinity(0))}
            config = with_settings(pace_config(MATCHED_ENVS, options), changes)
            config = replace(config, num_timesteps=8_192 if options.is_quick else MATCHED_STEPS)
            measured = [
                *(matched_peer(who, config) for who in MATCHED_PEERS),
                {"who": OURS, **matched_ours(config)},
            ]
            _append_round(
                records, options, "matched", number_of_round, (facts | each for each in measured)
            )


def matched_peer(who: str, config: TeachConfig) -> dict[str, Any]:
    """Measure PPO of another library."""
    library, environments = MATCHED_PEERS[who]
    finished = run_peer(
        library,
        "sb3_train.py",
        library=library,
        env_id=config.env_id,
        environments=environments,
        num_envs=config.ppo.num_envs,
        arguments=sb3_arguments(config.ppo),
        seed=1,
        threads=1,
        is_normalised=False,
        warm_up_steps=3 * ROLLOUT_STEPS,
        steps=config.num_timesteps,
    )
    return {"who": who, **finished.figures, "peak_mb": finished.peak_mb}


def matched_ours(config: TeachConfig) -> dict[str, Any]:
    """Measure `rl-teacher teach -p rl -w 1` with all outputs."""
    finished = run_ours("teach", saved=config.saved(), workers=1)
    figures = finished.figures
    return {
        "steps_per_second": figures["warm_steps_per_second"],
        "steps_per_cpu_second": figures["steps_per_cpu_second"],
        "peak_mb": finished.peak_mb,
    }


# --- labels: steps/s with labels over steps/s without ---


def measure_labels(options: Options, records: Records) -> None:
    """Measure -p rl and -p synth on the suite's Hopper in turn."""
    steps = options.steps or (40_000 if options.is_quick else 800_000)
    for number_of_round in range(1 if options.is_quick else 3):
        measured = []
        for predictor, n_labels in (("rl", None), ("synth", LABELS)):
            config = teach_config(
                {"env_id": "Hopper-v1", "predictor": predictor, "n_labels": n_labels},
                {"num_timesteps": steps},
                options.settings,
            )
            finished = run_ours("teach", saved=config.saved())
            measured.append(
                {
                    "who": f"-p {predictor}",
                    "settings": config.saved(),
                    "peak_mb": finished.peak_mb,
                    **finished.figures,
                }
            )
        _append_round(records, options, "labels", number_of_round, measured)


# --- launch: seconds until the first comparison, and the peak memory ---


def measure_launch(options: Options, records: Records) -> None:
    """Measure the command, first with an empty compilation cache, then again."""
    steps = options.steps or (20_000 if options.is_quick else 800_000)
    for number_of_round in range(1 if options.is_quick else 3):
        with tempfile.TemporaryDirectory(prefix="rl-teacher-bench-") as home:
            for cache in ("cold", "warm"):
                # Only one run is completed, for its peak memory; the others are ended at once.
                is_completed = cache == "warm" and number_of_round == 0
                metrics = launch(Path(home), cache, steps, is_completed)
                kept_record = records.append(
                    run=options.run,
                    part="launch",
                    round=number_of_round,
                    who=f"{cache} compile cache",
                    steps=steps,
                    **metrics,
                )
                print(
                    f"  {kept_record['who']}: {number(kept_record['first_comparison_s'])} s",
                    flush=True,
                )


def launch(home: Path, name: str, steps: int, is_completed: bool) -> dict[str, Any]:
    """Return the seconds until the first comparison is stored, and the peak memory."""
    executable = Path(sys.executable).with_name("rl-teacher")
    flags = ["-p", "synth", "-e", "Hopper-v1", "-l", str(LABELS), "-t", str(steps), "-n", name]
    command = [str(executable), "teach", *flags, "--no-tensorboard"]
    before = num_comparisons(home)
    with child(command, RL_TEACHER_HOME=str(home)) as started:
        while num_comparisons(home) == before:
            seconds = time.perf_counter() - started.began_s
            if not started.is_running:
                started.wait()
            if not started.is_running or seconds > GIVE_UP_S:
                raise ChildFailed(f"no comparison was asked in {seconds:.0f} s")
            time.sleep(POLL_S)
        first_comparison_s = time.perf_counter() - started.began_s
        peak_mb = started.wait()[2] if is_completed else None
    return {"first_comparison_s": first_comparison_s, "peak_mb": peak_mb}


def num_comparisons(home: Path) -> int:
    """Count the comparisons in a store that another process may be creating."""
    path = home / "labels.sqlite"
    if not path.exists():
        return 0
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.1)
        try:
            return connection.execute("SELECT count(*) FROM comparisons").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return 0


# --- report ---


def report(records: list[Record]) -> list[str]:
    """Build the tables of the newest run of each part."""
    parts = {"pace": _pace, "matched": _matched, "labels": _labels, "launch": _launch}
    return describe_parts(parts, records)


def _by_who(records: list[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["who"], []).append(record)
    return groups


def _pace(records: list[Record]) -> list[str]:
    groups = _by_who(records)
    paces = {who: middle(r["steps_per_second"] for r in group) for who, group in groups.items()}

    best = max((who for who in paces if who.startswith("rl-teacher")), key=paces.__getitem__)
    ours = paces[best]
    peers = {who: pace for who, pace in paces.items() if who.startswith("Stable")}
    own, pooled = (
        max((pace for who, pace in peers.items() if ("EnvPool" in who) is is_pooled), default=None)
        for is_pooled in (False, True)
    )
    compared = f"**{ratio(own and ours / own)}** Stable-Baselines3's PPO with its own environments"
    if pooled is not None:
        compared += f", **{ratio(ours / pooled)}** with EnvPool's"
    num_envs = groups[best][0]["num_envs"]
    raw = paces[f"physics alone, {num_envs} environments"]
    rows = [
        [who, number(pace), number(middle(r.get("peak_mb") for r in groups[who]))]
        for who, pace in paces.items()
    ]
    rollout_us, update_us = (
        middle(r.get(field) for r in groups[best])
        for field in ("rollout_us_per_step", "update_us_per_step")
    )
    parts = (
        f" A step takes {number(1e6 / ours)} µs: {number(rollout_us)} in rollouts, "
        f"{number(update_us)} in updates. Raw physics takes {number(1e6 / raw)} µs."
    )
    return [
        "### Steps/s with the true reward, Hopper-v5",
        "",
        f"{compared}, each at its best (to reach: 5.5x); **{ratio(ours / raw)}** raw physics with "
        # Older records lack the parts.
        f"as many environments (to reach: 0.9x).{'' if math.isnan(rollout_us) else parts}",
        "",
        f"Rollouts of {ROLLOUT_STEPS:,} steps, minibatches of {PPOConfig.minibatch_size}, 10 "
        "epochs, 2 x 64 tanh, learning rate 3e-4. Ours is the whole command with its reports and "
        "checkpoints, and normalises observations and rewards; Stable-Baselines3 normalises "
        "nothing, and has DummyVecEnv, its default, where nothing else is said; SubprocVecEnv runs "
        "each environment in a process, EnvPool all of them in threads of C++. The first rollouts "
        "are not counted. "
        f"Rounds, in turn, each in a fresh process: {len(groups[best])}, whose median is shown; "
        "peak MB is of the main process alone.",
        "",
        *table(["", "steps/s", "peak MB"], rows),
        "",
    ]


def _matched(records: list[Record]) -> list[str]:
    cases = dict.fromkeys((r["env_id"], r["ppo.minibatch_size"]) for r in records)
    rows = []
    for env_id, minibatch_size in cases:
        of_case = [
            r for r in records if (r["env_id"], r["ppo.minibatch_size"]) == (env_id, minibatch_size)
        ]
        groups = _by_who(of_case)
        wall, cpu = (
            {who: middle(r[field] for r in group) for who, group in groups.items()}
            for field in ("steps_per_second", "steps_per_cpu_second")
        )
        for who in groups:
            rows.append(
                [
                    f"{env_id}, minibatches of {minibatch_size}: {who}",
                    number(wall[who]),
                    number(cpu[who]),
                    NONE if who == OURS else ratio(wall[OURS] / wall[who]),
                    NONE if who == OURS else ratio(cpu[OURS] / cpu[who]),
                ]
            )
    num_rounds = len({record["round"] for record in records})
    return [
        "### Steps/s of PPO with one thread each",
        "",
        f"{MATCHED_ENVS} environments, rollouts of {ROLLOUT_STEPS:,} steps, equal hyperparameters, "
        f"{records[0]['affinity']} core for each process; the first rollouts, with the "
        "compilation, are not counted. Processor time depends less on other programs than wall "
        "time does. Ours normalises observations and rewards and writes reports and checkpoints; "
        f"the others do not. Medians of {num_rounds} rounds, in turn.",
        "",
        *table(
            ["", "steps/s", "steps per processor second", "ours, wall", "ours, processor"], rows
        ),
        "",
    ]


def _labels(records: list[Record]) -> list[str]:
    groups = _by_who(records)
    rl, synth = groups["-p rl"], groups["-p synth"]

    def share(field: str) -> str:
        return ratio(middle(r[field] for r in synth) / middle(r[field] for r in rl))

    fields = {
        "training": "steps_per_second",
        "training, first rollout left out": "steady_steps_per_second",
        "set-up and pretraining included": "steps_per_second_with_pretraining",
    }
    rows = [
        [
            words,
            number(middle(r[field] for r in rl)),
            number(middle(r[field] for r in synth)),
            share(field),
        ]
        for words, field in fields.items()
    ]
    memory = [number(middle(r["peak_mb"] for r in group)) for group in (rl, synth)]
    return [
        f"### Steps/s with {LABELS} synthetic labels, Hopper-v1",
        "",
        f"**{share('steps_per_second')}** the pace with the true reward (to reach: 0.9x). "
        f"{rl[0]['steps']:,} steps; medians of {len(rl)} rounds, in turn.",
        "",
        *table(["steps/s", "-p rl", f"-p synth -l {LABELS}", "ratio"], rows),
        "",
        f"Peak memory: {memory[0]} MB with -p rl, {memory[1]} MB with -p synth.",
        "",
    ]


def _launch(records: list[Record]) -> list[str]:
    groups = _by_who(records)
    seconds = {who: middle(r["first_comparison_s"] for r in group) for who, group in groups.items()}
    peak = max((r["peak_mb"] for r in records if r["peak_mb"]), default=None)
    cold = seconds["cold compile cache"]
    return [
        "### From launch to the first comparison, and memory",
        "",
        f"**{number(cold)} s** with nothing compiled yet (to reach: under 15 s); peak memory of "
        f"the run to its end **{number(peak)} MB** (to reach: under 1,500 MB). "
        f"`rl-teacher teach -p synth -e Hopper-v1 -l {LABELS} -t {records[0]['steps']}`.",
        "",
        *table(["", "s"], [[who, number(value)] for who, value in seconds.items()]),
        "",
    ]
