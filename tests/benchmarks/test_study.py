import pytest

from benchmarks import study
from benchmarks.settings import teach_config
from benchmarks.simulated_labelers import share_right
from rl_teacher.clips.answer import Answer


def make_record(weights, seed, final_return, **settings):
    saved = teach_config(study.SETTINGS, {"seed": seed}, settings).saved()
    labelers = {
        "labeler-1": {
            "reliability": 0.95,
            "right": 0.9,
            "estimate": 0.95 - 0.1 * (seed + 1),
            "answers": 96,
            "counted": 54,
        }
    }
    return {
        "commit": "a",
        "weights": weights,
        "seed": seed,
        "settings": {"saved": saved, "weights": weights, **study.STUDY},
        "final_return": final_return,
        "auc": 1.0,
        "alpha": 0.4,
        "alpha_low": 0.2,
        "alpha_high": 0.6,
        "raw_agreement": 0.7,
        "overlapping": 90,
        "right_by_mean": 0.8,
        "right_by_posterior": 0.9,
        "labelers": labelers,
    }


def test_report_groups_returns_by_weights_and_compares_estimates_with_truth():
    records = [
        make_record(weights, seed, 10.0 * seed) for weights in study.WEIGHTS for seed in (0, 2)
    ]
    lines = study.report(records)
    row = "| equal | 2 | 10.0 | 1.00 | 0.80 |"
    assert row in lines
    assert "| labeler-1 | 0.95 | 0.90 ± 0.00 | 0.75 ± 0.12 | 0.20 | 96.0 |" in lines


def test_report_shows_other_settings_separately():
    records = [make_record("equal", 0, 5.0), make_record("equal", 0, 7.0, n_labels=60)]
    lines = study.report(records)
    assert "| equal | 1 | 5.00 | 1.00 | 0.80 |" in lines
    assert "| equal | 1 | 7.00 | 1.00 | 0.80 |" in lines


def test_share_right_counts_target_of_one_half_as_half_and_ignores_ties():
    truth = {0: Answer.LEFT, 1: Answer.RIGHT, 2: Answer.LEFT, 3: Answer.EQUAL}
    assert share_right({0: 0.9, 1: 0.6, 2: 0.5, 3: 1.0}, truth) == pytest.approx(0.5)
