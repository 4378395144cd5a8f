import errno
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rl_teacher.common.errors import BadInput, BadObservation, CorruptCheckpoint
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.predictor.ensemble import RewardPredictor, WindowedMeanStd
from rl_teacher.predictor.inputs import InputSpace

SPACE = InputSpace((4,), (2,))


def a_predictor(seed=0):
    predictor = RewardPredictor(SPACE, PredictorConfig(), seed)
    rows = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)
    predictor.recent.update(predictor.member_rewards(rows))
    return predictor


def some_steps():
    rng = np.random.default_rng(2)
    return rng.normal(size=(3, 5, 4)), rng.normal(size=(3, 5, 2))


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


@pytest.mark.parametrize("num_complete", [0, 1])
def test_failed_save_keeps_the_earlier_predictor(tmp_path, monkeypatch, num_complete):
    predictor, write, written = a_predictor(), Path.write_bytes, []
    predictor.save(tmp_path)

    def write_half(path, content):
        written.append(path)
        if len(written) > num_complete:
            write(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", write_half)
        with pytest.raises(OSError, match="No space left"):
            a_predictor(seed=1).save(tmp_path)
    loaded = RewardPredictor.load(tmp_path)
    np.testing.assert_array_equal(predictor(*some_steps()), loaded(*some_steps()))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_inputs_raise_bad_observation_with_their_index(which, value):
    inputs = some_steps()
    inputs[which][1, 4, 0] = value
    with pytest.raises(BadObservation, match=r"1 of 15 .* first at index \(1, 4\)"):
        a_predictor()(*inputs)


def test_diverged_networks_raise_bad_observation():
    predictor = a_predictor()
    broken = jax.tree.map(lambda leaf: leaf * np.nan, predictor.networks)
    predictor.set_networks(broken, predictor.normaliser)
    with pytest.raises(BadObservation, match="The predictor has diverged"):
        predictor(*some_steps())


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_empty_batch_raises_bad_input(shape):
    with pytest.raises(BadInput, match="empty batch"):
        a_predictor()(np.zeros((*shape, 4)), np.zeros((*shape, 2)))


def test_truncated_file_raises_corrupt_checkpoint(tmp_path):
    a_predictor().save(tmp_path)
    path = tmp_path / "predictor.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptCheckpoint, match="no readable predictor"):
        RewardPredictor.load(tmp_path)


def test_newer_format_raises_corrupt_checkpoint(tmp_path):
    a_predictor().save(tmp_path)
    path = tmp_path / "predictor.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 99}))
    with pytest.raises(CorruptCheckpoint, match="newer rl-teacher"):
        RewardPredictor.load(tmp_path)


# --- normalisation ---


def test_batch_without_steps_leaves_window_empty():
    """All steps of a short rollout may lead to Atari start points."""
    window = WindowedMeanStd(2, window_steps=10)
    window.update(np.zeros((2, 0), np.float32))
    np.testing.assert_array_equal(window.mean_and_std, [[0, 0], [1, 1]])


def test_members_are_normalised_before_averaging():
    recent = WindowedMeanStd(2, 100)
    recent.update(np.array([[0.0, 2.0], [100.0, 300.0]]))
    # member 0: mean 1, std 1; member 1: mean 200, std 100
    normalised = recent.normalise(np.array([[2.0], [300.0]], np.float32), 1.0)
    np.testing.assert_allclose(normalised, [1.0])


def test_keeps_zero_scales_without_shift():
    recent = WindowedMeanStd(1, 100)
    recent.update(np.array([[3.0, 4.0, 0.0]]))
    # the root of the mean square of 3, 4 and 0
    scale = np.sqrt(25 / 3)
    normalised = recent.normalise(np.array([[0.0, 3.0]], np.float32), 0.5, keeps_zero=True)
    np.testing.assert_allclose(normalised, [0, 0.5 * 3 / scale])


def test_normalised_rewards_have_requested_std():
    rng = np.random.default_rng(0)
    rewards = rng.normal(5, 7, (1, 1000)).astype(np.float32)
    recent = WindowedMeanStd(1, 1000)
    recent.update(rewards)
    normalised = recent.normalise(rewards, 0.05)
    assert normalised.mean() == pytest.approx(0, abs=1e-6)
    assert normalised.std() == pytest.approx(0.05, rel=1e-4)


def test_batches_before_window_are_dropped():
    recent = WindowedMeanStd(1, 10)
    recent.update(np.full((1, 10), 1000.0))
    recent.update(np.arange(10.0)[None])
    assert recent.mean_and_std[0][0] == pytest.approx(4.5)


def test_constant_predictor_gives_zeros():
    recent = WindowedMeanStd(1, 10)
    rewards = np.full((1, 5), 0.1, np.float32)
    recent.update(rewards)
    assert np.abs(recent.normalise(rewards, 1.0)).max() < 0.05


def test_restored_window_continues_exactly():
    one, other = WindowedMeanStd(2, 6), WindowedMeanStd(2, 6)
    rng = np.random.default_rng(0)
    one.update(rng.normal(size=(2, 4)))
    other.load_state(one.state())
    later = rng.normal(size=(2, 4))
    one.update(later)
    other.update(later)
    np.testing.assert_array_equal(one.mean_and_std, other.mean_and_std)


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("config", {"reward_std": "1"}),
        ("config", {"hidden": ["64", 64]}),
        ("config", {"hidden": [10**9, 10**9]}),
        ("config", {"ensemble_size": 10**9}),
        ("space", {"observation_shape": [10**9]}),
        ("space", {"action_choices": [10**10, 2], "first_choices": [0, 0]}),
        ("space", {"action_choices": [-1, 2], "first_choices": [0, 0]}),
        ("space", {"action_choices": [2]}),
        ("space", {"image": {"shape": [10**5, 10**5], "channel_axis": None}}),
        ("space", None),
    ],
)
def test_description_that_does_not_fit_the_arrays_raises_corrupt_checkpoint(
    tmp_path, part, changed
):
    a_predictor().save(tmp_path)
    path = tmp_path / "predictor.json"
    description = json.loads(path.read_text())
    description[part] = None if changed is None else description[part] | changed
    path.write_text(json.dumps(description))
    with pytest.raises(CorruptCheckpoint, match="no readable predictor"):
        RewardPredictor.load(tmp_path)


@pytest.mark.parametrize("name", ["networks/.weights[0]", "inputs/std", "recent/batches"])
def test_arrays_of_other_type_shape_or_not_finite_raise_corrupt_checkpoint(tmp_path, name):
    predictor = a_predictor()
    predictor.recent.update(np.ones((3, 5)))
    predictor.save(tmp_path)
    path = tmp_path / "predictor.safetensors"
    arrays = load_file(path)
    array = arrays[name]
    for altered in (array * np.nan, array.astype(np.float16), array[..., :-1]):
        save_file(arrays | {name: np.ascontiguousarray(altered)}, path)
        with pytest.raises(CorruptCheckpoint, match=f"no readable predictor .*{re.escape(name)}"):
            RewardPredictor.load(tmp_path)
