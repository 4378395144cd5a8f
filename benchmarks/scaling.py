"""Costs of rollouts and requests, a simulation of both, and what it predicts for large numbers."""

import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import fmean, median
from typing import Any

from benchmarks import scaling_service
from benchmarks.children import run_ours
from benchmarks.options import Options
from benchmarks.parts import describe_parts, measure_parts
from benchmarks.records import Record, Records, latest_run
from benchmarks.scale_model import (
    Cluster,
    Load,
    RolloutCosts,
    ServiceCosts,
    ServiceResult,
    simulate_rollouts,
    simulate_service,
)
from benchmarks.settings import teach_config
from benchmarks.tables import NONE, middle, number, table
from tests.store import postgres

HOW = "python -m benchmarks.run scaling [--only rollouts service]"

ENV_IDS = ("Hopper-v5", "Humanoid-v5")
NUM_ENVS, ROLLOUT_STEPS = 64, 128
WORKERS = (1, 10, 100, 1_000)
FASTER_UPDATE = 20
"""Factor of the second forecast of rollouts, such as of a GPU."""
LABELERS = (100, 1_000, 10_000)
SECONDS_PER_ANSWER = 3
BUSY = 0.7
"""Share of its core for which a process of the forecasts is busy, at most."""
TO_REACH = 0.15
"""Relative error of the simulation."""

CONSTANTS = {
    "env_step_s": ("a step of an environment, on one core", 1e6, "us"),
    "vector_step_s": ("a step of all environments, besides", 1e6, "us"),
    "policy_call_s": ("a call of the policy", 1e6, "us"),
    "policy_row_s": ("a row of its batch, besides", 1e6, "us"),
    "noise_row_s": ("the action noise of one environment", 1e9, "ns"),
    "update_step_s": ("a step in an update", 1e6, "us"),
    "join_step_s": ("a step joined to others by the learner", 1e9, "ns"),
    "put_s": ("the policy, written to the object store", 1e3, "ms"),
    "task_s": ("a task, sent by the learner", 1e6, "us"),
    "latency_s": ("a task that does nothing, besides", 1e3, "ms"),
    "write_byte_s": ("1 MB, written to the object store", 1e9, "ms"),
    "send_byte_s": ("1 MB, sent to another node", 1e9, "ms"),
    "receive_byte_s": ("1 MB, received from another node", 1e9, "ms"),
    "ray_cores": ("cores of Ray's own processes on a node", 1, ""),
    "policy_bytes": ("the policy", 1e-3, "kB"),
    "step_bytes": ("a step", 1, "bytes"),
    "env_bytes": ("the state of an environment", 1, "bytes"),
}
"""Description, factor and unit of the fields of `RolloutCosts`."""


def run(options: Options, records: Records) -> None:
    """Measure the selected parts: rollouts, service."""
    measure_parts({"rollouts": measure_rollouts, "service": measure_service}, options, records)


def measure_rollouts(options: Options, records: Records) -> None:
    """Measure costs and the pace of one process and of one and two nodes of one core each."""
    rollout_steps = 32 if options.is_quick else ROLLOUT_STEPS
    for env_id in options.limited(ENV_IDS):
        config = teach_config(
            {"env_id": env_id},
            {"ppo.num_envs": NUM_ENVS, "ppo.rollout_steps": rollout_steps},
        )
        finished = run_ours(
            "scaling_rollouts", saved=config.saved(), num_rounds=2 if options.is_quick else 8
        )
        records.append(
            run=options.run,
            part="rollouts",
            env_id=env_id,
            num_envs=NUM_ENVS,
            rollout_steps=rollout_steps,
            **finished.figures,
        )
        print(f"  rollouts, {env_id}: {finished.wall_s:.0f} s", flush=True)


def measure_service(options: Options, records: Records) -> None:
    """Measure costs and loads of the service on both databases."""
    for database in options.limited(("sqlite", "postgresql")):
        if database == "postgresql" and (missing := postgres.missing()):
            print(f"  service: {missing}", flush=True)
            continue
        seconds, num_labelers = (2, 8) if options.is_quick else (14, 48)
        measured = scaling_service.measure(database, seconds, num_labelers)
        records.append(run=options.run, part="service", database=database, **measured)
        print(f"  service, {database}: measured", flush=True)


# --- report ---


def report(records: list[Record]) -> list[str]:
    """Build the report of the newest run of each part."""
    return describe_parts({"rollouts": _rollouts, "service": _service}, records)


def _rollouts(records: list[Record]) -> list[str]:
    return [
        *rollout_constants(records),
        *rollout_comparison(records),
        *rollout_forecast(records, 1),
        *rollout_forecast(records, FASTER_UPDATE),
    ]


def _service(records: list[Record]) -> list[str]:
    constants, comparison = service_constants(records), service_comparison(records)
    return [*constants, *comparison, *service_forecast(records[-1])]


def error(simulated: float, measured: float) -> str:
    """Format a relative error, in bold if it is above `TO_REACH`."""
    share = simulated / measured - 1 if measured else math.nan
    if not math.isfinite(share):
        return NONE
    text = f"{100 * share:+.0f} %"
    return text if abs(share) <= TO_REACH else f"**{text}**"


# --- rollouts ---


def costs_of(record: Record) -> RolloutCosts:
    """Return the costs that a record has; small negative differences of times are 0."""
    known = record["costs"]
    return RolloutCosts(**{name: max(known.get(name, 0.0), 0.0) for name in CONSTANTS})


def rollout_constants(records: list[Record]) -> list[str]:
    """Build the table of the costs of rollouts."""
    rows = [
        [text, *(f"{number(factor * getattr(costs_of(each), name))} {unit}" for each in records)]
        for name, (text, factor, unit) in CONSTANTS.items()
    ]
    return [
        "### Costs of rollouts",
        "",
        f"PPO with default settings, {records[0]['num_envs']} environments, "
        f"{records[0]['rollout_steps']} steps of each per rollout. Learner and nodes have one core "
        "each; the nodes are on one machine, so that bytes go through its memory. Medians.",
        "",
        *table(["", *(each["env_id"] for each in records)], rows),
        "",
    ]


def rollout_comparison(records: list[Record]) -> list[str]:
    """Build the table of measured and simulated paces."""
    names = {"0": "one process", "1": "one node", "2": "two nodes"}
    rows = []
    for record in records:
        for num_nodes, measured in record["paces"].items():
            simulated = simulate_rollouts(
                Cluster(
                    max(int(num_nodes), 1),
                    record["num_envs"],
                    record["rollout_steps"],
                    num_local=1,
                    is_in_process=num_nodes == "0",
                ),
                costs_of(record),
            ).steps_per_second
            row = [number(measured), number(simulated), error(simulated, measured)]
            rows.append([f"{record['env_id']}, {names[num_nodes]}", *row])
    return [
        "### Simulation of rollouts against measurement",
        "",
        "Steps/s of collecting and updating. The first node shares its core with the learner. "
        f"To reach: an error of at most {100 * TO_REACH:.0f} %; others are bold.",
        "",
        *table(["", "measured", "simulated", "error"], rows),
        "",
    ]


def rollout_forecast(records: list[Record], update_factor: int) -> list[str]:
    """Build the table of many workers.

    Args:
        records: measurements.
        update_factor: how many times faster than measured updates are.
    """
    rows = [
        [record["env_id"], *row]
        for record in records
        for row in forecast_rows(record, update_factor)
    ]
    faster = f", updates {update_factor} times as fast" if update_factor > 1 else ""
    return [
        f"### Many rollout workers{faster}",
        "",
        f"Simulated: workers of one core with {NUM_ENVS} environments each, all on other nodes "
        "than the learner, which has one core. Efficiency: steps/s per worker, against one that "
        "never waits. Busy: share of the time.",
        "",
        *table(
            [
                *("", "workers", "steps per rollout", "steps/s", "efficiency"),
                *("link MB/s", "workers busy", "link busy", "learner busy"),
            ],
            rows,
        ),
        "",
    ]


def forecast_rows(record: Record, update_factor: int) -> Iterator[Sequence[str]]:
    """Yield a row for each number of workers."""
    measured = costs_of(record)
    costs = RolloutCosts(
        **{**vars(measured), "update_step_s": measured.update_step_s / update_factor}
    )
    alone_s = costs.rollout_s(NUM_ENVS, NUM_ENVS, ROLLOUT_STEPS, 1)
    for num_workers in WORKERS:
        cluster = Cluster(num_workers, NUM_ENVS * num_workers, ROLLOUT_STEPS)
        result = simulate_rollouts(cluster, costs)
        ideal = num_workers * NUM_ENVS * ROLLOUT_STEPS / alone_s
        shares = (result.busy[name] for name in ("workers", "link", "learner"))
        yield [
            f"{num_workers:,}",
            f"{cluster.num_envs * cluster.num_steps:,}",
            number(result.steps_per_second),
            percent(result.steps_per_second / ideal),
            number(result.bytes_per_second / 1e6),
            *map(percent, shares),
        ]


def percent(share: float) -> str:
    """Format a share as 12 % or 1.2 %."""
    return f"{100 * share:.{0 if share >= 0.1 else 1}f} %"


# --- service ---


def service_constants(records: list[Record]) -> list[str]:
    """Build the table of the costs of requests."""
    costs = [scaling_service.restored(record["costs"]) for record in records]
    requests = {
        "the look-up of a credential": "look_up",
        "a next comparison": "claim",
        "an answer": "answer",
    }
    parts = {
        "work_s": "service, worker thread",
        "database_s": "database server",
        "wait_s": "without processor time",
    }
    rows = [["event loop, a request", *(milliseconds(each.loop_s) for each in costs)]]
    for request, field in requests.items():
        for part, text in parts.items():
            values = [milliseconds(getattr(getattr(each, field), part)) for each in costs]
            rows.append([f"{request}: {text}", *values])
    rows += [
        [
            "a further request of a batch, of the first one's cost",
            *(number(each.further) for each in costs),
        ],
        ["client, a request", *(milliseconds(each.client_s) for each in costs)],
        [
            "transactions of an answer with its claim",
            *(number(each["transactions"] or None) for each in records),
        ],
        ["a label in the database", *(f"{number(each['label_bytes'])} bytes" for each in records)],
        [
            "a comparison with two clips in the database",
            *(f"{number(each['comparison_bytes'])} bytes" for each in records),
        ],
    ]
    return [
        "### Costs of requests",
        "",
        "One process of the service. Costs for which the simulation of "
        f"{scaling_service.CALIBRATION} labelers, who answer every "
        f"{scaling_service.PERIOD_S:.0f} s, has the measured processor time and median latency; "
        "the cost of further requests in a batch is the one for which the simulated pace of "
        f"{scaling_service.NUM_PARALLEL} clients without pauses is the measured one.",
        "",
        *table(["", *(each["database"] for each in records)], rows),
        "",
    ]


def milliseconds(seconds: float) -> str:
    """Format a duration."""
    return f"{number(1000 * seconds)} ms"


@cache
def simulated(load: Load, costs_json: str) -> ServiceResult:
    """Simulate a load; costs are JSON so that results can be reused."""
    return simulate_service(load, scaling_service.restored(json.loads(costs_json)))


def service_comparison(records: list[Record]) -> list[str]:
    """Build the table of measured and simulated loads."""
    rows = [
        [f"{record['database']}, {described(load)}", *comparison_row(record, load)]
        for record in records
        for load in record["loads"]
    ]
    return [
        "### Simulation of the service against measurement",
        "",
        "Clients, service and database share the machine; "
        f"{scaling_service.ROUNDS} measurements of each load, pooled. "
        "Measured / simulated / error. To reach: "
        f"an error of at most {100 * TO_REACH:.0f} % in all columns but the last; others are bold.",
        "",
        *table(
            [
                "",
                "answers/s",
                "cores of the service",
                "of the database",
                "median ms",
                "mean ms",
                "p99 ms",
            ],
            rows,
        ),
        "",
    ]


def described(load: dict[str, Any]) -> str:
    """Describe labelers."""
    period = f"one answer in {load['period_s']:.0f} s" if load["period_s"] else "no pauses"
    return f"{load['labelers']} labelers, {period}"


def comparison_row(record: Record, load: dict[str, Any]) -> list[str]:
    """Return the cells of one load."""
    result = simulated(
        Load(
            load["labelers"],
            load["period_s"],
            float(load["seconds"]),
            num_cores=record["cores"],
            is_random=load["period_s"] > 0,
        ),
        json.dumps(record["costs"]),
    )
    times_s = result.next_s + result.answer_s
    pairs = {
        "answers_per_second": result.answers_per_second,
        "service_cores": result.service_cores,
        "database_cores": result.database_cores,
        "median_ms": 1000 * median(times_s),
        "mean_ms": 1000 * fmean(times_s),
        "p99_ms": scaling_service.in_ms(times_s, 0.99),
    }
    return [
        f"{number(load[name])} / {number(value)} / {error(value, load[name])}"
        if load[name]
        else NONE
        for name, value in pairs.items()
    ]


def service_forecast(record: Record) -> list[str]:
    """Build the table of many labelers, on the database of a record."""
    from benchmarks.registry import records_of

    costs = scaling_service.restored(record["costs"])
    growth = latest_run([each for each in records_of("growth").all() if each["part"] == "labels"])
    wire = [each for each in records_of("page").all() if each.get("part") == "wire"]
    rows = [labelers_row(record, costs, each, growth, wire) for each in LABELERS]
    return [
        f"### Many labelers, {record['database']}",
        "",
        f"Simulated: each answers every {SECONDS_PER_ANSWER} s on average, at random times; "
        "service and database have machines of their own, with cores that are busy for at most "
        f"{100 * BUSY:.0f} % of the time. Clips are those of ShortHumanoid. The last three columns "
        "are one trainer's, for one experiment: labels in memory, processor time to ask "
        "comparisons, and fits, one after each 2 % of labels; from the newest `growth`.",
        "",
        *table(
            [
                *("labelers", "answers/s", "requests/s", "transactions/s", "clips MB/s"),
                *("processes", "cores of the service", "of the database", "median ms", "p99 ms"),
                *("database GB/day", "trainer GB/day", "asking", "fits/day"),
            ],
            rows,
        ),
        "",
    ]


def labelers_row(
    record: Record,
    costs: ServiceCosts,
    num_labelers: int,
    growth: list[Record],
    wire: list[Record],
) -> list[str]:
    """Return the row of a number of labelers."""
    pace = num_labelers / SECONDS_PER_ANSWER
    requests = (costs.look_up, costs.look_up, costs.claim, costs.answer)
    service_cores = pace * (2 * costs.loop_s + sum(each.work_s for each in requests))
    database_cores = pace * sum(each.database_s for each in requests)
    num_processes = math.ceil(service_cores / BUSY)
    result = simulate_service(
        Load(
            num_labelers,
            SECONDS_PER_ANSWER,
            seconds=60.0 if num_labelers <= 1_000 else 9.0,
            num_processes=num_processes,
            num_cores=num_processes,
            database_cores=max(math.ceil(database_cores / BUSY), 1),
            has_clients=False,
            is_random=True,
        ),
        costs,
    )
    times_s = result.next_s + result.answer_s
    labels_per_day = pace * 86_400
    least, *_, most = growth
    label_bytes = (
        1e6 * (most["resident_mb"] - least["resident_mb"]) / (most["labels"] - least["labels"])
    )
    clips_bytes = [each["clips_bytes"] for each in wire if each["env_id"] == "Humanoid-v1"][-1]
    stored_bytes = record["label_bytes"] + record["comparison_bytes"]
    return [
        f"{num_labelers:,}",
        number(result.answers_per_second),
        number(2 * result.answers_per_second),
        number(record["transactions"] * result.answers_per_second),
        number(pace * clips_bytes / 1e6),
        f"{num_processes:,}",
        number(result.service_cores),
        number(result.database_cores),
        number(1000 * median(times_s)),
        number(scaling_service.in_ms(times_s, 0.99)),
        number(labels_per_day * stored_bytes / 1e9),
        number(labels_per_day * label_bytes / 1e9),
        percent(pace * middle(most["ask_s"]) / 50),
        number(math.log(labels_per_day) / math.log(1.02)),
    ]
