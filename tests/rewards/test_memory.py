import os
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher import PreferenceWrapper
from rl_teacher.cli import main
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.plan import LabelPlan, LearningPlan
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelSet
from rl_teacher.rewards.memory import PEAK, learning_arrays, refuse_excess
from rl_teacher.runs.folder import Experiment
from tests.wrappers.environments import Counter

TEACH = ["teach", "-e", "ShortHopper-v1", "-n", "x"]


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        (["-p", "synth", "-l", "1000000000", "-t", "1000000000000"], "--n-labels"),
        (["-p", "rl", "--ppo.rollout-steps", "1000000000"], "--ppo.num-envs"),
        (["-p", "rl", "-a", "sac", "--sac.buffer-steps", "1000000000000"], "--sac.buffer-steps"),
    ],
)
def test_run_beyond_the_memory_is_refused_with_the_setting_to_lower(arguments, setting, capsys):
    assert main([*TEACH, *arguments]) == 2
    assert setting in capsys.readouterr().err
    assert Experiment.all() == []


def test_wrapper_beyond_the_memory_is_refused_with_the_keyword_to_lower():
    with pytest.raises(BadConfig, match="n_labels"):
        PreferenceWrapper(gym.make("CartPole-v1"), n_labels=10**9)
    assert Experiment.all() == []


def test_fit_to_huge_observations_is_refused_with_the_setting_to_lower():
    class Huge(Counter):
        observation_space = gym.spaces.Box(-1, 1, (10_000_000,), np.float32)

    with pytest.raises(BadConfig, match=r"Lower reward.batch_size, .* or use smaller observations"):
        PreferenceWrapper(Huge(), n_labels=9)


def test_array_that_cannot_be_allocated_ends_command_with_error(capsys):
    arguments = ["-p", "rl", "-a", "sac", "--sac.learning-starts", "8", "-t", "1000"]
    minibatch = ["--sac.minibatch-size", "1000000000000000"]
    assert main([*TEACH, *arguments, "--no-tensorboard", *minibatch]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_arrays_up_to_the_memory_are_accepted():
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    refuse_excess({"n_labels": int(memory / PEAK) - 1})
    with pytest.raises(BadConfig, match="--n-labels"):
        refuse_excess({"n_labels": int(memory / PEAK), "sac.buffer_steps": 9})


@pytest.mark.parametrize("encoder", ["auto", "small"])
def test_memory_of_labels_is_that_of_their_rows(encoder):
    image = gym.spaces.Box(0, 255, (16, 16), np.uint8)
    space = InputSpace.from_spaces(image, gym.spaces.Discrete(3)).for_encoder(encoder)
    labels = LabelSet(25, space, 3, 0, capacity=20)
    learning = LearningPlan(
        predictor=PredictorConfig(image_encoder=encoder),
        seed=0,
        segment_steps=25,
        shows_ends=False,
        first_fit_steps=1,
        fits_in_background=False,
        labels=LabelPlan(total=16, first=10),
    )
    arrays = learning_arrays(space, 8, learning, num_given=4)
    assert arrays["n_labels"] == labels._rows.nbytes
    buffered = replace(learning.predictor, label_buffer=5)
    limited = learning_arrays(space, 8, replace(learning, predictor=buffered), num_given=4)
    assert 4 * limited["n_labels"] == arrays["n_labels"]
