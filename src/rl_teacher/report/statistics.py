"""Aggregates over seeds and tasks with their uncertainty, as in rliable (Agarwal et al. 2021).

Scores are a mapping from task to the score of each of its runs, by seed. The statistic is the
interquartile mean over all runs of all tasks. The interval is the 95 % percentile interval of the
stratified bootstrap: the runs of each task are resampled separately.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from scipy import stats

Scores = Mapping[str, Mapping[int, float]]
"""Score of each run by task and seed."""

NUM_RESAMPLES = 50_000
LEVEL = 0.95
TRIMMED = 0.25
"""Share of the runs that the interquartile mean leaves out at each end, rounded down."""


@dataclass(frozen=True)
class Estimate:
    """Value with its interval; the bounds are NaN where a task has one run only."""

    value: float
    low: float
    high: float


def iqm(values: Iterable[float]) -> float:
    """Compute the interquartile mean alone."""
    return float(stats.trim_mean(list(values), TRIMMED))


def interquartile_mean(scores: Scores) -> Estimate:
    """Compute the interquartile mean over all runs of all tasks.

    Raises:
        ValueError: see `strata`.
    """
    return _bootstrapped(strata(scores), TRIMMED)


def paired_difference(scores: Scores, baseline: Scores) -> Estimate:
    """Compute the interquartile mean of the differences between runs of equal task and seed.

    The bootstrap resamples pairs.

    Raises:
        ValueError: see `strata`; or the two have different tasks or seeds.
    """
    return _bootstrapped(strata(_differences(scores, baseline)), TRIMMED)


def probability_of_improvement(scores: Scores, baseline: Scores) -> Estimate:
    """Compute the share of pairs in which the score is above the baseline's; ties count half.

    Raises:
        ValueError: see `paired_difference`.
    """
    signs = [np.sign(each) for each in strata(_differences(scores, baseline))]
    return _bootstrapped([(sign + 1) / 2 for sign in signs], trimmed=0.0)


def strata(scores: Scores) -> list[np.ndarray]:
    """Return the scores of each task, in order of seeds.

    Raises:
        ValueError: there are no scores; or the tasks have different seeds, so that one with more
            runs would weigh more.
    """
    seeds = {task: sorted(runs) for task, runs in scores.items()}
    if not any(seeds.values()):
        raise ValueError("No scores were given; at least one run is needed.")
    if len(set(map(tuple, seeds.values()))) > 1:
        listed = "; ".join(f"{task}: {some}" for task, some in seeds.items())
        raise ValueError(
            f"The tasks have different seeds ({listed}); select the common ones, see common_seeds."
        )
    return [np.array([runs[seed] for seed in seeds[task]], float) for task, runs in scores.items()]


def common_seeds(*groups: Scores) -> list[Scores]:
    """Select from each group the tasks that all have, and the seeds that all of those tasks have.

    The results are empty if there is no such run.
    """
    tasks = [task for task in groups[0] if all(task in group for group in groups)]
    seeds = [set(group[task]) for group in groups for task in tasks]
    common = sorted(set.intersection(*seeds)) if seeds else []
    return [
        {task: {seed: group[task][seed] for seed in common} for task in tasks if common}
        for group in groups
    ]


def _differences(scores: Scores, baseline: Scores) -> Scores:
    if {t: set(runs) for t, runs in scores.items()} != {t: set(r) for t, r in baseline.items()}:
        raise ValueError(
            "The two have different tasks or seeds; a paired comparison needs the same tasks and "
            "seeds on both sides, see common_seeds."
        )
    return {
        task: {seed: score - baseline[task][seed] for seed, score in runs.items()}
        for task, runs in scores.items()
    }


def _bootstrapped(samples: Sequence[np.ndarray], trimmed: float) -> Estimate:
    """Compute a trimmed mean over all samples, and its interval by resampling each of them."""

    def statistic(*resampled: np.ndarray, axis: int = -1) -> np.ndarray:
        return stats.trim_mean(np.concatenate(resampled, axis=axis), trimmed, axis=axis)

    value = float(statistic(*samples))
    if len(samples[0]) == 1:
        return Estimate(value, nan, nan)
    if all(np.ptp(sample) == 0 for sample in samples):
        return Estimate(value, value, value)
    interval = stats.bootstrap(
        samples,
        statistic,
        n_resamples=NUM_RESAMPLES,
        batch=1_000,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(value, float(interval.low), float(interval.high))
