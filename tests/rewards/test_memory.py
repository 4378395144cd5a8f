import os
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN

from rl_teacher import PreferenceVectorWrapper, PreferenceWrapper
from rl_teacher.cli import main
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import SACConfig
from rl_teacher.config.experiment import PredictorConfig, RunOptions, TeachConfig
from rl_teacher.envs.registry import env_spaces, get_env_info
from rl_teacher.plan import resolve
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.predictor.labels import LabelSet
from rl_teacher.rewards import memory
from rl_teacher.rewards.memory import available_memory, check_memory, memory_needed
from rl_teacher.runs.folder import Experiment
from rl_teacher.wrappers.sb3 import RelabelReplay

CONFIG = TeachConfig("ShortHopper-v1", "synth", name="test", n_labels=700)
TEACH = ["teach", "-e", "ShortHopper-v1", "-n", "x"]


class Wide(gym.Env):
    """Environment with observations of 200,000 numbers."""

    observation_space = gym.spaces.Box(-1, 1, (200_000,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(200_000, np.float32), {}

    def step(self, action):
        return np.zeros(200_000, np.float32), 0.0, False, False, {}


@pytest.fixture
def wide():
    gym.register("Wide-v0", lambda **_: Wide(), max_episode_steps=100)
    yield "Wide-v0"
    del gym.registry["Wide-v0"]


def plan_of(config):
    return resolve(config, RunOptions(), get_env_info(config.env_id))


def bytes_for(setting, config):
    needed = memory_needed(plan_of(config))
    [found] = [num_bytes for names, num_bytes in needed.items() if names[0] == setting]
    return found


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        (["-p", "synth", "-l", "1000000000"], "--n-labels"),
        (["-p", "synth", "-l", "1000000000", "-L", "1000000000"], "--pretrain-labels"),
        (["-p", "rl", "--ppo.rollout-steps", "1000000000"], "--ppo.num-envs"),
        (["-p", "rl", "--ppo.hidden", "1000000", "1000000"], "--ppo.hidden"),
        (["-p", "synth", "--reward.hidden", "1000000", "1000000"], "--reward.hidden"),
        (["-p", "rl", "-a", "sac", "--sac.buffer-steps", "1000000000000"], "--sac.buffer-steps"),
    ],
)
def test_run_beyond_the_memory_is_refused_with_the_setting_to_lower(arguments, setting, capsys):
    assert main([*TEACH, *arguments]) == 2
    printed = capsys.readouterr().err
    assert "GiB of memory" in printed
    assert "available" in printed
    assert f"Lower {setting}" in printed
    assert Experiment.all() == []


def test_run_with_200_000_numbers_per_observation_is_refused(wide, capsys):
    arguments = ["teach", "-e", wide, "-p", "synth", "-l", "50000", "-n", "x", "-c", "1"]
    assert main(arguments) == 2
    assert "GiB of memory" in capsys.readouterr().err
    assert Experiment.all() == []


def test_array_that_cannot_be_allocated_ends_command_with_error(capsys):
    arguments = ["-p", "rl", "-a", "sac", "--sac.learning-starts", "8", "-t", "1000"]
    minibatch = ["--sac.minibatch-size", "1000000000000000"]
    assert main([*TEACH, *arguments, "--no-tensorboard", *minibatch]) == 2
    printed = capsys.readouterr().err
    assert "error: Memory ran out: Unable to allocate" in printed
    assert "Traceback" not in printed
    assert main([*TEACH, *arguments, "--no-tensorboard"]) == 0


@pytest.mark.parametrize(
    ("keywords", "setting"),
    [
        ({"n_labels": 10**9}, "n_labels or clip_length"),
        ({"n_labels": 10**9, "pretrain_labels": 10**9}, "pretrain_labels or clip_length"),
        ({"reward": PredictorConfig(hidden=(10**6, 10**6))}, "reward.hidden or"),
    ],
)
def test_wrapper_beyond_the_memory_is_refused_with_the_keyword_to_lower(keywords, setting):
    with pytest.raises(BadConfig, match=f"GiB of memory, .* available. Lower {setting}"):
        PreferenceWrapper(gym.make("CartPole-v1"), **keywords)
    assert Experiment.all() == []


def test_wrapper_of_200_000_numbers_per_observation_is_refused(wide):
    with pytest.raises(BadConfig, match="GiB of memory"):
        PreferenceVectorWrapper(gym.make_vec(wide, 2), n_labels=50_000, clip_length=3.0)
    assert Experiment.all() == []


def test_relabelled_replay_buffer_beyond_the_memory_is_refused(monkeypatch):
    env = PreferenceWrapper(gym.make("CartPole-v1"))
    model = DQN("MlpPolicy", env, buffer_size=1_000, device="cpu")
    monkeypatch.setattr(memory, "available_memory", lambda: 1_000)
    with pytest.raises(BadConfig, match="Lower buffer_size"):
        model.learn(2_000, callback=RelabelReplay(env))
    env.close()


def test_ordinary_runs_fit_into_the_memory():
    check_memory(plan_of(CONFIG))
    check_memory(plan_of(replace(CONFIG, predictor="rl", agent="sac")))


@pytest.mark.parametrize(
    ("env_id", "reward", "clip_length"),
    [
        ("ShortHopper-v1", PredictorConfig(), 1.5),
        ("ShortHopper-v1", PredictorConfig(segment_discount=0.5), 1.5),
        ("MovingDot-v0", PredictorConfig(), 1.5),
        ("MovingDot-v0", PredictorConfig(image_encoder="small"), 1.5),
        # Of 40 images every second one is stored.
        ("MovingDot-v0", PredictorConfig(image_encoder="small"), 2.0),
    ],
)
def test_memory_of_labels_is_that_of_their_rows(env_id, reward, clip_length):
    config = replace(CONFIG, env_id=env_id, n_labels=20, reward=reward, clip_length=clip_length)
    spaces = env_spaces(config.env_id, config.frames)
    space = InputSpace.from_spaces(*spaces).for_encoder(reward.image_encoder)
    length = round(config.clip_length * get_env_info(env_id).fps)
    labels = LabelSet(length, space, 3, 0, reward.segment_discount, capacity=20)
    assert bytes_for("n_labels", config) == labels._rows.nbytes


def test_memory_of_rollouts_counts_their_own_types():
    """A rollout of Hopper-v5, whose space has 64 bits, holds 11 numbers of 32, and 3 actions."""
    config = replace(CONFIG, env_id="Hopper-v5", predictor="rl", n_labels=None)
    assert bytes_for("ppo.num_envs", config) == 32 * 64 * 4 * (11 + 3)


def test_label_buffer_limits_the_memory_of_labels():
    limited = replace(CONFIG, reward=PredictorConfig(label_buffer=70))
    assert 10 * bytes_for("n_labels", limited) == bytes_for("n_labels", CONFIG)


def test_replay_buffer_counts_both_observations():
    config = replace(CONFIG, agent="sac", sac=SACConfig(buffer_steps=100))
    assert bytes_for("sac.buffer_steps", config) == 100 * 4 * (12 + 12 + 3)


def test_available_memory_is_at_most_that_of_the_machine():
    available = available_memory()
    assert available is not None
    assert 0 < available <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
