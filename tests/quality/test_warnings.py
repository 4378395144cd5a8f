"""Tests of the warnings for the person who labels."""

import pytest

from rl_teacher.quality.warnings import BY_REWARD, label_warnings

GOOD = {
    "labels_answered": 60,
    "labels_decided": 55,
    "true_agreement": 0.9,
    "true_agreement_high": 0.95,
    "recent_correlation_high": 0.9,
    "held_out_accuracy": 0.85,
    "held_out_accuracy_high": 0.95,
    "held_out_labels": 30,
    "fresh_labels": 40,
    "fresh_accuracy": 0.8,
    "fresh_accuracy_low": 0.65,
    "fresh_accuracy_high": 0.9,
}


@pytest.mark.parametrize(
    ("metrics", "kind", "part"),
    [
        ({"labels_answered": 24, "labels_decided": 0}, "undecided", "None of the 24 answers"),
        (
            {"true_agreement": 0.08, "true_agreement_high": 0.17},
            "reward",
            "only 8% of the labels: left and right may be mixed up",
        ),
        (
            {"true_agreement": 0.52, "true_agreement_high": 0.64},
            "reward",
            "only 52% of the labels: this is close to chance",
        ),
        ({"recent_correlation_high": 0.1}, "exploited", "little to do with the reward"),
        (
            {"held_out_accuracy": 0.46, "held_out_accuracy_high": 0.64},
            "held_out",
            "only 46% of the labels",
        ),
        ({"fresh_accuracy": 0.975, "fresh_accuracy_low": 0.87}, "enough", "98% of the latest 40"),
    ],
)
def test_warning_names_the_number_it_rests_on(metrics, kind, part):
    warnings = label_warnings(GOOD | metrics)
    assert list(warnings) == [kind]
    assert part in warnings[kind]


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"labels_answered": 9, "labels_decided": 0},
        {"labels_answered": 9, "true_agreement": 0.3, "true_agreement_high": 0.6},
        {"true_agreement": 0.7, "true_agreement_high": 0.8},
        # Queries are chosen because they are hard: this is no evidence.
        {"fresh_accuracy": 0.45, "fresh_accuracy_high": 0.6},
        {"held_out_accuracy": 0.3, "held_out_accuracy_high": 0.6, "held_out_labels": 12},
        {"fresh_accuracy": 1.0, "fresh_accuracy_low": 0.8},
        {"held_out_accuracy": 0.4, "held_out_accuracy_high": 0.7},
        {"held_out_accuracy": float("nan"), "held_out_accuracy_high": float("nan")},
    ],
)
def test_good_or_too_few_labels_have_no_warning(metrics):
    assert label_warnings(GOOD | metrics) == {}


def test_warnings_that_need_no_reward_are_not_hidden_by_those_that_do():
    no_reward = {"held_out_accuracy": 0.46, "held_out_accuracy_high": 0.64}
    for bad in ({"true_agreement_high": 0.2}, {"recent_correlation_high": -0.9}):
        kinds = label_warnings(GOOD | bad | no_reward).keys()
        assert kinds - BY_REWARD == {"held_out"}
        assert kinds & BY_REWARD
