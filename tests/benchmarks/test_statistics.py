import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.comparisons import (
    common_seeds,
    normalised_mean,
    paired_difference,
    probability_of_improvement,
    unpaired_difference,
)
from rl_teacher.report import statistics
from rl_teacher.report.statistics import interquartile_mean

RLIABLE = (1.498889, 1.12, 1.854444)


def scores(**values):
    """Return scores whose seeds are the positions of the values."""
    return {task: dict(enumerate(runs)) for task, runs in values.items()}


def test_interquartile_mean_leaves_out_a_quarter_of_all_runs_at_each_end():
    assert interquartile_mean(scores(hopper=[100.0, 1.0, 2.0, 3.0, -50.0])).value == 2.0
    assert interquartile_mean(scores(hopper=[0.0, 1.0, 2.0, 9.0])).value == 1.5
    # Of the runs of all tasks together: 2, 3, 4 and 5 are left of eight.
    assert interquartile_mean(scores(hopper=[0, 2, 4, 90], ant=[5, -9, 3, 70])).value == 3.5


def test_interval_of_two_runs_has_their_smaller_and_larger_value_as_bounds():
    """Check a case with four equally likely resamples: 1 1, 1 5, 5 1 and 5 5."""
    estimate = interquartile_mean(scores(hopper=[1.0, 5.0]))
    assert (estimate.low, estimate.value, estimate.high) == (1.0, 3.0, 5.0)


def test_interval_resamples_each_task_separately():
    """Check that a difference between tasks, whose runs are all alike, adds no uncertainty."""
    estimate = interquartile_mean(scores(hopper=[1.0] * 5, ant=[9.0] * 5))
    assert (estimate.low, estimate.value, estimate.high) == (5.0, 5.0, 5.0)


def test_interval_shrinks_with_more_seeds():
    few, many = (interquartile_mean(scores(hopper=[1.0, 2, 3, 4, 5] * n)) for n in (1, 10))
    assert 1.0 <= few.low < many.low < 3.0 < many.high < few.high <= 5.0


def test_interval_is_that_of_rliable_with_expanded_percentiles():
    """Compare with rliable 1.2.0: `get_interval_estimates` of `aggregate_iqm`, 50,000 samples.

    Its percentiles are 2.5 and 97.5. Three tasks of five seeds have 12 degrees of freedom, and so
    the normal distribution's share beyond 2.179 * sqrt(5 / 4) on each side: 0.74 %.
    """
    columns = {
        "a": [0.54, 1.47, -0.33, 2.01, 0.90],
        "b": [1.10, 0.32, 1.95, 0.71, 1.44],
        "c": [2.50, 1.70, 2.21, 3.42, 2.83],
    }
    estimate = interquartile_mean(scores(**columns))
    value, low, high = RLIABLE
    assert estimate.value == pytest.approx(value, abs=1e-6)
    rng = np.random.default_rng(1)
    resampled = [rng.choice(runs, size=(50_000, 5)) for runs in columns.values()]
    means = stats.trim_mean(np.concatenate(resampled, axis=1), 0.25, axis=1)
    assert np.quantile(means, [0.025, 0.975]) == pytest.approx([low, high], abs=0.02)
    expanded = np.quantile(means, [0.0074, 0.9926])
    assert (estimate.low, estimate.high) == pytest.approx(expanded, abs=0.02)


def test_intervals_of_few_skewed_runs_cover_what_they_say(monkeypatch):
    """Check with five seeds, one in five of which gets stuck; the percentile interval has 0.84."""
    monkeypatch.setattr(statistics, "NUM_RESAMPLES", 2_000)
    rng = np.random.default_rng(0)
    population = np.where(np.arange(10) < 2, 0.0, 1.0) + np.linspace(0, 0.2, 10)
    truth = stats.trim_mean(np.repeat(population, 4), 0.25)
    drawn = [interquartile_mean(scores(hopper=rng.choice(population, 5))) for _ in range(200)]
    assert np.mean([each.low <= truth <= each.high for each in drawn]) > 0.9


def test_single_run_has_no_interval():
    estimate = interquartile_mean(scores(hopper=[7.0]))
    assert estimate.value == 7.0
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)


def test_paired_difference_is_exact_where_every_pair_differs_equally():
    baseline = scores(hopper=[1.0, 20.0, 300.0], ant=[5.0, -7.0, 0.0])
    better = {
        task: {seed: score + 0.5 for seed, score in runs.items()} for task, runs in baseline.items()
    }
    estimate = paired_difference(better, baseline)
    assert (estimate.low, estimate.value, estimate.high) == (0.5, 0.5, 0.5)
    # Without pairing, the spread over seeds hides the difference.
    assert interquartile_mean(better).low < interquartile_mean(baseline).value


def test_unpaired_difference_does_not_depend_on_which_seeds_were_given_to_whom():
    runs, baseline = [5.0, 6.0, 7.0, 8.0, 30.0], [1.0, 2.0, 3.0, 4.0, -20.0]
    estimates = [
        unpaired_difference(scores(hopper=runs), scores(hopper=order))
        for order in (baseline, sorted(baseline))
    ]
    assert estimates[0].value == 5.0  # 7 - 2
    assert estimates[0].low == pytest.approx(estimates[1].low, abs=0.5)
    # Pairs that differ by 4 each would have no width.
    assert estimates[0].low < 4.0 < estimates[0].high


def test_normalised_mean_has_the_uncertainty_of_its_references():
    runs, zero = scores(hopper=[60.0] * 5), scores(hopper=[10.0] * 5)
    exact = normalised_mean(runs, zero, scores(hopper=[110.0] * 5))
    assert (exact.low, exact.value, exact.high) == (0.5, 0.5, 0.5)
    uncertain = normalised_mean(runs, zero, scores(hopper=[60.0, 110.0, 110.0, 110.0, 210.0]))
    assert uncertain.value == 0.5
    assert uncertain.low < 0.4
    assert uncertain.high > 0.9
    itself = normalised_mean(scores(hopper=[20.0, 60.0, 110.0, 160.0]), zero, None)
    assert itself.value == pytest.approx(1.0)


def test_probability_of_improvement_counts_pairs_and_half_of_ties():
    baseline = scores(hopper=[1.0, 2.0, 3.0, 4.0])
    assert probability_of_improvement(baseline, baseline).value == 0.5
    mixed = scores(hopper=[2.0, 2.0, 9.0, 0.0])
    assert probability_of_improvement(mixed, baseline).value == pytest.approx((1 + 0.5 + 1) / 4)


def test_tasks_with_different_seeds_are_refused():
    uneven = scores(hopper=[1.0, 2.0, 3.0], ant=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"different seeds \(hopper: \[0, 1, 2\]; ant: \[0, 1\]\)"):
        interquartile_mean(uneven)
    with pytest.raises(ValueError, match="same tasks and seeds on both sides"):
        paired_difference(uneven, scores(hopper=[1.0, 2.0]))
    with pytest.raises(ValueError, match="at least one run"):
        interquartile_mean({})


def test_common_seeds_are_those_of_every_task_in_every_group():
    one = {"hopper": {0: 1.0, 1: 2.0, 2: 3.0}, "ant": {1: 4.0, 2: 5.0}, "reacher": {1: 0.0}}
    other = {"hopper": {1: 6.0, 2: 7.0}, "ant": {0: 8.0, 2: 9.0}}
    assert common_seeds(one, other) == [
        {"hopper": {2: 3.0}, "ant": {2: 5.0}},
        {"hopper": {2: 7.0}, "ant": {2: 9.0}},
    ]
    assert common_seeds({"hopper": {0: 1.0}}, {"ant": {0: 1.0}}) == [{}, {}]
