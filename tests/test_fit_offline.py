"""Tests of offline fits to small data sets."""

from dataclasses import replace

import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import RunFolderUnusable
from rl_teacher.config.experiment import PredictorConfig, TeachConfig
from rl_teacher.datasets import Dataset
from rl_teacher.fit_offline import fit_labels
from rl_teacher.predictor.ensemble import RewardPredictor
from tests.datasets.conftest import ENV_ID, SPACE, row_of, segment

SMALL = PredictorConfig(hidden=(8,))


def dataset_of(*pairs):
    """Return a data set of comparisons whose left side is preferred."""
    segments = {each.content_hash: each for pair in pairs for each in pair}
    rows = tuple(row_of(place, pair) for place, pair in enumerate(pairs))
    return Dataset(ENV_ID, SPACE, segments, rows)


@pytest.mark.parametrize(("num_steps", "keeps_zero"), [(3, True), (5, False)])
def test_fitted_predictor_keeps_zero_if_clips_have_unequal_lengths(tmp_path, num_steps, keeps_zero):
    dataset = dataset_of((segment(0), segment(1, num_steps)), (segment(2), segment(3)))
    dataset.save(tmp_path / "set")
    out = str(tmp_path / "out")
    fit_labels(TeachConfig(labels=str(tmp_path / "set"), pretrain_iters=8, reward=SMALL), out)
    assert RewardPredictor.load(out).keeps_zero == keeps_zero


def test_predictor_keeps_zero_in_a_warm_started_fit_to_clips_of_equal_lengths(tmp_path):
    dataset_of((segment(0), segment(1, 3))).save(tmp_path / "first")
    dataset_of((segment(2), segment(3))).save(tmp_path / "second")
    first = TeachConfig(labels=str(tmp_path / "first"), pretrain_iters=8, reward=SMALL)
    fit_labels(first, str(tmp_path / "one"))
    second = replace(first, labels=str(tmp_path / "second"), predictor_path=str(tmp_path / "one"))
    fit_labels(second, str(tmp_path / "two"))
    assert RewardPredictor.load(tmp_path / "two").keeps_zero


@pytest.mark.parametrize(("label_buffer", "num_fitted"), [(0, 3), (2, 2), (5, 3)])
def test_outcome_counts_only_labels_that_fit_into_the_buffer(tmp_path, label_buffer, num_fitted):
    dataset_of(*((segment(2 * i), segment(2 * i + 1)) for i in range(3))).save(tmp_path / "set")
    reward = replace(SMALL, label_buffer=label_buffer)
    out = str(tmp_path / "out")
    outcome = fit_labels(
        TeachConfig(labels=str(tmp_path / "set"), pretrain_iters=1, reward=reward), out
    )
    assert outcome.num_comparisons == num_fitted


def test_held_out_labels_without_a_preference_leave_the_accuracy_unknown(tmp_path, capsys):
    equal = dataset_of((segment(0), segment(1)))
    replace(equal, rows=tuple({**row, "answer": "equal"} for row in equal.rows)).save(
        tmp_path / "equal"
    )
    dataset_of((segment(2), segment(3))).save(tmp_path / "set")
    arguments = f"--out {tmp_path}/out --held-out {tmp_path}/equal -i 1 --reward.hidden 8"
    assert main(["fit", str(tmp_path / "set"), *arguments.split()]) == 0
    printed = capsys.readouterr().out.splitlines()[1]
    assert printed.endswith("unknown: there is no held-out pair of which one clip is better")


def test_folder_that_cannot_be_written_is_refused_before_the_fit(tmp_path, monkeypatch):
    dataset_of((segment(0), segment(1))).save(tmp_path / "set")
    (tmp_path / "file").touch()
    monkeypatch.setattr("rl_teacher.fit_offline.fit_predictor", None)
    with pytest.raises(RunFolderUnusable, match="--out"):
        fit_labels(TeachConfig(labels=str(tmp_path / "set")), str(tmp_path / "file" / "out"))
