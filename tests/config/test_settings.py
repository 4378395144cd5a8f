import dataclasses

import pytest

from rl_teacher.common.errors import BadConfig, UnknownName
from rl_teacher.config.agents import A2CConfig
from rl_teacher.config.experiment import PPOConfig, RunOptions, TeachConfig, label_budget
from rl_teacher.config.fields import build, fields_of, help_of, restored
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.wrappers.settings import WrapperSettings, settings_of

CONFIG = TeachConfig("ShortHopper-v1", "synth", name="test")


def changed(**changes):
    return dataclasses.replace(CONFIG, **changes)


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"n_labels": 1400}, 350),
        ({"n_labels": 1400, "pretrain_labels": 7}, 7),
        ({"n_labels": 1}, 1),
        ({}, 50),
        ({"n_labels": 40, "collect_only": True}, 40),
        ({"n_labels": 40, "predictor_path": "saved"}, 0),
        ({"n_labels": 40, "labels": "given", "pretrain_labels": 5}, 5),
        ({"n_labels": 40, "labels": "given", "schedule": "upfront"}, 40),
    ],
)
def test_labels_before_training_are_a_quarter_unless_given_or_all(changes, first):
    assert changed(**changes).first_labels == first


@pytest.mark.parametrize(
    ("queries", "num_clips", "labels"),
    [("tree", 32, 160), ("sort", 32, 256), ("pairs", 32, None), ("tree", 5, 10), ("sort", 5, 10)],
)
def test_number_of_clips_sets_number_of_labels(queries, num_clips, labels):
    """32 log2(32) = 160, and 8 for each of 32 clips; 5 clips have only 10 pairs."""
    assert label_budget(queries, None, num_clips) == labels
    assert label_budget(queries, 5, num_clips) == 5


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"n_labels": 0}, "--n-labels 0"),
        ({"n_labels": 2.5}, "--n-labels 2.5"),
        ({"n_clips": 10**307}, "--n-clips 1000"),
        ({"seed": -1}, "--seed -1"),
        ({"seed": True}, "--seed"),
        ({"clip_length": float("nan")}, "--clip-length nan"),
        ({"clip_length": "1"}, "--clip-length 1"),
        ({"schedule": "sometimes"}, "--schedule sometimes"),
        ({"name": 7}, "--name 7"),
        ({"ppo": {"num_envs": 0}}, "--ppo.num-envs 0"),
        ({"ppo": {"hidden": (64, 0)}}, "--ppo.hidden"),
        ({"reward": {"error_rate": 1.0}}, "--reward.error-rate 1.0"),
        ({"reward": {"hidden": ()}}, "--reward.hidden"),
    ],
)
def test_setting_out_of_bounds_is_refused_with_its_flag(given, flag):
    with pytest.raises(BadConfig, match=flag):
        build(TeachConfig, given)


@pytest.mark.parametrize(
    ("given", "keyword"),
    [({"n_clips": 0}, "n_clips=0"), ({"fit": "later"}, "fit='later'"), ({"seed": "1"}, "seed='1'")],
)
def test_keyword_out_of_bounds_is_refused_as_written_in_python(given, keyword):
    with pytest.raises(BadConfig, match=keyword):
        settings_of(given)


def test_unknown_keyword_suggests_the_nearest():
    with pytest.raises(UnknownName, match="n_labels"):
        settings_of({"nlabels": 3})


@pytest.mark.parametrize(
    "given", [{"overlap": 1.5}, {"checkpoint_seconds": float("nan")}, {"workers": 0}]
)
def test_option_of_a_run_out_of_bounds_is_refused(given):
    [name] = given
    with pytest.raises(BadConfig, match=name.replace("_", "-")):
        build(RunOptions, given)


@pytest.mark.parametrize("model", [TeachConfig, RunOptions, PPOConfig, A2CConfig, WrapperSettings])
def test_every_setting_has_a_help_text(model):
    assert all(help_of(model, name) for name in fields_of(model))


def test_settings_are_restored_from_json_without_unknown_ones():
    saved = {"env_id": "X", "ppo": {"hidden": [8], "old": 1}, "older": 2}
    assert restored(TeachConfig, saved) == TeachConfig("X", ppo=PPOConfig(hidden=(8,)))
    with pytest.raises(BadConfig, match="num_envs"):
        restored(TeachConfig, {"ppo": {"num_envs": "many"}})


def test_frame_settings_are_read_back_from_saved_config():
    config = changed(stacked_frames=2, frame_size=40, colour=True)
    assert (
        FrameSettings.saved_in(config.saved()) == config.frames == FrameSettings(2, 40, grey=False)
    )


def test_learning_rate_that_is_constant_by_default_is_saved_as_if_given():
    by_default, given = (
        changed(ppo=PPOConfig(learning_rate=1e-4, final_learning_rate=last))
        for last in (None, 1e-4)
    )
    assert by_default.saved() == given.saved()
