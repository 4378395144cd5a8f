import dataclasses

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rl_teacher.agents.collector import Collector
from rl_teacher.agents.episode_stats import EpisodeReturns
from rl_teacher.agents.policies import SquashedGaussianPolicy
from rl_teacher.agents.sac import (
    SAC,
    Minibatch,
    actor_loss,
    new_networks,
    new_optimisers,
    soft_q_target,
    temperature_loss,
    update,
)
from rl_teacher.common.errors import BadConfig
from rl_teacher.config.agents import SACConfig
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.envs.registry import make_vector
from rl_teacher.nn.mlp import MLP
from rl_teacher.runs.control import RunControl
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import teach
from tests.agents.rollouts import numpy_policy_of

TINY = SACConfig(
    num_envs=4,
    rollout_steps=4,
    learning_starts=32,
    buffer_steps=2000,
    minibatch_size=32,
    hidden=(16,),
    learning_rate=3e-3,
)


class LineEnv(gym.Env):
    """Point on a line that actions move towards the goal 0.5; truncated after twenty steps."""

    observation_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 3.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.age = self.np_random.uniform(-1, 1), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        move = 0.2 * (action[0] - 1) / 2
        self.place = float(np.clip(self.place + move, -2, 2))
        self.age += 1
        reward = -abs(self.place - 0.5)
        return np.array([self.place], np.float32), reward, False, self.age >= 20, {}


def line_vector(num_envs=4, mode=AutoresetMode.NEXT_STEP):
    return gym.vector.SyncVectorEnv([LineEnv] * num_envs, autoreset_mode=mode)


def agent_for(venv, config=TINY, seed=0):
    return SAC(
        venv.single_observation_space,
        venv.single_action_space,
        config,
        total_steps=10**6,
        seed=seed,
    )


def train(agent, collector, num_rollouts, reward_fn=lambda rollout: rollout.rewards):
    episodes = EpisodeReturns(collector.num_envs, starts_at_reset=True)
    for _ in range(num_rollouts):
        rollout = collector.collect(agent.act, agent.rollout_steps)
        agent.learn(rollout, reward_fn(rollout))
        episodes.observe(rollout, rollout.rewards)
    return episodes


def explored(num_rollouts=6):
    """Return an agent that explored without rewards and its collector."""
    venv = line_vector()
    agent, collector = agent_for(venv), Collector(venv, seed=0)
    for _ in range(num_rollouts):
        agent.observe(collector.collect(agent.explore, agent.rollout_steps))
    return agent, collector


def part(agent, prefix):
    return {name: array for name, array in agent.state().items() if name.startswith(prefix)}


def changed(before, after):
    return {name for name, array in before.items() if not np.array_equal(array, after[name])}


# --- formulas ---


def constant_policy(mean, log_std):
    policy = SquashedGaussianPolicy(MLP((1, 2 * len(mean)), "relu", 0.0, np.random.default_rng(0)))
    biases = [jnp.asarray(np.array([*mean, *log_std], np.float32))]
    return eqx.tree_at(lambda each: each.network.biases, policy, biases)


def test_soft_q_target_matches_hand_computation():
    # y = 1 + 0.9 * (min(5, 4) - 0.5 * -2) = 1 + 0.9 * 5; the second step is the last: 2
    target = soft_q_target(
        jnp.array([1.0, 2.0]),
        jnp.array([0.0, 1.0]),
        jnp.array([[5.0, 100.0], [4.0, 100.0]]),
        jnp.array([-2.0, 7.0]),
        jnp.array(0.5),
        0.9,
    )
    np.testing.assert_allclose(target, [5.5, 2.0])


def test_squashed_log_prob_matches_hand_computation():
    # u = 0.3 + 2 * 0.5 = 1.3; log N(u; 0.3, 2) = -0.125 - log 2 - log(2 pi) / 2 = -1.737086
    # log(1 - tanh(1.3)^2) = log(1 - 0.861723^2) = -1.356995; the difference is -0.380091
    actions, log_prob = constant_policy([0.3], [np.log(2)])(
        jnp.zeros((1, 1)), jnp.full((1, 1), 0.5)
    )
    assert actions[0, 0] == pytest.approx(np.tanh(1.3))
    assert log_prob[0] == pytest.approx(-0.380091, abs=2e-5)


def test_squashed_density_integrates_to_one():
    noise = jnp.linspace(-7, 7, 4001)[:, None]
    actions, log_probs = constant_policy([0.2], [-0.3])(jnp.zeros((4001, 1)), noise)
    assert np.trapezoid(np.exp(log_probs), actions[:, 0]) == pytest.approx(1.0, abs=1e-3)


def test_temperature_gradient_has_sign_of_entropy_deficit():
    # d/da -exp(a) * mean(log pi + H) = -exp(a) * (1 - 3) = 2 exp(a) at log pi = 1, H = -3
    slope = jax.grad(temperature_loss)
    assert slope(jnp.log(0.5), jnp.array([0.5, 1.5]), -3.0) == pytest.approx(1.0)
    assert slope(jnp.log(0.5), jnp.array([4.0, 6.0]), -3.0) == pytest.approx(-1.0)


def random_minibatch(rng, num_updates=3):
    def normal(*shape):
        return rng.standard_normal((num_updates, 8, *shape)).astype(np.float32)

    actions = np.tanh(normal(2))
    return Minibatch(
        normal(3), actions, normal(), normal(3), np.zeros_like(normal()), normal(2), normal(2)
    )


def test_actor_loss_matches_formula():
    rng = np.random.default_rng(0)
    networks = new_networks(3, 2, TINY, rng)
    batch = jax.tree.map(lambda column: jnp.asarray(column[0]), random_minibatch(rng))
    loss, log_probs = actor_loss(networks.actor, networks.critics, jnp.array(0.3), batch)
    actions, expected = networks.actor(batch.observations, batch.noise)
    np.testing.assert_allclose(log_probs, expected, rtol=1e-6)
    lower = np.minimum(*np.asarray(networks.critics(batch.observations, actions)))
    assert loss == pytest.approx(float(np.mean(0.3 * expected - lower)), rel=1e-5)


def test_target_critics_follow_by_polyak_averaging():
    rng = np.random.default_rng(0)
    before = new_networks(3, 2, TINY, rng)
    after, _, _ = update(before, new_optimisers(before), random_minibatch(rng, 1), TINY)
    old, new, target = (
        np.asarray(each.first.weights[0]) for each in (before.targets, after.critics, after.targets)
    )
    assert not np.array_equal(old, new)
    np.testing.assert_allclose(target, old + 0.005 * (new - old), rtol=1e-5, atol=1e-8)


def test_numpy_policy_acts_like_network():
    rng = np.random.default_rng(0)
    policy = new_networks(3, 2, TINY, rng).actor
    observations = rng.normal(size=(5, 3)).astype(np.float32)
    noise = np.random.default_rng(7).standard_normal((5, 2), dtype=np.float32)
    expected, _ = policy(jnp.asarray(observations), jnp.asarray(noise))
    host = numpy_policy_of(policy)
    np.testing.assert_allclose(
        host.policy_actions(observations, np.random.default_rng(7)), expected, atol=1e-5
    )
    mode, _ = policy(jnp.asarray(observations), jnp.zeros((5, 2)))
    np.testing.assert_allclose(host.policy_actions(observations, None), mode, atol=1e-5)


# --- the agent ---


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.usefixtures("_shapes_unchecked")
def test_sac_solves_line(seed):
    venv = line_vector()
    agent = agent_for(venv, seed=seed)
    episodes = train(agent, Collector(venv, seed=seed), 120)
    assert episodes.mean_return(8) > -4.5  # random policy: -17; optimum: -2.9


@pytest.mark.slow
def test_sac_solves_pendulum():
    venv = make_vector("Pendulum-v1", 8)
    config = SACConfig(hidden=(64, 64), minibatch_size=128)
    episodes = train(agent_for(venv, config, seed=0), Collector(venv, seed=0), 320)
    assert episodes.mean_return(8) > -250


def test_sac_learns_from_given_rewards():
    venv = line_vector()
    agent = agent_for(venv, dataclasses.replace(TINY, gamma=0.0))
    train(agent, Collector(venv, seed=0), 60, lambda rollout: rollout.actions[..., 0])
    assert agent.predict(np.zeros((4, 1), np.float32), deterministic=True).min() > 2.0


def test_rewards_of_reset_steps_are_ignored():
    def learned(reset_reward):
        venv = line_vector()
        agent = agent_for(venv)
        calls = []

        def reward_fn(rollout):
            calls.append(rollout.is_valid.all())
            return np.where(rollout.is_valid, rollout.rewards, reset_reward).astype(np.float32)

        train(agent, Collector(venv, seed=0), 12, reward_fn)
        assert not all(calls)
        return agent.state()

    assert not changed(learned(0.0), learned(0.5))


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(3),
        gym.spaces.Box(-np.inf, np.inf, (2,)),
        gym.spaces.Box(np.finfo(np.float32).min, np.finfo(np.float32).max, (2,)),
        gym.spaces.MultiBinary(2),
    ],
)
def test_unsupported_action_space_is_refused(space):
    with pytest.raises(BadConfig, match="-a ppo"):
        SAC(gym.spaces.Box(-1, 1, (3,)), space, TINY, total_steps=1, seed=0)


def test_restored_agent_continues_exactly():
    venv, other_venv = make_vector("Pendulum-v1", 4), make_vector("Pendulum-v1", 4)
    agent, collector = agent_for(venv), Collector(venv, seed=0)
    other, other_collector = agent_for(other_venv, seed=1), Collector(other_venv, seed=1)
    train(agent, collector, 5)
    train(other, other_collector, 3)
    other.load_state(agent.state())
    other_collector.load_state(collector.state())
    train(agent, collector, 3)
    train(other, other_collector, 3)
    here, there = agent.state(), other.state()
    assert here.keys() == there.keys()
    assert not changed(here, there)


def test_restored_exploring_agent_continues_exactly():
    agent, _ = explored()
    other = agent_for(line_vector(), seed=1)
    other.load_state(agent.state())
    for each in (agent, other):
        each.relabel_buffer(lambda observations, actions: observations[..., 0])
    assert not changed(agent.state(), other.state())


def test_exploration_covers_more_than_random_actions():
    def spread(explores):
        venv = line_vector()
        agent, collector = agent_for(venv), Collector(venv, seed=0)
        act = agent.explore if explores else collector.random_actions
        for _ in range(60):
            agent.observe(collector.collect(act, agent.rollout_steps))
        return agent.state()["buffer/observations"][500:].std()

    assert spread(True) > 1.3 * spread(False)


def test_first_rewards_reset_critics_and_keep_actor(monkeypatch):
    monkeypatch.setattr("rl_teacher.agents.sac.STEPS_AFTER_CRITIC_RESET", 0)
    agent, _ = explored()
    before = part(agent, "networks") | part(agent, "optimisers")
    agent.relabel_buffer(lambda observations, actions: observations[..., 0])
    after = part(agent, "networks") | part(agent, "optimisers")
    differences = changed(before, after)
    assert not {name for name in differences if ".actor" in name}
    weights = {name for name in before if "networks/.critics" in name and "weights" in name}
    assert weights <= differences
    agent.relabel_buffer(lambda observations, actions: observations[..., 0])
    assert not changed(after, part(agent, "networks") | part(agent, "optimisers"))


def test_relabel_replaces_all_rewards():
    agent, _ = explored()
    agent.relabel_buffer(lambda observations, actions: observations[..., 0] + actions[..., 0])
    state = agent.state()
    np.testing.assert_array_equal(
        state["buffer/rewards"],
        state["buffer/observations"][:, 0] + state["buffer/actions"][:, 0],
    )
    agent.relabel_buffer(lambda observations, actions: actions[..., 0])
    np.testing.assert_array_equal(agent.state()["buffer/rewards"], state["buffer/actions"][:, 0])


def test_no_relabel_sets_only_missing_rewards():
    venv = line_vector()
    agent = agent_for(venv, dataclasses.replace(TINY, no_relabel=True))
    agent.observe(Collector(venv, seed=0).collect(agent.explore, 4))
    agent.relabel_buffer(lambda observations, actions: actions[..., 0])
    first = agent.state()["buffer/rewards"]
    assert first.any()
    agent.relabel_buffer(lambda observations, actions: 2 * actions[..., 0])
    np.testing.assert_array_equal(agent.state()["buffer/rewards"], first)


def test_warm_start_copies_networks_and_skips_random_actions():
    venv = line_vector()
    trained = agent_for(venv)
    train(trained, Collector(venv, seed=0), 10)
    agent = agent_for(venv, seed=5)
    agent.warm_start_from(trained.state())
    positions = np.linspace(-1, 1, 7, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(
        agent.predict(positions, deterministic=True), trained.predict(positions, deterministic=True)
    )
    assert not changed(part(trained, "networks"), part(agent, "networks"))
    assert len(agent.state()["buffer/rewards"]) == 0
    drawn = np.concatenate([agent.act(positions) for _ in range(300)])
    assert not np.allclose(drawn.mean(), 1.0, atol=0.02)


# --- runs ---


def teach_config(name, steps):
    config = TeachConfig("Pendulum-v1", "synth", name=name, agent="sac", n_labels=8, seed=3)
    reward = dataclasses.replace(config.reward, hidden=(8,))
    return dataclasses.replace(
        config, num_timesteps=steps, pretrain_labels=4, pretrain_iters=20, sac=TINY, reward=reward
    )


def test_buffer_is_relabelled_between_fits(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path))
    monkeypatch.setattr("rl_teacher.teach.RELABEL_EVERY", 32)
    calls = []

    def relabel_buffer(agent, reward_fn):
        calls.append(len(agent.state()["buffer/rewards"]))

    monkeypatch.setattr(SAC, "relabel_buffer", relabel_buffer)
    config = dataclasses.replace(teach_config("scale", 624), n_labels=4)
    teach(config)
    # 368 steps of exploration, after which is the only fit
    assert calls == [368, *range(384, 625, 32)]


def checkpoint_of_agent(name):
    checkpoint = Experiment.find(name).checkpoints.load()
    assert checkpoint is not None
    return {key: array for key, array in checkpoint.arrays.items() if key.startswith("agent")}


@pytest.mark.parametrize("reward", ["predicted", "true"])
def test_first_fit_rewards_the_steps_of_the_exploration(tmp_path, monkeypatch, reward):
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path))
    monkeypatch.setattr(RunControl, "uses_true_reward", reward == "true")
    teach(teach_config("explored", 400))
    saved = checkpoint_of_agent("explored")
    assert not saved["agent/self/has_unrewarded"]
    assert not saved["agent/self/has_explored"]
    assert saved["agent/buffer/rewards"].all()
