"""User-defined agents: lookup, construction and validation."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from rl_teacher.agents.agent import Agent
from rl_teacher.agents.custom import CustomAgent, parse_arguments
from rl_teacher.agents.registry import make_agent
from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.config.experiment import OtherAgentConfig, PredictorConfig, RunOptions, TeachConfig
from rl_teacher.envs.registry import make_vector
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import teach

HERE = "tests.agents.test_custom"
CONFIG = TeachConfig(
    "ShortReacher-v1",
    "rl",
    name="test",
    agent=f"{HERE}:Constant",
    num_timesteps=320,
    clip_length=1.0,
    pretrain_iters=20,
    reward=PredictorConfig(hidden=(8,)),
    other=OtherAgentConfig(num_envs=4),
)
QUIET = RunOptions(no_tensorboard=True)


class Constant(CustomAgent):
    """Agent with one constant action, which each rollout moves at random."""

    rollout_steps = 20
    saved_attributes = ("place", "num_rollouts")

    def __init__(self, *args, **others):
        super().__init__(*args, **others)
        self.place = self.rng.normal(size=self.action_space.shape)
        self.num_rollouts = 0

    def act(self, observations, masks=None):
        return np.tile(self.place, (len(observations), 1)).astype(np.float32)

    def learn(self, rollout, rewards):
        self.num_rollouts += 1
        self.place = self.place + self.arguments.get("pace", 0.1) * self.rng.normal(size=2)
        return {"place": float(self.place[0])}


class NoLearn(CustomAgent):
    def act(self, observations, masks=None):
        return observations


class WithoutMetrics(Constant):
    def learn(self, rollout, rewards):  # pyright: ignore[reportIncompatibleMethodOverride]
        super().learn(rollout, rewards)


class Bare:
    def __init__(self, *args, **others):
        pass

    def act(self, observations, masks=None):
        return observations


class Broken(Constant):
    def __init__(self, *args, **others):
        raise ZeroDivisionError("half of nothing")


class Endless(Constant):
    rollout_steps = 0


not_a_class = 5


def config_with(**changes):
    return dataclasses.replace(CONFIG, **changes)


def create_agent(config=CONFIG) -> Any:
    return make_agent(config, make_vector(config.env_id, config.other.num_envs))


# --- valid agents ---


def test_custom_agent_needs_only_act_and_learn():
    agent = create_agent(config_with(other=OtherAgentConfig(4, ("pace=0.5",))))
    assert isinstance(agent, Agent)
    assert isinstance(agent, Constant)
    assert agent.arguments == {"pace": 0.5}
    assert agent.num_envs == 4
    assert agent.total_steps == 320
    agent.extend(640)
    assert agent.total_steps == 640


def test_learn_that_returns_nothing_is_refused():
    with pytest.raises(BadInput, match="WithoutMetrics"):
        teach(config_with(agent=f"{HERE}:WithoutMetrics"), QUIET)


def test_custom_agent_learns_from_labels():
    teach(config_with(predictor="synth", n_labels=12), QUIET)
    assert Experiment.find("test").metrics()[-1]["labels_answered"] == 12


def test_restored_custom_agent_continues_exactly():
    one, other = create_agent(), create_agent(config_with(seed=2))
    one.learn(None, None)
    other.load_state(one.state())
    for agent in (one, other):
        agent.learn(None, None)
    assert one.num_rollouts == other.num_rollouts == 2
    np.testing.assert_array_equal(one.place, other.place)


@pytest.mark.parametrize("value", [None, "text", {1: 2}, [np.zeros(2), np.zeros(3)]])
def test_attribute_that_cannot_be_saved_is_named(value):
    agent = create_agent()
    agent.place = value
    with pytest.raises(BadConfig, match="place"):
        agent.state()


def test_warm_start_copies_attributes_and_refuses_other_shapes():
    one, other = create_agent(), create_agent(config_with(seed=2))
    other.warm_start_from(one.state())
    np.testing.assert_array_equal(one.place, other.place)
    with pytest.raises(BadConfig, match="place"):
        other.warm_start_from({"place": np.zeros(3), "num_rollouts": np.asarray(1)})


# --- invalid agents ---


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("no_such_module:Agent", "no_such_module"),
        (f"{HERE}:Nobody", "Nobody"),
        (f"{HERE}:Bare", "predict"),
        (f"{HERE}:not_a_class", "not_a_class"),
    ],
)
def test_invalid_agent_is_refused_before_run_is_created(agent, message):
    with pytest.raises(BadInput, match=message):
        teach(config_with(agent=agent), QUIET)
    with pytest.raises(BadInput, match="no experiment"):
        Experiment.find("test")


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("Broken", "half of nothing"),
        ("NoLearn", "learn"),
        ("Endless", "rollout_steps"),
    ],
)
def test_agent_that_fails_to_construct_is_refused(agent, message):
    with pytest.raises(BadInput, match=message):
        create_agent(config_with(agent=f"{HERE}:{agent}"))


# --- arguments ---


def test_arguments_parse_as_literals_or_words():
    given = ["rate=1e-4", "hidden=(64, 64)", "kind=auto", "on=True", "net={'pi': [8]}", "none=None"]
    assert parse_arguments(given) == {
        **{"rate": 1e-4, "hidden": (64, 64), "kind": "auto", "on": True, "net": {"pi": [8]}},
        "none": None,
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["rate"], "rate"),
        (["=1"], "=1"),
        (["a b=1"], "a b"),
        (["rate=1", "rate=2"], "rate"),
        (["rate=1e-3.5"], "1e-3.5"),
        (["rate=__import__('os').getcwd()"], "__import__"),
        (["on=true"], "True"),
        (["deep=" + "[" * 5000], "deep"),
    ],
)
def test_invalid_arguments_are_refused_without_evaluation(given, message):
    with pytest.raises(BadConfig, match=message):
        parse_arguments(given)
