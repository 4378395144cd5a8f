"""Fits to ranks of clips: examples of the objective, and what they recover."""

from dataclasses import replace

import numpy as np
import pytest

from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.plan import LabelPlan, LearningPlan
from rl_teacher.predictor import fit
from rl_teacher.predictor.diagnostics import ordered_pairs
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.fit import evaluate, initial_state
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelledPair, LabelSet
from rl_teacher.rewards.trainer import PredictorTrainer, examples_of

SPACE = InputSpace((4,), (1,))
RANK = PredictorConfig(objective="rank", hidden=(32, 32))
TRUE_WEIGHTS = np.array([1.0, -2.0, 0.5, 0.0, 1.0])


def random_clips(num, seed=0, num_steps=10):
    rng = np.random.default_rng(seed)
    shape = num, num_steps, 5
    return (rng.normal(size=shape) + rng.normal(size=(num, 1, 5))).astype(np.float32)


def true_return(clip):
    return (clip @ TRUE_WEIGHTS).sum()


def label_set(clips, pairs, error_rate=0.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = LabelSet(10, SPACE, RANK.ensemble_size, seed)
    for left, right in pairs:
        is_left = true_return(clips[left]) > true_return(clips[right])
        is_error = rng.random() < error_rate
        labels.add(LabelledPair(clips[left], clips[right], float(is_left != is_error)))
    return labels


def random_pairs(num_clips, num, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.choice(num_clips, 2, replace=False) for _ in range(num)]


def fit_to(labels, config, seed=0):
    return fit.fit(initial_state(SPACE, config, seed), examples_of(labels, config), 2000)


def correlation_on_fresh_clips(fitted, config, seed):
    predictor = RewardPredictor(SPACE, config)
    predictor.set_networks(fitted.networks, fitted.normaliser)
    fresh = random_clips(200, seed)
    predicted = predictor.member_rewards(fresh).mean((0, 2))
    return np.corrcoef(predicted, [true_return(clip) for clip in fresh])[0, 1]


def test_chain_of_comparisons_gives_each_clip_its_rank():
    clips = random_clips(5)
    order = np.argsort([true_return(clip) for clip in clips])
    labels = label_set(clips, [*zip(order[1:], order, strict=False)])
    examples = examples_of(labels, RANK)
    segments = np.concatenate(labels.rows)[examples.places[:, 0]]
    by_return = np.argsort([true_return(clip) for clip in segments])
    expected = [-1.281552, -0.524401, 0, 0.524401, 1.281552]  # Phi^-1 of 0.1, 0.3, ... 0.9
    np.testing.assert_allclose(examples.targets[by_return], expected, atol=1e-5)
    assert examples.certainty.mean() == pytest.approx(1)


def test_changed_answer_changes_ranks_of_its_clips():
    clips = random_clips(2)
    labels = LabelSet(10, SPACE, RANK.ensemble_size, 0)
    labels.add(LabelledPair(clips[0], clips[1], 1.0), 7)
    before = examples_of(labels, RANK).targets
    labels.set_target(7, 0.0)
    np.testing.assert_allclose(examples_of(labels, RANK).targets, -before)
    assert before[0] > 0


def test_error_rate_changes_ranks_where_answers_contradict():
    labels = label_set(random_clips(6), random_pairs(6, 20, 2), error_rate=0.3, seed=2)
    few, many = (examples_of(labels, replace(RANK, error_rate=rate)) for rate in (0.1, 0.3))
    assert not np.allclose(few.targets, many.targets)
    assert not np.allclose(few.certainty, many.certainty)


def test_replaced_comparison_takes_its_clips_from_the_examples():
    clips = random_clips(6)
    labels = LabelSet(10, SPACE, RANK.ensemble_size, 0, capacity=2)
    for left in (0, 2, 4):
        labels.add(LabelledPair(clips[left], clips[left + 1], 1.0))
    examples = examples_of(labels, RANK)
    segments = np.concatenate(labels.rows)[examples.places[:, 0]]
    np.testing.assert_array_equal(segments, clips[2:])


@pytest.mark.parametrize("seed", [0, 1])
def test_fit_to_ranks_recovers_linear_reward_despite_wrong_answers(seed):
    clips = random_clips(100, seed)
    labels = label_set(clips, random_pairs(100, 400, seed), error_rate=0.1, seed=seed)
    fitted = fit_to(labels, RANK, seed)
    assert correlation_on_fresh_clips(fitted, RANK, seed + 10) > 0.9
    assert fitted.report.held_out_accuracy > 0.7
    assert np.isnan(fitted.report.calibration_error)


def test_pretrained_predictor_is_fine_tuned_with_a_label_buffer_of_fewer_labels():
    config = PredictorConfig(hidden=(4,), label_buffer=5)
    pretrained = RewardPredictor(SPACE, config)
    learning = LearningPlan(
        predictor=config,
        seed=0,
        segment_steps=10,
        shows_ends=False,
        first_fit_steps=8,
        fits_in_background=False,
        labels=LabelPlan(total=8),
    )
    trainer = PredictorTrainer(learning, SPACE, pretrained)
    clips = random_clips(16)
    pairs = {i: LabelledPair(clips[2 * i], clips[2 * i + 1], 1.0) for i in range(8)}
    for i in pairs:
        assert trainer.fit_if_due() is None
        trainer.follow(dict.fromkeys(range(i + 1), 1.0), lambda number, _: pairs[number])
    assert trainer.fit_if_due() is not None
    trainer.close()


def test_fit_to_ranks_survives_clip_of_a_single_step():
    """A segment of 90 steps is subsampled by 3, which often leaves out a clip of a single step."""
    labels = LabelSet(90, SPACE, RANK.ensemble_size, 0)
    for clip in random_clips(20, num_steps=90):
        labels.add(LabelledPair(clip, clip[:1], 1.0))
    report = fit.fit(initial_state(SPACE, RANK, 0), examples_of(labels, RANK), 64).report
    assert np.isfinite(report.held_out_loss)


def test_held_out_accuracy_of_many_clips_counts_pairs_of_a_thousand(monkeypatch):
    counted = []

    def count(scores, ranks, is_held_out):
        counted.append(len(ranks))
        return ordered_pairs(scores, ranks, is_held_out)

    monkeypatch.setattr(fit, "ordered_pairs", count)
    clips = random_clips(3_000)
    held_out = examples_of(label_set(clips, np.arange(3_000).reshape(-1, 2)), RANK)
    labels = label_set(clips, random_pairs(40, 20))
    fitted = fit.fit(initial_state(SPACE, RANK, 0), examples_of(labels, RANK), 8)
    report = evaluate(fitted, held_out)
    assert max(counted) == counted[-1] == 1_000
    assert 0 < report.held_out_accuracy < 1
