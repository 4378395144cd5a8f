"""Tests of the warnings for the person who labels."""

import pytest

from rl_teacher.quality.warnings import label_warnings

GOOD = {
    "labels_answered": 60,
    "labels_decided": 55,
    "held_out_accuracy": 0.85,
    "held_out_accuracy_high": 0.95,
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
            {"fresh_accuracy": 0.45, "fresh_accuracy_high": 0.6},
            "disagreement",
            "only 45% of the latest 40",
        ),
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
        {"fresh_accuracy": 0.55, "fresh_accuracy_high": 0.7},
        {"fresh_accuracy": 1.0, "fresh_accuracy_low": 0.8},
        {"held_out_accuracy": 0.4, "held_out_accuracy_high": 0.7},
        {"held_out_accuracy": float("nan"), "held_out_accuracy_high": float("nan")},
    ],
)
def test_good_or_too_few_labels_have_no_warning(metrics):
    assert label_warnings(GOOD | metrics) == {}
