"""Matrix of agents and environments: every agent learns from the true reward and from labels.

A cell learns when the mean return of its last 100 episodes exceeds its threshold. The thresholds
are well above the random policy (22 on CartPole-v1, 107 on ShortHopper-v1) and equal for all
agents: the matrix shows that every agent works, not which one is best.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.children import run_ours
from benchmarks.comparisons import common_seeds, paired_difference
from benchmarks.grid import Cell, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, conditions, groups, source_of
from benchmarks.settings import TRUE_REWARD, reward_settings, teach_config
from benchmarks.tables import NONE, interval, named, over_seeds, seed_means, table
from benchmarks.tasks import changes_of

ON_POLICY = ("ppo", "trpo", "a2c", "ga3c")
AGENTS = {"CartPole-v1": ON_POLICY, "ShortHopper-v1": (*ON_POLICY, "sac")}
BARS = {"CartPole-v1": 400.0, "ShortHopper-v1": 400.0}
STEPS = {"CartPole-v1": 400_000, "ShortHopper-v1": 800_000}
STEPS_OF_SAC = 80_000
"""SAC learns more from each step and takes more time per step."""
LABELS = (TRUE_REWARD, 200)
SEEDS = (0, 1, 2, 3, 4)
HOW = (
    "python -m benchmarks.run agents_matrix "
    "[--only CartPole-v1] [--labels 0 200] [--seeds 0 1 2 3 4] [--set agent=a2c]"
)


def run(options: Options, records: Records) -> None:
    """Run what is not recorded yet, two at a time, each with one physics thread."""
    fill(cells(options), replace(options, parallel=options.parallel or 2), records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run, seed by seed."""
    agent = options.settings.get("agent")
    options = replace(options, settings=changes_of(options))
    for seed in options.seeds or options.limited(SEEDS):
        for env_id in options.only or options.limited(tuple(BARS)):
            for num_labels in options.labels or LABELS:
                for name in [agent] if agent else AGENTS[env_id]:
                    yield cell(name, env_id, num_labels, seed, options)


def cell(agent: str, env_id: str, num_labels: int, seed: int, options: Options) -> Cell:
    """Create the cell of one run."""
    usual = STEPS_OF_SAC if agent == "sac" else STEPS[env_id]
    steps = options.steps or (10_000 if options.is_quick else usual)
    config = teach_config(
        {"env_id": env_id, "num_timesteps": steps, "seed": seed, "agent": agent},
        reward_settings(num_labels),
        options.settings,
    )
    facts = {"env_id": env_id, "labels": num_labels, "seed": seed, **options.changes}
    work = partial(run_ours, "teach", saved=config.saved(), workers=1)
    return Cell(agent, facts, {"config": config.saved()}, work)


def report(records: list[Record]) -> list[str]:
    """Build the table of returns by agent, with the number of runs that learned."""
    found = groups(records, "who", "env_id", "labels")
    found.sort(key=lambda group: (group[0]["env_id"], group[0]["labels"]))
    rows = [
        [
            named(
                f"{group[0]['env_id']}, "
                f"{f'{labels} labels' if (labels := group[0]['labels']) else 'true reward'}, "
                f"{group[0]['who']}",
                group[0],
            ),
            f"{group[0]['steps']:,}",
            over_seeds(group, "final_return"),
            _difference(group, records),
            f"{sum(map(learns, group))} of {len(group)}",
            source_of(group[0]),
        ]
        for group in found
    ]
    bars = ", ".join(f"{bar:.0f} on {env_id}" for env_id, bar in BARS.items())
    return [
        "Mean return of the last 100 episodes: interquartile mean over seeds with its 95 % "
        "bootstrap interval, and the number of runs in which it "
        f"reaches the bar: {bars}. All agents have their default settings, but for changes that "
        "the table names. Difference: to the defaults, in pairs of equal seed and source.",
        "",
        *table(["", "steps", "return", "difference", "learned", "source"], rows),
        "",
    ]


def _difference(group: list[Record], records: list[Record]) -> str:
    """Format the difference of changed settings to the defaults, in pairs of equal seed."""
    if "changes" not in group[0]:
        return NONE
    fields = ("who", "env_id", "labels")
    wanted = conditions(group[0], *fields)
    same = [r for r in records if "changes" not in r and conditions(r, *fields) == wanted]
    changed = {"": seed_means(group, "final_return")}
    pairs = common_seeds(changed, {"": seed_means(same, "final_return")})
    return interval(paired_difference, *pairs) if all(pairs) else NONE


def learns(record: Record) -> bool:
    """Return True if the run exceeded its threshold."""
    reached = record["final_return"]
    return reached is not None and reached >= BARS[record["env_id"]]
