"""Measurements of a predictor, on labels and rollouts made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.diagnostics import FitReport, RewardReference
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet
from rl_teacher.rewards.meter import PredictorMeter, share_above, true_agreement
from tests.rewards.rollouts import random_rollout

SPACE = InputSpace((3,), (2,))
REPORT = FitReport(8, 0.5, 0.6, 0.7, 19, 0.1, 0.9)


def labelled(num=4):
    """Return a label set of segments of ten steps with known rewards."""
    rng = np.random.default_rng(1)
    labels = LabelSet(10, SPACE, 3, 0)
    for number in range(num):
        left, right = rng.normal(size=(2, 10, 5)).astype(np.float32)
        true_rewards = left[:, 0], right[:, 0]
        labels.add(LabelledPair(left, right, 1.0, true_rewards), number)
    return labels


def observe(meter, predictor, rollout):
    rows = SPACE.rows(rollout.observations, rollout.actions)
    return meter.observe(rollout, predictor.member_rewards(rows))


@pytest.fixture
def predictor():
    return RewardPredictor(SPACE, PredictorConfig(hidden=(4,)))


def test_over_estimation_is_relative_to_labelled_segments(predictor):
    meter, labels, rollout = PredictorMeter(predictor), labelled(), random_rollout()
    assert "over_estimation" not in observe(meter, predictor, rollout)
    meter.count_fit(REPORT, labels)
    rows = labels.rows.reshape(-1, 5)
    reference = RewardReference.measure(predictor.member_rewards(rows), rows[:, 0])
    assert reference is not None
    current = predictor.member_rewards(SPACE.rows(rollout.observations, rollout.actions))
    expected = reference.over_estimation(current.reshape(3, -1), rollout.rewards.ravel())
    metrics = observe(meter, predictor, rollout)
    assert metrics["over_estimation"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("objective", "accuracy"), [("preferences", 0.0), ("rank", 1.0)])
def test_fresh_accuracy_compares_what_the_objective_fits(monkeypatch, objective, accuracy):
    predictor = RewardPredictor(SPACE, PredictorConfig(objective=objective, hidden=(4,)))
    monkeypatch.setattr(predictor, "member_rewards", lambda rows: np.stack([rows[..., 0]] * 3))
    # The preferred clip has a return of -5, the other one, which ended early, of -2.
    steps, labels = np.zeros((10, 5), np.float32), LabelSet(10, SPACE, 3, 0)
    labels.add(LabelledPair(steps - 0.5, steps[:2] - 1, 1.0), 7)
    labels.add(LabelledPair(steps, steps, 0.5), 8)  # a tie does not count
    meter = PredictorMeter(predictor)
    meter.compare(labels, [7, 8])
    metrics = meter.metrics()
    assert (metrics["fresh_labels"], metrics["fresh_accuracy"]) == (1, accuracy)
    # Wilson's interval of one of one: 1 / (1 + 1.96^2) = 0.207
    ends = metrics["fresh_accuracy_low"], metrics["fresh_accuracy_high"]
    assert ends == pytest.approx((0.207, 1) if accuracy else (0, 1 - 0.207), abs=1e-3)
    assert "held_out_accuracy" not in metrics


def test_restored_meter_measures_the_same(predictor):
    labels, rollout = labelled(), random_rollout()
    one, other = PredictorMeter(predictor), PredictorMeter(predictor)
    one.count_fit(REPORT, labels)
    one.compare(labels, [0, 1])
    other.load_state(one.state())
    found = [observe(meter, predictor, rollout) for meter in (one, other)]
    assert found[0] == found[1]
    assert one.metrics() == other.metrics()


def test_share_above_counts_ties_half():
    # Of 1, 2 and 3 against 1 and 2: two ties, three higher, one lower.
    assert share_above(np.array([1.0, 2, 3]), np.array([1.0, 2])) == pytest.approx(4 / 6)


def test_true_agreement_counts_labels_that_prefer_the_higher_return():
    labels, rows = LabelSet(3, SPACE, 3, 0), np.zeros((3, 5), np.float32)
    returns_and_targets = [
        ((1.0, 0.0), 1.0),  # agrees
        ((0.0, 1.0), 0.0),  # agrees
        ((1.0, 0.0), 0.25),  # most labelers prefer the worse one
        ((1.0, 0.0), 0.5),  # prefers none
        ((1.0, 1.0), 1.0),  # equally good
        ((np.nan, 0.0), 1.0),  # unknown
    ]
    for (left, right), target in returns_and_targets:
        # The right clip has ended early.
        true_rewards = np.full(3, left / 3, np.float32), np.full(2, right / 2, np.float32)
        labels.add(LabelledPair(rows, rows[:2], target, true_rewards))
    agreement = true_agreement(labels)
    assert (agreement.num, agreement.share) == (3, pytest.approx(2 / 3))


def test_recent_correlation_has_two_standard_errors_above_its_mean(predictor):
    meter, rollout = PredictorMeter(predictor), random_rollout()
    members = predictor.member_rewards(SPACE.rows(rollout.observations, rollout.actions))
    for correlation in [0.9] * 4 + [0.1] * 8 + [-0.1] * 7:
        meter.observe(rollout, members, correlation)
    meter.observe(rollout, members)
    assert meter.metrics()["recent_correlation_high"] != pytest.approx(0.05)
    meter.observe(rollout, members, -0.1)
    # The latest 16: mean 0, standard deviation 0.1, 2 * 0.1 / sqrt(16) = 0.05
    assert meter.metrics()["recent_correlation_high"] == pytest.approx(0.05)


def test_correlation_with_a_sparse_reward_is_no_evidence(predictor):
    meter, rollout = PredictorMeter(predictor), random_rollout()
    members = predictor.member_rewards(SPACE.rows(rollout.observations, rollout.actions))
    rewards = np.zeros_like(rollout.rewards)
    rewards.flat[: rewards.size // 10] = 1.0
    for _ in range(16):
        meter.observe(replace(rollout, rewards=rewards), members, 0.0)
    assert "recent_correlation_high" not in meter.metrics()
