"""Aggregates over seeds and tasks with their uncertainty, as in rliable (Agarwal et al. 2021).

Scores are a mapping from task to the score of each of its runs, by seed. The statistic is the
interquartile mean over all runs of all tasks. The interval is the 95 % percentile interval of the
stratified bootstrap: the runs of each task are resampled separately.
"""

from collections.abc import Mapping, Sequence
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


def interquartile_mean(scores: Scores) -> Estimate:
    """Compute the interquartile mean over all runs of all tasks.

    Raises:
        ValueError: see `strata`.
    """
    return bootstrapped(strata(scores), TRIMMED)


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
        raise ValueError(f"The tasks have different seeds ({listed}); select the common ones.")
    return [np.array([runs[seed] for seed in seeds[task]], float) for task, runs in scores.items()]


def bootstrapped(samples: Sequence[np.ndarray], trimmed: float) -> Estimate:
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
