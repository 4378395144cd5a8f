"""Comparisons of groups of runs; see `rl_teacher.report.statistics`."""

from collections.abc import Iterable

import numpy as np
from scipy import stats

from rl_teacher.report.statistics import TRIMMED, Estimate, Scores, bootstrapped, strata


def iqm(values: Iterable[float]) -> float:
    """Compute the interquartile mean alone."""
    return float(stats.trim_mean(list(values), TRIMMED))


def paired_difference(scores: Scores, baseline: Scores) -> Estimate:
    """Compute the interquartile mean of the differences between runs of equal task and seed.

    The bootstrap resamples pairs.

    Raises:
        ValueError: see `strata`; or the two have different tasks or seeds.
    """
    return bootstrapped(strata(_differences(scores, baseline)), TRIMMED)


def probability_of_improvement(scores: Scores, baseline: Scores) -> Estimate:
    """Compute the share of pairs in which the score is above the baseline's; ties count half.

    Raises:
        ValueError: see `paired_difference`.
    """
    signs = [np.sign(each) for each in strata(_differences(scores, baseline))]
    return bootstrapped([(sign + 1) / 2 for sign in signs], trimmed=0.0)


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
