"""Coverage of the 95 % intervals in simulation: `python -m benchmarks.coverage [--draws 1000]`.

The recorded runs of `tasks` with the defaults (100 labels, true reward and random policy) are taken
as the whole population of each task: skewed, with some runs that got stuck. Seeds are drawn from
it with replacement, and the intervals are compared with the population's own values. For unpaired
differences, the two programs are those of `versus_imitation`, 300 labels.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.comparisons import (
    normalised,
    normalised_mean,
    paired_difference,
    unpaired_difference,
)
from benchmarks.registry import records_of
from benchmarks.tables import table
from benchmarks.tasks import RANDOM, arm_of, grids
from benchmarks.versus_imitation import OURS, PEERS
from rl_teacher.report import statistics
from rl_teacher.report.statistics import Estimate, Scores, interquartile_mean, trimmed_mean

NUM_RESAMPLES = 10_000
ARMS = (arm_of(100), arm_of(0), RANDOM)

Case = tuple[float, Callable[[int, np.random.Generator], Estimate]]
"""The true value, and its estimate from some seeds."""


def populations() -> dict[str, np.ndarray]:
    """Return the returns of each counted task: [runs, 3] of `ARMS`, with equal seeds in a row."""
    runs: dict[str, list[list[float]]] = {}
    for grid in grids(records_of("tasks").all()):
        if not grid.changes and grid.key[1:3] == (400_000, "ppo"):
            arms = [grid.counted(grid.values(arm, "final_return")) for arm in ARMS]
            for env_id in arms[0].keys() & arms[1].keys() & arms[2].keys():
                for seed in (
                    arms[0][env_id].keys() & arms[1][env_id].keys() & arms[2][env_id].keys()
                ):
                    runs.setdefault(env_id, []).append([arm[env_id][seed] for arm in arms])
    return {env_id: np.array(rows) for env_id, rows in sorted(runs.items())}


def programs() -> list[np.ndarray]:
    """Return all returns of ours and of the peer with VecNormalize, from 300 labels."""
    records = [r for r in records_of("versus_imitation").all() if r["labels"] == 300]
    return [
        np.array([record["return"] for record in records if record["who"] == who])
        for who in (OURS, next(iter(PEERS)))
    ]


def cases(tasks: dict[str, np.ndarray]) -> Iterator[tuple[str, Case]]:
    """Yield the statistics of some tasks."""
    scored = [normalised(x, z, o) for x, o, z in (rows.T for rows in tasks.values())]
    gains = [(x - o) / (iqm(o) - iqm(z)) for x, o, z in (rows.T for rows in tasks.values())]

    def draw(num_seeds: int, rng: np.random.Generator) -> list[Scores]:
        rows = {
            task: population[rng.integers(len(population), size=num_seeds)]
            for task, population in tasks.items()
        }
        return [{task: dict(enumerate(r[:, arm])) for task, r in rows.items()} for arm in range(3)]

    def score(num_seeds: int, rng: np.random.Generator) -> Estimate:
        own, one, zero = draw(num_seeds, rng)
        return normalised_mean(own, zero, one)

    def difference(num_seeds: int, rng: np.random.Generator) -> Estimate:
        own, one, zero = draw(num_seeds, rng)
        scales = {task: 1 / (iqm(one[task].values()) - iqm(zero[task].values())) for task in tasks}
        scaled = [
            {
                task: {seed: run * scales[task] for seed, run in runs.items()}
                for task, runs in arm.items()
            }
            for arm in (own, one)
        ]
        return paired_difference(*scaled)

    yield "score", (weighted_iqm(scored), score)
    yield "paired difference", (weighted_iqm(gains), difference)
    if len(tasks) == 1:
        ((task, rows),) = tasks.items()
        plain = {task: rows}

        def mean(num_seeds: int, rng: np.random.Generator) -> Estimate:
            picked = plain[task][rng.integers(len(rows), size=num_seeds), 0]
            return interquartile_mean({task: dict(enumerate(picked))})

        yield "return", (iqm(rows[:, 0]), mean)


def unpaired_case() -> Case:
    """Return the difference of the two programs."""
    ours, peer = programs()

    def estimate(num_seeds: int, rng: np.random.Generator) -> Estimate:
        first, second = (
            {"": dict(enumerate(each[rng.integers(len(each), size=num_seeds)]))}
            for each in (ours, peer)
        )
        return unpaired_difference(first, second)

    return iqm(ours) - iqm(peer), estimate


def iqm(values: object) -> float:
    """Compute the interquartile mean of a whole population, with fractions of runs."""
    array = np.repeat(np.fromiter(values, float), 4)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return float(trimmed_mean(array))


def weighted_iqm(samples: list[np.ndarray]) -> float:
    """Compute the interquartile mean of tasks of equal weight and any number of runs."""
    size = int(np.lcm.reduce([len(sample) for sample in samples]))
    return iqm(np.concatenate([np.repeat(sample, size // len(sample)) for sample in samples]))


def coverage(case: Case, num_seeds: int, num_draws: int) -> float:
    """Return the share of intervals that contain the true value."""
    truth, estimate = case
    rng = np.random.default_rng(num_seeds)
    found = [estimate(num_seeds, rng) for _ in range(num_draws)]
    return float(np.mean([each.low <= truth <= each.high for each in found]))


def main() -> None:
    """Print the coverage for all tasks together, for each one, and for the two programs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000, help="simulated experiments of a row")
    num_draws = parser.parse_args().draws
    statistics.NUM_RESAMPLES = NUM_RESAMPLES
    tasks = populations()
    measured = {f"{len(tasks)} tasks, {name}": [case] for name, case in cases(tasks)}
    for env_id, rows in tasks.items():
        for name, case in cases({env_id: rows}):
            measured.setdefault(f"1 task, {name}", []).append(case)
    measured["1 task, unpaired difference"] = [unpaired_case()]
    rows = []
    for name, alike in measured.items():
        shares = [
            [coverage(case, num_seeds, num_draws // len(alike)) for case in alike]
            for num_seeds in (5, 10)
        ]
        rows.append([name, *(f"{np.mean(of_size):.3f} ({min(of_size):.3f})" for of_size in shares)])
        print(rows[-1], flush=True)
    print("\n".join(table(["mean (lowest task)", "5 seeds", "10 seeds"], rows)))


if __name__ == "__main__":
    main()
