import dataclasses

import pytest

from rl_teacher.common.errors import BadConfig
from rl_teacher.config.experiment import (
    PPOConfig,
    RunOptions,
    TeachConfig,
    pretraining_labels,
    validate,
    validate_options,
)
from rl_teacher.config.preprocessing import FrameSettings

CONFIG = TeachConfig("ShortHopper-v1", "synth", name="test")


def changed(**changes):
    return dataclasses.replace(CONFIG, **changes)


def test_a_quarter_of_the_labels_comes_before_training():
    assert pretraining_labels(changed(n_labels=1400)) == 350


def test_how_many_come_before_training_may_be_said():
    assert pretraining_labels(changed(n_labels=1400, pretrain_labels=7)) == 7


def test_synth_with_neither_number_works():
    validate(CONFIG)
    assert pretraining_labels(CONFIG) > 0


def test_a_single_label_in_all_is_asked_before_training():
    assert pretraining_labels(changed(n_labels=1)) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_labels": 0}, "--n-labels 0"),
        ({"n_labels": -5}, "at least 1"),
        ({"pretrain_labels": 10, "n_labels": 5}, "only --n-labels 5"),
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
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(changes, says):
    with pytest.raises(BadConfig, match=says):
        validate(changed(**changes))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (RunOptions(overlap=1.5), "--overlap 1.5"),
        (RunOptions(repeats=-0.1), "from 0 to 1"),
        (RunOptions(gold=float("nan")), "--gold nan"),
        (RunOptions(overlap_labelers=1), "--overlap-labelers 1"),
    ],
)
def test_a_study_that_cannot_be_is_refused_in_words(options, says):
    with pytest.raises(BadConfig, match=says):
        validate_options(options)


def test_frames_that_are_asked_for_belong_to_the_experiment():
    asked = changed(stacked_frames=2, frame_size=40, colour=True)
    assert FrameSettings.saved_in(asked.saved()) == asked.frames == FrameSettings(2, 40, grey=False)
    assert FrameSettings.saved_in(CONFIG.saved()) == CONFIG.frames == FrameSettings()
