"""Rollouts on a Ray cluster of several nodes: equal to those of one process, whatever happens."""

import os
import signal
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.agents.collector import Collector, RolloutInterrupted, RolloutSettings
from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.registry import make_agent
from rl_teacher.cluster.collector import ClusterCollector, acting_agent
from rl_teacher.cluster.connection import connected
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import GA3CConfig, PPOConfig
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.registry import get_env_info, make_vector
from tests.cluster import clusters

pytestmark = [
    pytest.mark.usefixtures("_shapes_unchecked"),
    pytest.mark.filterwarnings(clusters.FORKS),
]

NUM_ENVS, SEED = 6, 3


class Failing(gym.Env):
    """Environment that raises at its third step."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._age = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._age += 1
        if self._age == 3:
            raise ZeroDivisionError("no step left")
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.fixture(scope="module", autouse=True)
def _connection(nodes):
    with connected(nodes.address):
        yield


@pytest.fixture
def collect_on():
    """Function that creates a collector on the cluster, which is closed afterwards."""
    opened = []

    def make(env_id, seed=SEED) -> Any:
        settings = RolloutSettings(
            get_env_info(env_id),
            seed,
            0,
            hide_terminations=False,
            keep_steps=1_000,
            frames=FrameSettings(),
        )
        opened.append(ClusterCollector(settings, NUM_ENVS, None, lambda text: None))
        return opened[-1]

    yield make
    for collector in opened:
        collector.close()


def collect_here(env_id, seed=SEED) -> Any:
    return Collector(make_vector(env_id, NUM_ENVS, keep_steps=1_000), seed=seed)


def agent_for(env_id, name="ppo"):
    ppo, ga3c = PPOConfig(num_envs=NUM_ENVS, num_epochs=2), GA3CConfig(num_envs=NUM_ENVS)
    settings: Any = {"ppo": ppo, "ga3c": ga3c}
    config = TeachConfig(env_id, "rl", name="x", agent=name, **settings)
    agent: Any = make_agent(config, make_vector(env_id, NUM_ENVS))
    assert isinstance(agent, OnPolicyAgent)
    return agent


def assert_equal_rollouts(one, other):
    for name, column in vars(one).items():
        np.testing.assert_array_equal(column, getattr(other, name), err_msg=name)


def assert_equal_states(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def processes_of(collector):
    """Return the ids of the actors' processes."""
    import ray

    workers = collector._workers.ready
    return ray.get([each.actor.process_id.remote() for each in workers])


@pytest.mark.parametrize(
    ("env_id", "num_steps"),
    [
        ("ShortHopper-v1", 40),
        # Updates on images take long.
        pytest.param("MovingDot-v0", 12, marks=pytest.mark.slow),
        pytest.param("CartPole-v1", 40, marks=pytest.mark.slow),
        pytest.param("Breakout-v0", 40, marks=pytest.mark.slow),
    ],
)
def test_rollouts_and_updates_equal_those_of_one_process(collect_on, env_id, num_steps):
    here, there = collect_here(env_id), collect_on(env_id)
    one, other = agent_for(env_id), agent_for(env_id)
    assert_equal_states(here.state(), there.state())
    for agent, collector in ((one, here), (other, there)):
        agent.observe(collector.collect(collector.random_actions, 20))
    for _ in range(2):
        rollouts = here.collect(one.act, num_steps), there.collect(other.act, num_steps)
        assert_equal_rollouts(*rollouts)
        for agent, rollout in zip((one, other), rollouts, strict=True):
            agent.learn(rollout, rollout.rewards)
    assert len(there._shards) == 2
    assert_equal_states(here.state(), there.state())
    assert_equal_states(one.state(), other.state())


LONG = 1_500
"""Steps of a rollout that takes about a second, in which something happens."""


def at_call(number, do):
    """Return a stop request that does something when it is asked for the n-th time."""
    calls = []

    def should_stop():
        calls.append(None)
        if len(calls) == number:
            do()
        return False

    return should_stop


def test_rollout_of_killed_process_is_repeated_with_the_same_numbers(collect_on):
    here, there = collect_here("ShortHopper-v1"), collect_on("ShortHopper-v1")
    first = processes_of(there)
    expected = here.collect(here.random_actions, LONG)
    kill = at_call(2, lambda: os.kill(first[1], signal.SIGKILL))
    assert_equal_rollouts(expected, there.collect(there.random_actions, LONG, kill))
    # Ray restarts it, and the next rollouts use it again.
    clusters.wait_until(lambda: there._workers.refresh() or len(there._workers.ready) == 2)
    assert first[1] not in processes_of(there)
    one, other = agent_for("ShortHopper-v1"), agent_for("ShortHopper-v1")
    assert_equal_rollouts(here.collect(one.predict, 20), there.collect(other.predict, 20))


@pytest.mark.slow
def test_rollout_of_suspended_process_is_repeated_with_the_same_numbers(collect_on):
    here, there = collect_here("CartPole-v1"), collect_on("CartPole-v1")
    first = processes_of(there)
    expected = here.collect(here.random_actions, LONG)
    suspend = at_call(1, lambda: os.kill(first[1], signal.SIGSTOP))
    try:
        assert_equal_rollouts(expected, there.collect(there.random_actions, LONG, suspend))
        # The other one steps all environments meanwhile.
        expected = here.collect(here.random_actions, 20)
        assert_equal_rollouts(expected, there.collect(there.random_actions, 20))
        assert len(there._shards) == 1
    finally:
        os.kill(first[1], signal.SIGCONT)
    clusters.wait_until(lambda: there._workers.refresh() or len(there._workers.ready) == 2)
    expected = here.collect(here.random_actions, 20)
    assert_equal_rollouts(expected, there.collect(there.random_actions, 20))
    assert len(there._shards) == 2
    assert_equal_states(here.state(), there.state())


@pytest.mark.slow
def test_update_of_ga3c_ends_while_the_rollout_of_a_killed_process_is_repeated(collect_on):
    there = collect_on("ShortHopper-v1")
    agent: Any = agent_for("ShortHopper-v1", "ga3c")
    rollout = there.collect(agent.act, 40)
    first, has_ended = processes_of(there), []
    agent.learn(rollout, rollout.rewards)

    def should_stop():
        has_ended.append(agent._pending.networks.is_ready())
        if len(has_ended) == 2:
            os.kill(first[1], signal.SIGKILL)
        return False

    there.collect(agent.act, LONG, should_stop)
    assert has_ended[-1]


def test_nodes_that_join_and_die_during_a_rollout(nodes, collect_on):
    here, there = collect_here("CartPole-v1"), collect_on("CartPole-v1")
    added = []

    def collect(num_steps, during=None):
        expected = here.collect(here.random_actions, num_steps)
        assert_equal_rollouts(expected, there.collect(there.random_actions, num_steps, during))
        return len(there._shards)

    def wait_for_workers(number):
        clusters.wait_until(lambda: there._workers.refresh() or len(there._workers.ready) == number)

    assert collect(LONG, at_call(2, lambda: added.append(nodes.add()))) == 2
    wait_for_workers(3)
    assert collect(20) == 3
    assert collect(LONG, at_call(2, lambda: nodes.kill(added[0]))) == 3
    wait_for_workers(2)
    assert collect(20) == 2
    assert_equal_states(here.state(), there.state())


def test_state_continues_in_one_process_and_back(collect_on):
    here, there = collect_here("CartPole-v1", seed=SEED + 1), collect_on("CartPole-v1")
    there.collect(there.random_actions, 60)
    here.load_state(there.state())
    for _ in range(2):
        expected = here.collect(here.random_actions, 30)
        assert_equal_rollouts(expected, there.collect(there.random_actions, 30))
        expected = here.collect(here.random_actions, 30)
        there.load_state(here.state())
    # The records of episodes, from which videos are rendered, are in the state as well.
    expected = here.collect(here.random_actions, 60)
    there.collect(there.random_actions, 60)
    for episode in np.unique(expected.scene_states[..., 0]).astype(int).tolist():
        one, other = (each.venv.replay_record(episode) for each in (here, there))
        assert one.reset_state == other.reset_state
        np.testing.assert_array_equal(one.actions, other.actions)


def test_stop_request_discards_the_rollout(collect_on):
    here, there = collect_here("ShortHopper-v1"), collect_on("ShortHopper-v1")
    with pytest.raises(RolloutInterrupted):
        there.collect(there.random_actions, LONG, iter([False, True]).__next__)
    assert_equal_states(here.state(), there.state())
    expected = here.collect(here.random_actions, 20)
    assert_equal_rollouts(expected, there.collect(there.random_actions, 20))


def test_error_of_environment_ends_the_rollout(collect_on):
    there = collect_on(f"{__name__}:Failing")
    with pytest.raises(ZeroDivisionError, match="no step left"):
        there.collect(there.random_actions, 10)


def test_agent_of_another_kind_is_refused():
    with pytest.raises(BadConfig, match="only ppo, trpo, a2c and ga3c"):
        acting_agent(lambda observations: observations)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://127.0.0.1:10001", "Ray Client.*ray job submit"),
        ("somewhere", "local, auto or the HOST:PORT"),
        ("host:port", "local, auto or the HOST:PORT"),
    ],
)
def test_unusable_address_is_refused(address, message):
    with pytest.raises(BadConfig, match=message), connected(address):
        raise AssertionError
