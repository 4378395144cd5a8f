"""Our PPO alone: returns after 1M steps against Stable-Baselines3's PPO with VecNormalize."""

from collections.abc import Iterator
from functools import partial

from benchmarks.children import ChildFailed, run_ours
from benchmarks.grid import Cell, cell_of_peer, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, groups, source_of
from benchmarks.settings import SB3_NAMES, sb3_arguments, teach_config
from benchmarks.tables import mean_and_spread, named, over_seeds, seeds_of, table
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
    """Run the cells, alternating between peer and ours."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run in execution order."""
    steps = options.steps or (20_480 if options.is_quick else STEPS)
    for seed in options.seeds or options.limited(SEEDS):
        for env_id in options.only or options.limited(ENV_IDS):
            facts = {"env_id": env_id, "seed": seed, **options.changes}
            config = our_config(env_id, steps, seed, options)
            job = {
                "env_id": env_id,
                "arguments": sb3_arguments(config.ppo),
                "environments": "DummyVecEnv",
                "num_envs": config.ppo.num_envs,
                "seed": seed,
                "threads": 1,
                "is_normalised": True,
                "warm_up_steps": 0,
                "steps": steps,
            }
            yield cell_of_peer(PEER, facts, "sb3", "sb3_train.py", job)
            work = partial(run_ours, "teach", saved=config.saved(), workers=options.workers)
            yield Cell(OURS, facts, {"config": config.saved()}, work)


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
    rows = [
        [
            named(f"{group[0]['env_id']}, {group[0]['who']}", group[0]),
            f"{group[0]['steps']:,}",
            over_seeds(group, "final_return"),
            lambda_of(group[0]),
            seeds_of(group),
            mean_and_spread([record["process_s"] for record in group]),
            source_of(group[0]),
        ]
        for group in found
    ]
    return [
        "PPO with the true reward: mean return of the last 100 episodes. "
        f"{NUM_ENVS} environments, rollouts of {ROLLOUT_STEPS} steps of each, minibatches of 256, "
        "10 epochs, 2 x 64 tanh, learning rate 3e-4, where the table names no other; "
        "Stable-Baselines3 with VecNormalize (to reach: as much as it). Both sides have the same "
        f"hyperparameters; GAE's lambda is {GAE_LAMBDA}, Stable-Baselines3's default, and not "
        f"ours of {PPOConfig.gae_lambda}, unless the table shows another. Interquartile means "
        "over seeds with 95 % bootstrap intervals.",
        "",
        *table(["", "steps", "return", "lambda", "seeds", "wall s", "source"], rows),
        "",
    ]


def lambda_of(record: Record) -> float:
    """Return the GAE lambda of a run; the peer's was its default before it was given."""
    config = record["settings"].get("config")
    if config is None:
        return record["settings"].get("arguments", {"gae_lambda": GAE_LAMBDA})["gae_lambda"]
    return config["ppo"].get("gae_lambda") or config["ppo"]["trace"]
