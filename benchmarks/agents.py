"""Our on-policy agents against those of other libraries, and against each other.

Parts: `trpo` against sb3-contrib's, `a2c` against Stable-Baselines3's, `ga3c` against our A2C.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.children import run_ours
from benchmarks.grid import Cell, cell_of_peer, fill
from benchmarks.options import Options
from benchmarks.records import Record, Records, conditions, groups, source_of
from benchmarks.settings import teach_config
from benchmarks.tables import NONE, average, named, over_seeds, ratio, seeds_of, table

SEEDS = (0, 1, 2, 3, 4)
HOW = "python -m benchmarks.run agents [--only trpo a2c ga3c] [--seeds 0 1 2 3 4]"


@dataclass(frozen=True)
class Match:
    """Comparison of two agents with the same settings in the same environments.

    Attributes:
        env_ids: environments.
        steps: environment steps of each run.
        settings: settings of our agent, by dotted name.
        peer: name of the other agent in tables.
        peer_job: arguments of the peer's script; None if the peer is another agent of ours.
        peer_settings: settings of the other agent, if it is one of ours.
        to_reach: the target, as text.
    """

    env_ids: tuple[str, ...]
    steps: int
    settings: Mapping[str, Any]
    peer: str
    peer_job: Mapping[str, Any] | None
    peer_settings: Mapping[str, Any]
    to_reach: str


MATCHES = {
    "trpo": Match(
        env_ids=("Hopper-v5", "Swimmer-v5"),
        steps=1_000_000,
        settings={
            "agent": "trpo",
            "trpo.num_envs": 16,
            "trpo.rollout_steps": 128,
            "trpo.gae_lambda": 0.95,
        },
        peer="sb3-contrib's TRPO",
        peer_job={
            "agent": "TRPO",
            "num_envs": 16,
            "arguments": {"n_steps": 128, "gae_lambda": 0.95},
        },
        peer_settings={},
        to_reach="as high a return; 3x the steps/s",
    ),
    "a2c": Match(
        env_ids=("CartPole-v1",),
        steps=300_000,
        settings={"agent": "a2c"},
        peer="Stable-Baselines3's A2C",
        peer_job={"agent": "A2C", "num_envs": 16, "arguments": {}},
        peer_settings={},
        to_reach="as high a return",
    ),
    "ga3c": Match(
        env_ids=("CartPole-v1", "ShortHopper-v1"),
        steps=300_000,
        settings={"agent": "ga3c"},
        peer="our A2C",
        peer_job=None,
        peer_settings={"agent": "a2c"},
        to_reach="1.5x the steps/s",
    ),
}


def run(options: Options, records: Records) -> None:
    """Run the cells, alternating between peer and ours; skip recorded ones."""
    fill(cells(options), options, records)


def cells(options: Options) -> Iterator[Cell]:
    """Yield every run, seed by seed."""
    for seed in options.seeds or options.limited(SEEDS):
        for part, match in MATCHES.items():
            if options.wants(part):
                for env_id in options.limited(match.env_ids):
                    yield _peer_cell(part, match, env_id, seed, options)
                    yield _our_cell(
                        part, f"our {part.upper()}", match.settings, env_id, seed, options
                    )


def _steps(match: Match, options: Options) -> int:
    return options.steps or (10_240 if options.is_quick else match.steps)


def _peer_cell(part: str, match: Match, env_id: str, seed: int, options: Options) -> Cell:
    if match.peer_job is None:
        return _our_cell(part, match.peer, match.peer_settings, env_id, seed, options)
    job = {
        **match.peer_job,
        "env_id": env_id,
        "seed": seed,
        "threads": 1,
        "is_normalised": True,
        "steps": _steps(match, options),
    }
    facts = {"part": part, "env_id": env_id, "seed": seed}
    return cell_of_peer(match.peer, facts, "sb3", "sb3_agents.py", job)


def _our_cell(
    part: str, who: str, settings: Mapping[str, Any], env_id: str, seed: int, options: Options
) -> Cell:
    steps = _steps(MATCHES[part], options)
    config = teach_config(
        {"env_id": env_id, "num_timesteps": steps, "seed": seed}, settings, options.settings
    )
    work = partial(run_ours, "teach", saved=config.saved(), workers=options.workers)
    facts = {"part": part, "env_id": env_id, "seed": seed, **options.changes}
    return Cell(who, facts, {"config": config.saved()}, work)


# --- report ---


def report(records: list[Record]) -> list[str]:
    """Build one table per agent from all runs."""
    lines: list[str] = []
    for part in MATCHES:
        of_part = [record for record in records if record["part"] == part]
        lines += _compared(part, of_part) if of_part else []
    return lines


def pace(record: Record) -> float:
    """Return the steps/s without the first rollout, which includes compilation."""
    return record.get("steady_steps_per_second") or record["steps_per_second"]


def _compared(part: str, records: list[Record]) -> list[str]:
    match, ours = MATCHES[part], f"our {part.upper()}"
    found = sorted(groups(records, "env_id", "who"), key=lambda group: group[0]["env_id"])
    peers = [group for group in found if group[0]["who"] == match.peer]
    rows = [
        [
            named(f"{group[0]['env_id']}, {group[0]['who']}", group[0]),
            f"{group[0]['steps']:,}",
            over_seeds(group, "final_return"),
            over_seeds(group, pace),
            f"**{_faster(match, group, peers)}**" if group[0]["who"] == ours else NONE,
            seeds_of(group),
            source_of(group[0]),
        ]
        for group in found
    ]
    return [
        f"### {ours}, against {match.peer}",
        "",
        "With the true reward; the return is the mean of the last 100 episodes. To reach: "
        f"{match.to_reach}. Normalised observations and rewards on both sides, the peer on one "
        "thread, settings as in `benchmarks/agents.py` but for changes that the table names. All "
        "runs are shown, by settings and source: interquartile means over seeds with 95 % "
        "bootstrap intervals.",
        "",
        *table(["", "steps", "return", "steps/s", "to the peer's", "seeds", "source"], rows),
        "",
    ]


def _faster(match: Match, ours: list[Record], peers: list[list[Record]]) -> str:
    """Format the ratio of our mean steps/s to the peer's with equal source, steps and changes."""
    # Changes of our settings do not apply to the agent of another library.
    fields = ("env_id",) if match.peer_job else ("env_id", "changes")
    wanted = conditions(ours[0], *fields)
    same = [r for group in peers for r in group if conditions(r, *fields) == wanted]
    return ratio(average(map(pace, ours)) / average(map(pace, same)))
