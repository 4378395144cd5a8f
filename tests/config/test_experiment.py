import dataclasses
from dataclasses import fields

import pytest

from rl_teacher.common.errors import BadConfig
from rl_teacher.config.experiment import (
    CollectConfig,
    FittingSettings,
    PPOConfig,
    PredictorConfig,
    QuerySettings,
    RunOptions,
    TeachConfig,
    label_budget,
    pretraining_labels,
    validate,
)
from rl_teacher.config.fields import check_bounds
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.wrappers.settings import WrapperSettings, settings_of

CONFIG = TeachConfig("ShortHopper-v1", "synth", name="test")


def changed(**changes):
    return dataclasses.replace(CONFIG, **changes)


def test_pretrain_labels_default_to_a_quarter_of_n_labels():
    assert pretraining_labels(changed(n_labels=1400)) == 350


@pytest.mark.parametrize(("queries", "labels"), [("tree", 160), ("sort", 256), ("pairs", None)])
def test_number_of_clips_sets_number_of_labels(queries, labels):
    """32 log2(32) = 160, and 8 for each of 32 clips."""
    assert label_budget(queries, None, 32) == labels
    assert label_budget(queries, 5, 32) == 5


@pytest.mark.parametrize("queries", ["tree", "sort"])
def test_few_clips_set_number_of_labels_to_that_of_their_pairs(queries):
    """5 log2(5) = 11.6 and 5 * 8 = 40 are more than 5 * 4 / 2 = 10."""
    config = changed(queries=queries, n_clips=5).with_label_budget()
    assert config.n_labels == 10
    validate(config)


def test_all_labels_are_asked_before_training_if_they_are_only_collected():
    assert pretraining_labels(changed(n_labels=40, collect_only=True)) == 40


@pytest.mark.parametrize("source", [{"predictor_path": "saved"}, {"labels": "given"}])
def test_upfront_schedule_asks_all_labels_before_training_also_with_earlier_ones(source):
    assert pretraining_labels(changed(n_labels=40, **source)) == 0
    assert pretraining_labels(changed(n_labels=40, schedule="upfront", **source)) == 40


@pytest.mark.parametrize(
    ("changes", "fraction"),
    [({}, 1.0), ({"agent": "sac"}, 0.5), ({"agent": "sac", "schedule_fraction": 0.8}, 0.8)],
)
def test_sac_has_its_labels_after_half_of_the_steps_by_default(changes, fraction):
    assert changed(**changes).label_fraction == fraction


def test_pretrain_labels_override_the_quarter():
    assert pretraining_labels(changed(n_labels=1400, pretrain_labels=7)) == 7


def test_synth_without_label_counts_has_pretraining_labels():
    validate(CONFIG)
    assert pretraining_labels(CONFIG) > 0


def test_single_label_is_asked_before_training():
    assert pretraining_labels(changed(n_labels=1)) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_labels": 0}, "--n-labels 0"),
        ({"n_labels": 7, "n_clips": 4, "queries": "sort"}, "4 clips have 6 pairs, and 7 labels"),
        ({"n_labels": -5}, "at least 1"),
        ({"pretrain_labels": 10, "n_labels": 5}, "more than --n-labels 5"),
        ({"num_timesteps": 0}, "--num-timesteps 0"),
        ({"num_timesteps": -1}, "--num-timesteps"),
        ({"seed": -1}, "--seed"),
        ({"pretrain_iters": 0}, "--pretrain-iters"),
        ({"clip_length": 0.0}, "--clip-length 0.0"),
        ({"clip_length": float("nan")}, "--clip-length nan"),
        ({"clip_length": float("inf")}, "--clip-length inf"),
        ({"schedule": "annealed"}, "--n-labels"),
        ({"candidates": 0}, "--candidates"),
        ({"stacked_frames": -1}, "--stacked-frames -1"),
        ({"frame_size": 5000}, "--frame-size 5000"),
        ({"ppo": PPOConfig(learning_rate=-1.0)}, "--ppo.learning-rate"),
        ({"ppo": PPOConfig(num_envs=0)}, "--ppo.num-envs"),
        ({"ppo": PPOConfig(hidden=(64, 0))}, "--ppo.hidden 0 was given; at least 1"),
        ({"reward": PredictorConfig(error_rate=1.0)}, "--reward.error-rate"),
        ({"fit": "background"}, "'sync' or 'async'"),
        ({"schedule": "sometimes"}, "--schedule sometimes was given; 'annealed' or"),
        ({"seed": -1}, "--seed -1 was given; a number from 0"),
        ({"n_labels": 2.5}, "--n-labels 2.5 was given; a whole number"),
        ({"clip_length": "1"}, "--clip-length 1 was given; a number"),
        ({"name": 7}, "--name 7 was given; text"),
        ({"ppo": dataclasses.replace(PPOConfig(), hidden=(64, 0.5))}, "--ppo.hidden"),
    ],
)
def test_setting_out_of_bounds_raises_bad_config(changes, message):
    with pytest.raises(BadConfig, match=message):
        validate(changed(**changes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (RunOptions(overlap=1.5), "--overlap 1.5"),
        (RunOptions(repeats=-0.1), "from 0 to 1"),
        (RunOptions(gold=float("nan")), "--gold nan"),
        (RunOptions(overlap_labelers=1), "--overlap-labelers 1"),
        (RunOptions(workers=0), "--workers 0"),
        (RunOptions(checkpoint_seconds=-1.0), "--checkpoint-seconds"),
    ],
)
def test_run_option_out_of_bounds_raises_bad_config(options, message):
    with pytest.raises(BadConfig, match=message):
        check_bounds(options)


def test_frame_settings_are_read_back_from_saved_config():
    config = changed(stacked_frames=2, frame_size=40, colour=True)
    assert (
        FrameSettings.saved_in(config.saved()) == config.frames == FrameSettings(2, 40, grey=False)
    )
    assert FrameSettings.saved_in(CONFIG.saved()) == CONFIG.frames == FrameSettings()


def names(settings):
    return {each.name for each in fields(settings)}


def test_shared_settings_are_declared_once():
    own = set(TeachConfig.__annotations__) | set(CollectConfig.__annotations__) - {"n_labels"}
    assert not (names(QuerySettings) | names(FittingSettings)) & own
    assert names(CollectConfig) < names(TeachConfig)
    assert names(QuerySettings) < names(WrapperSettings)


def test_defaults_of_an_older_experiment_are_those_of_its_agent():
    assert CONFIG.defaults()["ppo"] == dataclasses.asdict(PPOConfig(final_learning_rate=3e-4))
    assert "trpo" not in CONFIG.defaults()


def test_learning_rate_that_is_constant_by_default_is_saved_as_if_given():
    by_default, given = (
        dataclasses.replace(CONFIG, ppo=PPOConfig(learning_rate=1e-4, final_learning_rate=last))
        for last in (None, 1e-4)
    )
    assert by_default.saved() == given.saved()
    assert by_default.saved()["ppo"]["final_learning_rate"] == 1e-4


@pytest.mark.parametrize("num_clips", [0, 10**307], ids=["0", "1e307"])
def test_number_of_clips_out_of_bounds_is_refused_before_labels_are_counted(num_clips):
    config = CollectConfig("ShortHopper-v1", name="test", n_clips=num_clips, queries="tree")
    with pytest.raises(BadConfig, match=f"--n-clips {num_clips} was given; a number from 2"):
        config.as_teaching()
    with pytest.raises(BadConfig, match=f"n_clips={num_clips} was given; a number from 2"):
        settings_of({"n_clips": num_clips, "queries": "tree"})


def test_collect_needs_number_of_labels_or_of_clips_to_sort():
    config = CollectConfig("ShortHopper-v1", name="test", n_clips=8)
    with pytest.raises(BadConfig, match=r"Give it with -l; or .* --n-clips"):
        validate(config.as_teaching())
    assert dataclasses.replace(config, queries="tree").as_teaching().n_labels == 24
