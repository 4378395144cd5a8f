"""A stop request ends a slow rollout between two steps, and the run resumes exactly."""

import dataclasses
import os
import signal
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.agents import collector
from rl_teacher.agents.ga3c import GA3C
from rl_teacher.common.state_dict import part_of
from rl_teacher.config.agents import GA3CConfig, OtherAgentConfig, PPOConfig, SACConfig
from rl_teacher.config.experiment import RunOptions, TeachConfig
from rl_teacher.envs.snapshots import ReplayVectorEnv
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import teach

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

QUIET = RunOptions(no_tensorboard=True)
NUM_ENVS, ROLLOUT_STEPS = 2, 16


class Slow(gym.Env):
    """Random walk with slow steps, which sends this process SIGINT at a given step."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    step_s: float = 0.002
    interrupts_at: int = -1
    num_steps: int = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place, self._age = self.np_random.normal(size=3).astype(np.float32), 0
        return self._place, {}

    def step(self, action):
        time.sleep(Slow.step_s)
        Slow.num_steps += 1
        if Slow.num_steps == Slow.interrupts_at:
            os.kill(os.getpid(), signal.SIGINT)
        noise = self.np_random.normal(size=3)
        self._place = (0.9 * self._place + noise + action.sum()).astype(np.float32)
        self._age += 1
        return self._place, float(-abs(self._place[0])), False, self._age >= 20, {}


SMALL: dict[str, Any] = {"num_envs": NUM_ENVS, "rollout_steps": ROLLOUT_STEPS}
AGENTS: dict[str, dict[str, Any]] = {
    "ppo": {"ppo": PPOConfig(**SMALL, minibatch_size=16, num_epochs=2)},
    "ga3c": {"ga3c": GA3CConfig(**SMALL, batch_envs=2)},
    "sac": {"sac": SACConfig(**SMALL, learning_starts=32, minibatch_size=8)},
    "sb3:PPO": {"other": OtherAgentConfig(NUM_ENVS, ("n_steps=16", "batch_size=16"))},
    "sb3:TD3": {
        "other": OtherAgentConfig(
            NUM_ENVS, ("train_freq=16", "learning_starts=16", "batch_size=8", "buffer_size=500")
        )
    },
}


def config_of(agent, name="test"):
    return TeachConfig(
        f"{__name__}:Slow", "rl", name=name, agent=agent, num_timesteps=192, **AGENTS[agent]
    )


@pytest.fixture(autouse=True)
def _slow_from_the_first_rollout(monkeypatch):
    for name in ("step_s", "interrupts_at", "num_steps"):
        monkeypatch.setattr(Slow, name, getattr(Slow, name))
    monkeypatch.setattr(collector, "SLOW_ROLLOUT_S", 0.02)
    # It takes steps too, which would be counted.
    monkeypatch.setattr("rl_teacher.preparation.check_environment", lambda _: None)


def final_checkpoint(name):
    checkpoint = Experiment.find(name).load_checkpoint()
    assert checkpoint is not None
    return checkpoint


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(agent, marks=[pytest.mark.slow] if agent in ("ga3c", "sb3:PPO") else [])
        for agent in AGENTS
    ],
)
def test_run_interrupted_within_rollout_resumes_exactly(agent):
    assert teach(config_of(agent, "whole"), QUIET).is_finished

    Slow.num_steps, Slow.interrupts_at = 0, NUM_ENVS * (3 * ROLLOUT_STEPS + 5)
    config = config_of(agent)
    assert not teach(config, QUIET).is_finished
    assert final_checkpoint("test").step == 3 * NUM_ENVS * ROLLOUT_STEPS
    assert teach(config, QUIET).is_finished

    expected, resumed = (final_checkpoint(name).arrays for name in ("whole", "test"))
    for part in ("agent", "collector"):
        assert part_of(expected, part).keys() == part_of(resumed, part).keys()
        for name, array in part_of(expected, part).items():
            np.testing.assert_array_equal(array, part_of(resumed, part)[name], err_msg=name)


def test_slow_rollout_does_not_wait_for_pending_update(monkeypatch):
    read = []
    state = GA3C.state
    monkeypatch.setattr(GA3C, "state", lambda agent: read.append(True) or state(agent))
    config = AGENTS["ga3c"]["ga3c"]
    spaces = Slow.observation_space, Slow.action_space
    agent = GA3C(*spaces, config, total_steps=192, seed=0)
    envs = collector.Collector(ReplayVectorEnv(Slow, NUM_ENVS), seed=0)
    rollouts = collector.InterruptibleRollouts(agent, envs, lambda: False)
    for _ in range(3):
        rollout = rollouts.collect()
        agent.learn(rollout, rollout.rewards)
    assert rollouts._is_slow
    assert not read


@pytest.mark.parametrize("at_rollout", [0, 2])
def test_stop_request_does_not_wait_for_slow_rollout(at_rollout):
    rollout_steps = NUM_ENVS * 32
    slow = dataclasses.replace(AGENTS["ppo"]["ppo"], rollout_steps=32)
    config = dataclasses.replace(config_of("ppo"), ppo=slow, num_timesteps=10_000)
    Slow.step_s, Slow.interrupts_at = 0.01, at_rollout * rollout_steps + 3
    outcome = teach(config, QUIET)
    # Both environments complete the step, but no further one of the rollout.
    assert Slow.num_steps - Slow.interrupts_at <= NUM_ENVS
    assert outcome.step == at_rollout * rollout_steps
    checkpoint = Experiment.find("test").load_checkpoint()
    assert (checkpoint.step if checkpoint else 0) == outcome.step


def test_fast_rollout_is_completed_before_the_run_stops(monkeypatch):
    monkeypatch.setattr(collector, "SLOW_ROLLOUT_S", 60.0)
    monkeypatch.setattr(collector, "MAX_STOP_WAIT_S", 60.0)
    Slow.interrupts_at = NUM_ENVS * (2 * ROLLOUT_STEPS + 5)
    outcome = teach(config_of("ppo"), QUIET)
    assert not outcome.is_finished
    assert outcome.step == final_checkpoint("test").step == 3 * NUM_ENVS * ROLLOUT_STEPS


def test_stop_request_during_exploration_ends_the_run():
    config = dataclasses.replace(
        config_of("ppo"), predictor="synth", n_labels=40, pretrain_labels=40, clip_length=1.0
    )
    Slow.step_s, Slow.interrupts_at = 0.01, 3
    assert not teach(config, QUIET).is_finished
    assert Slow.num_steps - Slow.interrupts_at <= NUM_ENVS
