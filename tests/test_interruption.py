"""A stop request ends a long rollout between two steps, and the run resumes exactly."""

import dataclasses
import os
import signal
import sys
import time

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.common.state_dict import part_of
from rl_teacher.config.agents import PPOConfig
from rl_teacher.config.experiment import RunOptions, TeachConfig
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import teach

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

OPTIONS = RunOptions(no_tensorboard=True, checkpoint_seconds=0.0)
NUM_ENVS, ROLLOUT_STEPS = 2, 16
STEPS = NUM_ENVS * ROLLOUT_STEPS


class Interrupting(gym.Env):
    """Random walk that sends this process SIGINT at a given step."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    interrupts_at = -1
    num_steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place, self._age = self.np_random.normal(size=3).astype(np.float32), 0
        return self._place, {}

    def step(self, action):
        Interrupting.num_steps += 1
        if Interrupting.num_steps == Interrupting.interrupts_at:
            os.kill(os.getpid(), signal.SIGINT)
        noise = self.np_random.normal(size=3)
        self._place = (0.9 * self._place + noise + action.sum()).astype(np.float32)
        self._age += 1
        return self._place, float(-abs(self._place[0])), False, self._age >= 20, {}


def config_of(name="test"):
    ppo = PPOConfig(NUM_ENVS, ROLLOUT_STEPS, minibatch_size=16, num_epochs=2)
    return TeachConfig(
        f"{__name__}:Interrupting", "rl", name=name, num_timesteps=6 * STEPS, ppo=ppo
    )


@pytest.fixture(autouse=True)
def _counted_from_zero(monkeypatch):
    for name in ("interrupts_at", "num_steps"):
        monkeypatch.setattr(Interrupting, name, getattr(Interrupting, name))
    # It takes steps too, which would be counted.
    monkeypatch.setattr("rl_teacher.preparation.check_environment", lambda *_, **__: None)


def final_checkpoint(name):
    checkpoint = Experiment.find(name).checkpoints.load()
    assert checkpoint is not None
    return checkpoint


def test_run_interrupted_within_rollout_resumes_exactly(monkeypatch):
    assert teach(config_of("whole"), OPTIONS).is_finished
    monkeypatch.setattr(sys.modules["rl_teacher.teach"], "MAX_STOP_WAIT_S", 0.0)
    Interrupting.num_steps, Interrupting.interrupts_at = 0, 3 * STEPS + 5
    assert not teach(config_of(), OPTIONS).is_finished
    # Both environments complete the step, but no further one of the rollout.
    assert Interrupting.num_steps - Interrupting.interrupts_at <= NUM_ENVS
    assert final_checkpoint("test").step == 3 * STEPS
    assert teach(config_of(), OPTIONS).is_finished

    expected, resumed = (final_checkpoint(name).arrays for name in ("whole", "test"))
    for part in ("agent", "collector"):
        assert part_of(expected, part).keys() == part_of(resumed, part).keys()
        for name, array in part_of(expected, part).items():
            np.testing.assert_array_equal(array, part_of(resumed, part)[name], err_msg=name)


def test_fast_rollout_is_completed_before_the_run_stops(monkeypatch):
    monkeypatch.setattr(sys.modules["rl_teacher.teach"], "MAX_STOP_WAIT_S", 60.0)
    Interrupting.interrupts_at = 2 * STEPS + 5
    outcome = teach(config_of(), OPTIONS)
    assert not outcome.is_finished
    assert outcome.step == final_checkpoint("test").step == 3 * STEPS


def test_stop_request_during_exploration_ends_the_run(monkeypatch):
    monkeypatch.setattr(sys.modules["rl_teacher.teach"], "MAX_STOP_WAIT_S", 0.0)
    config = dataclasses.replace(
        config_of(), predictor="synth", n_labels=40, num_timesteps=4_096, clip_length=1.0
    )
    Interrupting.interrupts_at = 3
    assert not teach(config, OPTIONS).is_finished
    assert Interrupting.num_steps - Interrupting.interrupts_at <= NUM_ENVS


def test_stop_request_during_the_first_fit_ends_the_run_and_keeps_its_labels(monkeypatch):
    def fit_for_long(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(100)

    monkeypatch.setattr("rl_teacher.rewards.trainer.fit", fit_for_long)
    config = dataclasses.replace(
        config_of(), predictor="synth", n_labels=4, pretrain_labels=4, clip_length=0.1
    )
    start_s = time.monotonic()
    assert not teach(config, OPTIONS).is_finished
    assert time.monotonic() - start_s < 60
    assert Experiment.find("test").summary().labels.answered == 4


def test_run_that_a_second_signal_interrupts_is_shown_as_stopped(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("rl_teacher.teach.check_losses", interrupt)
    with pytest.raises(KeyboardInterrupt):
        teach(config_of(), OPTIONS)
    assert Experiment.find("test").summary().phase == "stopped"
