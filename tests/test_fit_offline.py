"""Tests of offline fits to small data sets."""

import pytest

from rl_teacher.config.experiment import FitConfig, PredictorConfig
from rl_teacher.datasets import Dataset
from rl_teacher.datasets.imitation import row_of
from rl_teacher.fit_offline import fit_labels
from rl_teacher.predictor.ensemble import RewardPredictor
from tests.datasets.conftest import ENV_ID, SPACES, segment

SMALL = PredictorConfig(hidden=(8,))
TIME = "2026-11-03T12:00:00+00:00"


def dataset_of(*pairs):
    """Return a data set of comparisons whose left side is preferred."""
    segments = {each.content_hash: each for pair in pairs for each in pair}
    rows = tuple(row_of(place, [*pair], 1.0, TIME) for place, pair in enumerate(pairs))
    return Dataset(ENV_ID, SPACES, segments, rows)


@pytest.mark.parametrize(("num_steps", "keeps_zero"), [(3, True), (5, False)])
def test_fitted_predictor_keeps_zero_if_clips_have_unequal_lengths(tmp_path, num_steps, keeps_zero):
    dataset = dataset_of((segment(0), segment(1, num_steps)), (segment(2), segment(3)))
    dataset.save(tmp_path / "set")
    out = str(tmp_path / "out")
    fit_labels(FitConfig(str(tmp_path / "set"), out=out, pretrain_iters=8, reward=SMALL))
    assert RewardPredictor.load(out).keeps_zero == keeps_zero
