"""Rollouts on a Ray cluster of several nodes: equal to those of one process, whatever happens."""

from typing import Any

import numpy as np
import pytest

from rl_teacher.agents.collector import Collector, RolloutInterrupted, RolloutSettings
from rl_teacher.agents.on_policy import OnPolicyAgent
from rl_teacher.agents.registry import make_agent
from rl_teacher.cluster.collector import ClusterCollector, acting_agent
from rl_teacher.cluster.connection import connected
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import PPOConfig
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.config.preprocessing import FrameSettings
from rl_teacher.envs.registry import get_env_info, make_vector
from tests.cluster import clusters

pytestmark = [
    pytest.mark.usefixtures("_shapes_unchecked"),
    pytest.mark.filterwarnings(clusters.FORKS),
]

NUM_ENVS, SEED = 6, 3


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


def agent_for(env_id):
    ppo = PPOConfig(num_envs=NUM_ENVS, num_epochs=2)
    agent = make_agent(TeachConfig(env_id, "rl", name="x", ppo=ppo), make_vector(env_id, NUM_ENVS))
    assert isinstance(agent, OnPolicyAgent)
    return agent


def assert_equal_rollouts(one, other):
    for name, column in vars(one).items():
        np.testing.assert_array_equal(column, getattr(other, name), err_msg=name)


def assert_equal_states(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_rollouts_and_updates_equal_those_of_one_process(collect_on):
    here, there = collect_here("ShortHopper-v1"), collect_on("ShortHopper-v1")
    one, other = agent_for("ShortHopper-v1"), agent_for("ShortHopper-v1")
    for agent, collector in ((one, here), (other, there)):
        agent.observe(collector.collect(collector.random_actions, 20))
    for _ in range(2):
        rollouts = here.collect(one.act, 40), there.collect(other.act, 40)
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


@pytest.mark.slow
def test_rollout_of_killed_process_is_repeated_with_the_same_numbers(collect_on):
    here, there = collect_here("ShortHopper-v1"), collect_on("ShortHopper-v1")
    import ray

    actor = there._workers.ready[1].actor
    expected = here.collect(here.random_actions, LONG)
    kill = at_call(2, lambda: ray.kill(actor, no_restart=False))
    assert_equal_rollouts(expected, there.collect(there.random_actions, LONG, kill))
    # Ray restarts it, and the next rollouts use it again.
    clusters.wait_until(lambda: there._workers.refresh() or len(there._workers.ready) == 2)
    one, other = agent_for("ShortHopper-v1"), agent_for("ShortHopper-v1")
    assert_equal_rollouts(here.collect(one.predict, 20), there.collect(other.predict, 20))


@pytest.mark.slow
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
    assert collect(LONG, at_call(2, lambda: nodes.kill(added[0]))) == 2
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


def test_agent_of_another_kind_is_refused():
    with pytest.raises(BadConfig, match="--cluster"):
        acting_agent(lambda observations: observations)


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "somewhere", "host:port"])
def test_unusable_address_is_refused(address):
    with pytest.raises(BadConfig, match=address), connected(address):
        raise AssertionError
