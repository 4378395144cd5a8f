"""Comparisons of groups of runs; see `rl_teacher.report.statistics`."""

from collections.abc import Iterable
from functools import partial

import numpy as np
from scipy import stats

from rl_teacher.report.statistics import (
    TRIMMED,
    Estimate,
    Scores,
    bootstrapped,
    strata,
    trimmed_mean,
)


def iqm(values: Iterable[float]) -> float:
    """Compute the interquartile mean alone."""
    return float(stats.trim_mean(list(values), TRIMMED))


def paired_difference(scores: Scores, baseline: Scores) -> Estimate:
    """Compute the interquartile mean of the differences between runs of equal task and seed.

    The bootstrap resamples pairs.

    Raises:
        ValueError: see `strata`; or the two have different tasks or seeds.
    """
    return bootstrapped(strata(_differences(scores, baseline)), trimmed_mean)


def probability_of_improvement(scores: Scores, baseline: Scores) -> Estimate:
    """Compute the share of pairs in which the score is above the baseline's; ties count half.

    Raises:
        ValueError: see `paired_difference`.
    """
    signs = [np.sign(each) for each in strata(_differences(scores, baseline))]

    def mean(*samples: np.ndarray, axis: int) -> np.ndarray:
        return np.concatenate(samples, axis=axis).mean(axis)

    return bootstrapped([(sign + 1) / 2 for sign in signs], mean)


def unpaired_difference(scores: Scores, baseline: Scores) -> Estimate:
    """Compute the difference of the interquartile means of unrelated runs.

    The bootstrap resamples both sides independently, whose seeds may differ.

    Raises:
        ValueError: see `strata`.
    """
    first, second = strata(scores), strata(baseline)
    size = len(first)

    def difference(*samples: np.ndarray, axis: int) -> np.ndarray:
        return trimmed_mean(*samples[:size], axis=axis) - trimmed_mean(*samples[size:], axis=axis)

    # The degrees of freedom are those of one side, as if the other varied little: the safe choice.
    return bootstrapped([*first, *second], difference, size)


def normalised_mean(runs: Scores, zeros: Scores, ones: Scores | None) -> Estimate:
    """Compute the interquartile mean of returns, as scores between two references by task.

    The references, interquartile means of runs too, are resampled along with the runs.

    Args:
        runs: returns.
        zeros: returns whose score is 0.
        ones: returns whose score is 1; None if those are the runs themselves.

    Raises:
        ValueError: see `strata`.
    """
    tasks = list(runs)
    size = len(tasks)
    references = [zeros] if ones is None else [zeros, ones]
    samples = [np.array(list(values[task].values())) for values in references for task in tasks]
    # A single run, of older records of the random policy, counts as exact.
    samples = [np.repeat(sample, 2) if len(sample) == 1 else sample for sample in samples]

    def mean(*resampled: np.ndarray, axis: int) -> np.ndarray:
        own, zero = resampled[:size], resampled[size : 2 * size]
        one = resampled[2 * size :] or own
        return trimmed_mean(*map(partial(normalised, axis=axis), own, zero, one), axis=axis)

    return bootstrapped([*strata(runs), *samples], mean, size)


def normalised(
    returns: np.ndarray, zero: np.ndarray, one: np.ndarray, axis: int = -1
) -> np.ndarray:
    """Compute scores of one task: 0 and 1 are interquartile means of returns."""
    at_zero, at_one = (np.expand_dims(trimmed_mean(each, axis=axis), axis) for each in (zero, one))
    return (returns - at_zero) / (at_one - at_zero)


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
