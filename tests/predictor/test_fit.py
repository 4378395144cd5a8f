import json
from dataclasses import asdict, replace

import jax
import numpy as np
import pytest

from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.diagnostics import accuracy_and_calibration, calibration_error
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import (
    CHUNK_STEPS,
    MAX_DECAY,
    FitReport,
    draw_offset,
    evaluate,
    fit,
    gather_steps,
    initial_state,
    subsampling_stride,
    weight_decay,
)
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet

SPACE = InputSpace((4,), (1,))
CONFIG = PredictorConfig(hidden=(32, 32))
TRUE_WEIGHTS = np.array([1.0, -2.0, 0.5, 0.0, 1.0])


def a_segment(rng, num_steps=10):
    return (rng.normal(size=(num_steps, 5)) + rng.normal(size=5)).astype(np.float32)


def oracle_labels(num, seed=0, target=None):
    rng = np.random.default_rng(seed)
    labels = LabelSet(10, SPACE, CONFIG.ensemble_size, seed)
    for _ in range(num):
        left, right = a_segment(rng), a_segment(rng)
        is_left = (left @ TRUE_WEIGHTS).sum() > (right @ TRUE_WEIGHTS).sum()
        labels.add(LabelledPair(left, right, float(is_left) if target is None else target))
    return labels


def fit_to(labels, max_steps, config=CONFIG, seed=0, **options):
    return fit(initial_state(SPACE, config, seed), labels.comparisons, max_steps, **options)


def first_weights(fitted):
    """Return the first layer as [M, inputs, outputs]."""
    return jax.tree.leaves(fitted.networks)[0]


def fitted_predictor(fitted):
    predictor = RewardPredictor(SPACE, CONFIG)
    predictor.set_networks(fitted.networks, fitted.normaliser)
    return predictor


@pytest.mark.parametrize(
    ("l2", "num_labels", "decay"),
    [
        (100.0, 100, 0.005 * 1.0),
        (100.0, 400, 0.005 * 0.25),
        (100.0, 1, MAX_DECAY),
        (0.0, 1, 0.0),
    ],
)
def test_weight_decay_is_inversely_proportional_to_labels(l2, num_labels, decay):
    assert weight_decay(l2, 0.005, num_labels) == pytest.approx(decay)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fit_recovers_linear_reward_from_200_comparisons(seed):
    fitted = fit_to(oracle_labels(200, seed), 2000, seed=seed)
    rows = np.random.default_rng(99).normal(size=(500, 5)).astype(np.float32)
    predicted = fitted_predictor(fitted).member_rewards(rows).mean(0)
    assert np.corrcoef(predicted, rows @ TRUE_WEIGHTS)[0, 1] > 0.9
    assert fitted.report.held_out_accuracy > 0.85


@pytest.mark.parametrize("discount", [0.9, 0.5, 0.0])
def test_fit_recovers_preferences_for_discounted_returns_of_long_segments(discount):
    rng = np.random.default_rng(0)
    config = replace(CONFIG, segment_discount=discount)
    labels, held_out = (LabelSet(100, SPACE, 3, 0, discount) for _ in range(2))
    weights = discount ** np.arange(100)
    for number in range(400):
        left, right = a_segment(rng, 100), a_segment(rng, 100)
        is_left = weights @ ((left - right) @ TRUE_WEIGHTS) > 0
        (labels if number < 200 else held_out).add(LabelledPair(left, right, float(is_left)))
    assert evaluate(fit_to(labels, 2000, config), held_out.comparisons).held_out_accuracy > 0.9


def test_evaluation_on_held_out_set_contradicts_that_on_opposite_answers():
    truth, lies = oracle_labels(140, seed=5), oracle_labels(140, seed=5)
    for index in range(140):
        lies.targets[index] = 1 - lies.targets[index]
    fitted = fit_to(oracle_labels(60), 200)
    right, wrong = (evaluate(fitted, each.comparisons) for each in (truth, lies))
    assert right.loss == fitted.report.loss
    accuracy = right.held_out_accuracy
    assert accuracy * 3 * 140 == pytest.approx(round(accuracy * 3 * 140))
    assert wrong.held_out_accuracy == pytest.approx(1 - accuracy)
    assert wrong.held_out_loss > right.held_out_loss


def test_fit_ends_when_held_out_loss_stops_improving():
    report = fit_to(oracle_labels(60), 10_000, patience=4).report
    assert report.num_steps < 5_000


def test_fit_never_exceeds_max_steps():
    report = fit_to(oracle_labels(60), 3 * CHUNK_STEPS).report
    assert report.num_steps <= 3 * CHUNK_STEPS


def test_weight_decay_shrinks_predicted_returns():
    labels, rows = oracle_labels(50), np.random.default_rng(5).normal(size=(200, 5))
    stds = []
    for l2 in (0.0, 100.0, 1000.0):
        config = replace(CONFIG, l2=l2)
        fitted = fit_to(labels, 400, config, patience=1000)
        stds.append(fitted_predictor(fitted).member_rewards(rows.astype(np.float32)).std())
    assert stds[0] > stds[1] > 2 * stds[2]


@pytest.mark.parametrize("num_labels", [1, 2, 5])
def test_fit_to_few_labels_does_not_diverge(num_labels):
    config = replace(CONFIG, l2=1e6)
    fitted = fit_to(oracle_labels(num_labels), 80, config, patience=1000)
    assert np.isfinite(fitted.report.loss)


def test_ties_pull_predicted_returns_together():
    before = fit_to(oracle_labels(100), 300)
    tied = fit(before.state, oracle_labels(100, target=0.5).comparisons, 600, patience=1000)
    rows = np.random.default_rng(5).normal(size=(200, 5)).astype(np.float32)
    spread_before = fitted_predictor(replace(tied, networks=before.networks))
    spread_after = fitted_predictor(tied)
    assert spread_after.member_rewards(rows).std() < 0.7 * spread_before.member_rewards(rows).std()


@pytest.mark.parametrize("uses_actions", [True, False])
def test_vector_predictor_uses_actions_unless_ignore_actions_is_set(uses_actions):
    config = PredictorConfig(hidden=(32, 32), ignore_actions=not uses_actions)
    fitted = fit_to(oracle_labels(200), 400, config)
    rows = np.zeros((2, 5), np.float32)
    rows[1, 4] = 1.0  # the action
    said_of = fitted_predictor(fitted).member_rewards(rows)
    assert (said_of[:, 0] == said_of[:, 1]).all() == (not uses_actions)


def test_restored_state_continues_exactly_and_fits_leave_their_state_unchanged():
    labels = oracle_labels(50)
    state = fit_to(labels, 40, seed=3).state
    restored = initial_state(SPACE, CONFIG, 4).restored(state.arrays())
    expected = first_weights(fit(state, labels.comparisons, 40))
    np.testing.assert_array_equal(first_weights(fit(state, labels.comparisons, 40)), expected)
    np.testing.assert_array_equal(first_weights(fit(restored, labels.comparisons, 40)), expected)


@pytest.mark.slow
def test_dropout_changes_fit_and_still_learns():
    config = PredictorConfig(hidden=(32, 32), dropout=0.3)
    report = fit_to(oracle_labels(200), 1500, config).report
    assert report.held_out_accuracy > 0.8


def test_long_segments_are_subsampled_with_full_weight():
    rng = np.random.default_rng(0)
    labels = LabelSet(90, SPACE, 3, 0)
    for _ in range(20):
        labels.add(LabelledPair(a_segment(rng, 90), a_segment(rng, 40), 1.0))
    batch = gather_steps(labels.comparisons, np.array([[3, 7], [0, 3]]), offset=2)
    assert batch["rows"].shape == (2, 2, 2, 30, 5)
    np.testing.assert_array_equal(batch["rows"][0, 0, 0], labels.rows[3, 0, 2::3])
    np.testing.assert_allclose(batch["weights"].sum(-1)[..., 0], 90, rtol=1e-5)
    np.testing.assert_allclose(batch["weights"].sum(-1)[..., 1], 40, rtol=1e-5)


@pytest.mark.parametrize(("num_steps", "stride"), [(75, 2), (100, 3), (90, 3), (25, 1)])
def test_every_step_of_a_segment_is_sampled(num_steps, stride):
    assert subsampling_stride(num_steps, has_byte_rows=False) == stride
    labels = LabelSet(num_steps, SPACE, 3, 0)
    steps = np.arange(num_steps, dtype=np.float32).repeat(5).reshape(-1, 5)
    labels.add(LabelledPair(steps, steps, 1.0))
    rng = np.random.default_rng(0)
    drawn = [
        gather_steps(labels.comparisons, np.array([0]), draw_offset(num_steps, stride, rng))["rows"]
        for _ in range(3_000)
    ]
    assert {each.shape[2] for each in drawn} == {num_steps // stride}
    counts = np.bincount(np.stack(drawn)[:, 0, 0, :, 0].astype(int).ravel(), minlength=num_steps)
    assert (counts > 0).all()
    inner = counts[stride:-stride] / len(drawn)
    np.testing.assert_allclose(inner, 1 / stride, atol=0.05)


def test_calibration_bins_match_hand_computed_probabilities_and_shares():
    """Predict 0.8, 0.8 and 0.2 where all, a quarter and none preferred left."""
    logits = np.log([4.0, 4.0, 0.25])
    accuracy, bins = accuracy_and_calibration(logits, np.array([1.0, 0.25, 0.0]), 0.0)
    assert accuracy == pytest.approx(2 / 3)
    low, high = bins
    assert (low.predicted, low.observed, low.num) == (pytest.approx(0.2), 0.0, 1)
    assert (high.predicted, high.observed, high.num) == (pytest.approx(0.8), 0.625, 2)
    assert calibration_error(bins) == pytest.approx((0.2 + 2 * 0.175) / 3)


def test_report_round_trips_through_json():
    report = fit_to(oracle_labels(60), 80).report
    assert report.calibration
    assert FitReport.from_json(json.loads(json.dumps(asdict(report)))) == report
