import json

import numpy as np
import pytest

from rl_teacher.common.errors import BadConfig, CorruptCheckpoint
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace

SPACE = InputSpace((4,), (2,), 0)


def a_predictor(seed=0):
    predictor = RewardPredictor(SPACE, PredictorConfig(), seed)
    rows = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)
    predictor.recent.update(predictor.member_rewards(rows))
    return predictor


def some_steps():
    rng = np.random.default_rng(2)
    return rng.normal(size=(3, 5, 4)), rng.normal(size=(3, 5, 2))


def test_predictor_is_callable_on_numpy_arrays():
    rewards = a_predictor()(*some_steps())
    assert isinstance(rewards, np.ndarray)
    assert rewards.shape == (3, 5)


def test_prediction_is_mean_of_normalised_members():
    predictor = a_predictor()
    members = predictor.member_rewards(SPACE.rows(*some_steps()))
    mean, std = predictor.recent.mean_and_std
    by_hand = np.mean([(members[m] - mean[m]) / std[m] for m in range(3)], axis=0)
    np.testing.assert_allclose(predictor(*some_steps()), by_hand, rtol=1e-4, atol=1e-5)


def test_loaded_predictor_predicts_same_rewards(tmp_path):
    predictor = a_predictor()
    predictor.save(tmp_path)
    loaded = RewardPredictor.load(tmp_path)
    np.testing.assert_array_equal(predictor(*some_steps()), loaded(*some_steps()))


def test_arrays_of_other_shapes_raise_bad_config():
    with pytest.raises(BadConfig):
        a_predictor()(np.zeros((5, 3)), np.zeros((5, 2)))


def test_truncated_file_raises_corrupt_checkpoint(tmp_path):
    a_predictor().save(tmp_path)
    path = tmp_path / "predictor.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptCheckpoint, match="no readable predictor"):
        RewardPredictor.load(tmp_path)


def test_empty_folder_raises_corrupt_checkpoint(tmp_path):
    with pytest.raises(CorruptCheckpoint, match=r"predictor\.json"):
        RewardPredictor.load(tmp_path)


def test_newer_format_raises_corrupt_checkpoint(tmp_path):
    a_predictor().save(tmp_path)
    path = tmp_path / "predictor.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 99}))
    with pytest.raises(CorruptCheckpoint, match="newer rl-teacher"):
        RewardPredictor.load(tmp_path)
