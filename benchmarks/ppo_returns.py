"""Our PPO alone: returns after 1M steps against Stable-Baselines3's PPO with VecNormalize."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.children import ChildFailed, run_ours
from benchmarks.comparisons import iqm
from benchmarks.grid import Cell, cell_of_peer, fill, recorded_returns
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.settings import SB3_NAMES, sb3_arguments, teach_config
from benchmarks.tables import mean_and_spread, named, number, over_seeds, seeds_of, table
from benchmarks.time_to_return import seconds_from_launch
from rl_teacher.config.agents import PPOConfig
from rl_teacher.config.experiment import TeachConfig

ENV_IDS = ("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5")
SEEDS = (0, 1, 2, 3, 4)
STEPS = 1_000_000
NUM_ENVS, ROLLOUT_STEPS = 16, 128
GAE_LAMBDA = 0.95
"""The default of Stable-Baselines3, on both sides; ours is another one."""
SHARED = tuple(f"ppo.{name}" for name in ("num_envs", *SB3_NAMES))
"""Settings that `--set` changes on both sides."""
OURS, PEER = "rl-teacher", "Stable-Baselines3"
HOW = (
    "python -m benchmarks.run ppo_returns [--seeds 0 1 2 3 4] [--parallel 2] [--set NAME=VALUE ...]"
)


def run(options: Options, records: Records) -> None:
    """Run the peer, then ours, which also finds when it reaches the peer's return."""
    fill(peer_cells(options), options, records)
    fill(our_cells(options, records.all()), options, records)


def peer_cells(options: Options) -> Iterator[Cell]:
    """Yield the runs of the peer."""
    for facts, config in seeds_and_environments(options):
        job = {
            "env_id": config.env_id,
            "arguments": sb3_arguments(config.ppo),
            "environments": "DummyVecEnv",
            "num_envs": config.ppo.num_envs,
            "seed": config.seed,
            "threads": 1,
            "is_normalised": True,
            "warm_up_steps": 0,
            "steps": config.num_timesteps,
        }
        yield cell_of_peer(PEER, facts, "sb3", "sb3_train.py", job)


def our_cells(options: Options, recorded: list[Record]) -> Iterator[Cell]:
    """Yield our runs, whose bar is the interquartile mean of the peer's returns."""
    returns = recorded_returns(peer_cells(options), recorded)
    for facts, config in seeds_and_environments(options):
        settings = {"config": config.saved(), "bar": iqm(returns[config.env_id])}
        job = {"saved": config.saved(), "bar": settings["bar"], "workers": options.workers}
        yield Cell(OURS, facts, settings, partial(run_ours, "teach", **job))


def seeds_and_environments(options: Options) -> Iterator[tuple[dict[str, Any], TeachConfig]]:
    """Yield the facts and the settings of both sides of every comparison."""
    steps = options.steps or (20_480 if options.is_quick else STEPS)
    for seed in options.seeds or options.limited(SEEDS):
        for env_id in options.only or options.limited(ENV_IDS):
            facts = {"env_id": env_id, "seed": seed, **options.changes}
            yield facts, our_config(env_id, steps, seed, options)


def our_config(env_id: str, steps: int, seed: int, options: Options) -> TeachConfig:
    """Return the settings of both sides, changed by `--set`.

    Raises:
        ChildFailed: a change would not apply to the peer.
    """
    if unshared := sorted(options.settings.keys() - SHARED):
        raise ChildFailed(
            f"--set {unshared[0]} does not apply to {PEER}; change {', '.join(SHARED)}."
        )
    settings = {
        "env_id": env_id,
        "num_timesteps": steps,
        "seed": seed,
        "ppo.num_envs": NUM_ENVS,
        "ppo.rollout_steps": ROLLOUT_STEPS,
        "ppo.gae_lambda": GAE_LAMBDA,
    }
    return teach_config(settings, options.settings)


def report(records: list[Record]) -> list[str]:
    """Build the table of returns by environment, settings and source."""
    found = sorted(groups(records, "who", "env_id"), key=lambda group: group[0]["env_id"])
    rows = []
    for group in found:
        first = group[0]
        rows.append(
            [
                named(f"{first['env_id']}, {first['who']}", first),
                f"{first['steps']:,}",
                over_seeds(group, "final_return"),
                *reached_cells(group, found),
                str(hyperparameter_of(first, "minibatch_size")),
                number(hyperparameter_of(first, "gae_lambda")),
                seeds_of(group),
                mean_and_spread([record["process_s"] for record in group]),
                source_of(first),
            ]
        )
    return [
        "PPO with the true reward: mean return of the last 100 episodes. "
        f"{NUM_ENVS} environments, rollouts of {ROLLOUT_STEPS} steps of each, "
        "10 epochs, 2 x 64 tanh, learning rate 3e-4, where the table names no other; "
        "Stable-Baselines3 with VecNormalize (to reach: as much as it). Both sides have the same "
        f"hyperparameters; GAE's lambda is {GAE_LAMBDA}, Stable-Baselines3's default, and not "
        f"ours of {PPOConfig.gae_lambda}, unless the table shows another. Reached: runs whose "
        "training return reached the interquartile mean of the peer's final returns, and the "
        "share of the peer's time, both from launch, that they took for it (to reach: a sixth, "
        "0.17). Interquartile means over seeds with 95 % bootstrap intervals.",
        "",
        *table(
            [
                *("", "steps", "return", "reached", "of the peer's time", "minibatch", "lambda"),
                *("seeds", "wall s", "source"),
            ],
            rows,
        ),
        "",
    ]


def reached_cells(group: list[Record], found: list[list[Record]]) -> tuple[str, str]:
    """Return how many runs reached the peer's return, and in which share of its time."""
    first = group[0]
    if "bar" not in first["settings"]:
        return "", ""
    peer_s = {
        record["seed"]: record["process_s"]
        for peers in found
        for record in peers
        if record["who"] == PEER
        and [source_of(record), record["steps"], *map(record.get, ("env_id", "changes"))]
        == [source_of(first), first["steps"], *map(first.get, ("env_id", "changes"))]
    }

    def share(record: Record) -> float | None:
        seconds = seconds_from_launch(record)
        return None if seconds is None else seconds / peer_s[record["seed"]]

    num_reached = sum(seconds_from_launch(record) is not None for record in group)
    # Without runs of the peer at the same time there are no times to compare.
    return f"{num_reached} of {len(group)}", over_seeds(group, share) if peer_s else ""


def hyperparameter_of(record: Record, name: str) -> Any:
    """Return a hyperparameter of PPO in a run, also in records of earlier versions."""
    settings = record["settings"]
    if "config" in settings:
        ours = settings["config"]["ppo"]
        return ours.get(name) or ours["trace"]  # the former name of gae_lambda
    if "arguments" in settings:
        return settings["arguments"][SB3_NAMES[name]]
    # The peer's settings once had our names, and lambda was its default.
    return settings.get(name, GAE_LAMBDA)
