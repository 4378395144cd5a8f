"""Measurements of a predictor, on labels and rollouts made by hand."""

import numpy as np
import pytest

from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.diagnostics import FitReport, RewardReference
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet
from rl_teacher.rewards.meter import PredictorMeter
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
