"""Agents of other libraries in this project's training loop."""

import dataclasses
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_teacher import to_sb3
from rl_teacher.agents.collector import Collector
from rl_teacher.agents.registry import check_agent, make_agent
from rl_teacher.agents.sb3.libraries import algorithm_class, arguments_for
from rl_teacher.agents.sb3.weights import weights_of
from rl_teacher.common.errors import BadConfig, UnknownName
from rl_teacher.config.experiment import OtherAgentConfig, TeachConfig
from rl_teacher.envs.interface import environment_seeds
from rl_teacher.envs.registry import make_vector
from rl_teacher.runs.folder import Experiment
from rl_teacher.teach import teach
from tests.agents.rollouts import masked_vector
from tests.test_workflows import QUIET

ON_POLICY = {
    "sb3:PPO": ("n_steps=16", "batch_size=16", "n_epochs=2"),
    "sb3:A2C": (),
    "sb3:TRPO": ("n_steps=16", "batch_size=16", "n_critic_updates=2"),
    "sb3:MaskablePPO": ("n_steps=16", "batch_size=16", "n_epochs=2"),
}
SMALL = "policy_kwargs={'net_arch': [16]}"
OFF_POLICY = {
    "sb3:SAC": ("learning_starts=8", "batch_size=16", SMALL),
    "sb3:TD3": ("learning_starts=8", "batch_size=16", "action_noise=0.1", SMALL),
    "sb3:DDPG": ("learning_starts=8", "batch_size=16", SMALL),
    "sb3:TQC": ("learning_starts=8", "batch_size=16", SMALL),
    "sb3:CrossQ": ("learning_starts=8", "batch_size=16", SMALL),
    "sb3:DQN": ("learning_starts=8", "batch_size=16", "target_update_interval=16", SMALL),
    "sb3:QRDQN": ("learning_starts=8", "batch_size=16", "target_update_interval=16", SMALL),
}
WITH_JAX = {
    "sbx:PPO": ("n_steps=16", "batch_size=16", "n_epochs=2"),
    "sbx:SAC": ("learning_starts=8", "batch_size=16", SMALL),
    "sbx:DQN": ("learning_starts=8", "batch_size=16", "target_update_interval=16"),
}
FAST = ("sb3:PPO", "sb3:TRPO", "sb3:MaskablePPO", "sb3:SAC", "sb3:DQN")
"""One agent of each kind for every test run; the others are marked slow."""
EVERY = [
    name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
    for name in (*ON_POLICY, *OFF_POLICY)
]
DISCRETE = ("DQN", "QRDQN", "MaskablePPO")
NUM_ENVS = 4


def env_for(name):
    return "CartPole-v1" if name.partition(":")[2] in DISCRETE else "Pendulum-v1"


def config_of(name, *arguments, num_envs=NUM_ENVS, **changes):
    other = OtherAgentConfig(num_envs, tuple(arguments))
    config = TeachConfig(
        env_for(name), "rl", name="test", agent=name, other=other, num_timesteps=400
    )
    return dataclasses.replace(config, **changes)


def create_agent(name, *arguments, venv: Any = None, **changes) -> Any:
    config = config_of(name, *arguments, **changes)
    return make_agent(config, venv or make_vector(config.env_id, config.other.num_envs))


def train(agent, collector, num_rollouts):
    for _ in range(num_rollouts):
        rollout = collector.collect(agent.act, agent.rollout_steps)
        agent.learn(rollout, rollout.rewards)
    return agent


def collector_for(name, seed=0):
    return Collector(make_vector(env_for(name), NUM_ENVS), seed=seed)


def rollouts_of(name):
    return 3 if name.rpartition(":")[2] in ("PPO", "A2C", "TRPO", "MaskablePPO") else 8


def assert_same(expected, actual):
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, actual[name], err_msg=name)


# --- equality with the library's own loop ---


def assert_learns_as_in_library_loop(name, *arguments):
    arguments = (*(ON_POLICY | OFF_POLICY)[name], *arguments)
    arguments = (*arguments, *["normalise=False"] * (name in ON_POLICY))
    agent = create_agent(name, *arguments, seed=3)
    total = 4 * NUM_ENVS * max(agent.rollout_steps, 5)
    agent = create_agent(name, *arguments, seed=3, num_timesteps=total)
    train(agent, collector_for(name, seed=3), total // NUM_ENVS // agent.rollout_steps)

    given = arguments_for(algorithm_class(name), name, OtherAgentConfig(NUM_ENVS, arguments))
    given.pop("normalise", None)
    if "action_noise" in given:
        given["action_noise"] = agent.algorithm.action_noise
    theirs = algorithm_class(name)(
        env=to_sb3(make_vector(env_for(name), NUM_ENVS)), seed=3, **given
    )
    # The library would seed environment i with 3 + i, at its first reset.
    theirs.env._seeds = environment_seeds(3, NUM_ENVS)
    theirs.learn(total, **({"use_masking": False} if name == "sb3:MaskablePPO" else {}))

    assert theirs.num_timesteps == agent.algorithm.num_timesteps == total
    assert theirs._n_updates == agent.algorithm._n_updates > 0
    assert_same(weights_of(theirs), weights_of(agent.algorithm))


@pytest.mark.parametrize("name", EVERY)
def test_library_agent_learns_same_weights_as_in_library_loop(name):
    assert_learns_as_in_library_loop(name)


@pytest.mark.parametrize("name", ["sb3:PPO", "sb3:SAC"])
def test_state_dependent_exploration_is_resampled_as_in_library_loop(name):
    train_freq = ["train_freq=4"] * (name in OFF_POLICY)
    assert_learns_as_in_library_loop(name, "use_sde=True", "sde_sample_freq=2", *train_freq)


class TinyImages(gym.Env):
    """Images of 7x5 pixels with 3 channels, the last axis, as in MiniGrid."""

    observation_space = gym.spaces.Box(0, 255, (7, 5, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)


def test_acting_and_prediction_read_pixels_of_small_image_in_same_order():
    agent = create_agent("sb3:PPO", venv=SyncVectorEnv([TinyImages] * NUM_ENVS))
    observations = np.random.default_rng(0).integers(0, 256, (NUM_ENVS, 7, 5, 3), np.uint8)
    inputs = agent._tensor(agent.normalise(observations))
    most_likely = agent.algorithm.policy.get_distribution(inputs).mode()
    np.testing.assert_array_equal(
        agent.predict(observations, deterministic=True), most_likely.numpy()
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("sb3:PPO", ["batch_size=32"]), ("sb3:DQN", ["buffer_size=100", "learning_starts=0"])],
)
def test_images_are_learned_by_convolutions(name, arguments):
    venv = make_vector("MovingDot-v0", NUM_ENVS)
    agent = create_agent(name, *arguments, venv=venv)
    before = weights_of(agent.algorithm)
    rollout = Collector(venv, seed=0).collect(agent.act, max(agent.rollout_steps, 16))
    agent.learn(rollout, rollout.rewards)
    after = weights_of(agent.algorithm)
    first = next(each for each in before if each.endswith("features_extractor.cnn.0.weight"))
    assert before[first].shape[1:] == (4, 8, 8)
    assert (before[first] != after[first]).any()


class UnevenBounds(gym.Env):
    """Action bounds that the scaling of Stable-Baselines3 and float32 exceed by rounding."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Box(np.array([-2.3, 0.41]), np.array([1.37, 3.63]), dtype=np.float64)


@pytest.mark.parametrize("squashed", [False, True])
def test_largest_actions_are_contained_in_space(squashed):
    space = UnevenBounds.action_space
    assert isinstance(space, gym.spaces.Box)
    agent = create_agent(
        "sb3:SAC" if squashed else "sb3:PPO", venv=SyncVectorEnv([UnevenBounds] * 2)
    )
    bounds = np.array([space.low, space.high])
    unscaled = agent.algorithm.policy.unscale_action(np.array([[-1], [1]], np.float32))
    actions = agent.to_environment(unscaled if squashed else bounds)
    assert all(space.contains(action) for action in actions)
    np.testing.assert_allclose(actions, bounds, rtol=1e-6)


def test_truncation_bootstraps_and_termination_does_not():
    def advantages(ending):
        agent = create_agent("sb3:PPO", "n_steps=4", "batch_size=8", "normalise=False", num_envs=2)
        rollout = Collector(make_vector("Pendulum-v1", 2), seed=0).collect(agent.act, 4)
        ended = np.zeros((4, 2), bool)
        ended[1, 0] = True
        rollout = dataclasses.replace(rollout, **{ending: ended})
        value = agent._values(rollout.next_observations[1])[0]
        agent.learn(rollout, np.ones((4, 2)))
        buffer = agent.algorithm.rollout_buffer
        returns = buffer.returns.reshape(2, 4).T  # the library has flattened both axes
        return float(value), float(returns[1, 0])

    value, first_return = advantages("truncated")
    assert first_return == pytest.approx(1 + 0.99 * value, abs=1e-5)
    _, first_return = advantages("terminated")
    assert first_return == pytest.approx(1.0, abs=1e-5)


def test_replay_buffer_separates_truncation_from_termination():
    agent = create_agent("sb3:SAC", *OFF_POLICY["sb3:SAC"], "train_freq=3", num_envs=2)
    rollout = Collector(make_vector("Pendulum-v1", 2), seed=0).collect(agent.act, 3)
    truncated, terminated = np.zeros((3, 2), bool), np.zeros((3, 2), bool)
    truncated[1, 0] = terminated[2, 1] = True
    agent.learn(
        dataclasses.replace(rollout, truncated=truncated, terminated=terminated), rollout.rewards
    )
    buffer = agent.algorithm.replay_buffer
    np.testing.assert_array_equal(buffer.dones[:3], truncated | terminated)
    np.testing.assert_array_equal(buffer.timeouts[:3], truncated)
    np.testing.assert_array_equal(buffer.next_observations[:3], rollout.next_observations)


# --- rewards ---


@pytest.mark.parametrize("name", ["sb3:PPO", pytest.param("sb3:DQN", marks=pytest.mark.slow)])
def test_library_agent_learns_from_given_rewards(name):
    arguments = {
        "sb3:PPO": ("n_steps=32", "batch_size=64", "learning_rate=3e-3", "gamma=0.0"),
        "sb3:DQN": (
            *("learning_starts=32", "learning_rate=1e-2", "gamma=0.0", "exploration_fraction=0.3"),
            "target_update_interval=8",
        ),
    }[name]
    agent = create_agent(name, *arguments, num_timesteps=1_600, env_id="CartPole-v1")
    collector = Collector(make_vector("CartPole-v1", NUM_ENVS), seed=0)
    right_fractions = []
    for _ in range(1_600 // NUM_ENVS // agent.rollout_steps):
        rollout = collector.collect(agent.act, agent.rollout_steps)
        agent.learn(rollout, (rollout.actions == 1).astype(np.float32))
        right_fractions.append((rollout.actions == 1).mean())
    assert np.mean(right_fractions[-len(right_fractions) // 6 :]) > 0.8


def test_relabel_replaces_buffer_rewards():
    agent = create_agent("sb3:SAC", *OFF_POLICY["sb3:SAC"])
    train(agent, collector_for("sb3:SAC"), 5)
    buffer, calls = agent.algorithm.replay_buffer, []

    def reward_fn(observations, actions):
        calls.append((observations, actions))
        return 100 * actions[..., 0] + observations[..., 2]

    agent.relabel_buffer(reward_fn)
    ((observations, actions),) = calls
    assert observations.shape == (5, NUM_ENVS, 3)
    np.testing.assert_allclose(actions, 2 * buffer.actions[:5])  # torque: -2..2
    expected = 200 * buffer.actions[:5, :, 0] + buffer.observations[:5, :, 2]
    np.testing.assert_allclose(buffer.rewards[:5], expected, rtol=1e-6)
    assert not buffer.rewards[5:].any()


@pytest.mark.parametrize("name", ["sb3:PPO", "sb3:SAC"])
def test_rewards_of_reset_steps_are_ignored(name):
    def learned(reset_reward):
        arguments = (ON_POLICY | OFF_POLICY)[name]
        makers = [lambda: gym.make("Pendulum-v1", max_episode_steps=3)] * NUM_ENVS
        venv = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP)
        agent = create_agent(name, *arguments)
        collector, num_resets = Collector(venv, seed=0), 0
        for _ in range(rollouts_of(name)):
            rollout = collector.collect(agent.act, agent.rollout_steps)
            num_resets += (~rollout.is_valid).sum()
            agent.learn(rollout, np.where(rollout.is_valid, rollout.rewards, reset_reward))
        assert num_resets > 0
        return agent

    one, other = learned(0.0), learned(1000.0)
    assert_same(weights_of(one.algorithm), weights_of(other.algorithm))
    if name == "sb3:SAC":
        assert abs(one.algorithm.replay_buffer.rewards).max() < 20
        assert one.algorithm.num_timesteps < 8 * NUM_ENVS


# --- saving and restoring ---


def assert_continues_exactly(name, arguments):
    agent = create_agent(name, *arguments)
    collector = collector_for(name)
    train(agent, collector, rollouts_of(name))
    other, other_collector = create_agent(name, *arguments, seed=2), collector_for(name, seed=1)
    train(other, other_collector, 1)
    saved = {key: array.copy() for key, array in agent.state().items()}
    other.load_state(saved)
    other_collector.load_state(collector.state())
    train(agent, collector, 3)
    np.random.seed(7)
    torch.manual_seed(7)
    train(other, other_collector, 3)
    assert_same(agent.state(), other.state())
    weights = [key for key in saved if key.startswith("weights/policy")]
    assert any(not np.array_equal(saved[key], agent.state()[key]) for key in weights)


@pytest.mark.parametrize("name", EVERY)
def test_restored_library_agent_continues_exactly(name):
    assert_continues_exactly(name, (ON_POLICY | OFF_POLICY)[name])


@pytest.mark.sbx
@pytest.mark.parametrize("name", WITH_JAX)
def test_restored_sbx_agent_continues_exactly(name):
    assert_continues_exactly(name, WITH_JAX[name])


@pytest.mark.parametrize("name", ["sb3:PPO", "sb3:SAC"])
def test_warm_start_copies_policy(name):
    arguments = (ON_POLICY | OFF_POLICY)[name]
    first = train(create_agent(name, *arguments), collector_for(name), rollouts_of(name))
    second = create_agent(name, *arguments, num_envs=2, seed=5)
    second.warm_start_from(first.state())
    observations = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        first.predict(observations, deterministic=True),
        second.predict(observations, deterministic=True),
    )
    assert second.algorithm.num_timesteps == 0
    assert not second.algorithm.policy.optimizer.state if name == "sb3:PPO" else True


def test_warm_started_off_policy_agent_skips_random_actions():
    arguments = ("sb3:TD3", "learning_starts=100", SMALL)
    trained, agent, resumed = (create_agent(*arguments, seed=seed) for seed in (0, 1, 2))
    agent.warm_start_from(trained.state())
    resumed.load_state(agent.state())
    observations = np.random.default_rng(0).normal(size=(NUM_ENVS, 3)).astype(np.float32)
    expected = trained.predict(observations, deterministic=True)
    for each in (agent, resumed):
        np.testing.assert_allclose(each.act(observations), expected, rtol=1e-5)


@pytest.mark.parametrize("was_normalised", [True, False])
def test_warm_start_under_other_normalisation_is_refused(was_normalised):
    own = ON_POLICY["sb3:PPO"]
    trained = create_agent("sb3:PPO", *own, f"normalise={was_normalised}")
    state = train(trained, collector_for("sb3:PPO"), 1).state()
    other = create_agent("sb3:PPO", *own, f"normalise={not was_normalised}")
    with pytest.raises(BadConfig, match=f"normalise={was_normalised}"):
        other.warm_start_from(state)


@pytest.mark.parametrize("name", ["sb3:PPO", "sb3:SAC"])
def test_reinitialise_keeps_buffer_and_observation_statistics(name):
    agent = train(
        create_agent(name, *(ON_POLICY | OFF_POLICY)[name]), collector_for(name), rollouts_of(name)
    )
    before = agent.state()
    agent.reinitialise()
    after = agent.state()
    for key, array in before.items():
        if key.startswith(("observations/", "returns/", "replay/", "counters/")):
            np.testing.assert_array_equal(array, after[key], err_msg=key)
    changed = [
        key
        for key, array in before.items()
        if key not in after or not np.array_equal(array, after[key])
    ]
    assert any(key.startswith("weights/policy/") for key in changed)
    assert not any(key.startswith("weights/policy.optimizer/state") for key in after)
    assert train(agent, collector_for(name), 2).algorithm._n_updates > 0


# --- action masks and the start of discrete spaces ---


def masked():
    return masked_vector(AutoresetMode.SAME_STEP)


def test_maskable_ppo_never_takes_masked_actions():
    agent = create_agent(
        "sb3:MaskablePPO", *ON_POLICY["sb3:MaskablePPO"], venv=masked(), num_envs=2
    )
    collector = Collector(masked(), seed=0)
    rollout = collector.collect(agent.act, 16)
    assert np.isfinite(list(agent.learn(rollout, rollout.rewards).values())).all()
    collector.collect(partial(agent.predict, deterministic=True), 4)


def test_agent_without_mask_support_is_refused_with_alternative():
    agent = create_agent("sb3:DQN", *OFF_POLICY["sb3:DQN"], venv=masked(), num_envs=2)
    with pytest.raises(BadConfig, match="MaskablePPO"):
        Collector(masked(), seed=0).collect(agent.act, 1)


# --- validation ---


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("sb3:PPOO", (), "sb3:PPO"),
        ("sb3:dqn", (), "sb3:DQN"),
        ("sb3:ARS", (), "sb3:ARS"),
        ("sb3:PPO", ("n_step=5",), "n_steps"),
        ("sb3:PPO", ("seed=5",), "seed"),
        ("sb3:SAC", ("normalise=True",), "normalise"),
        ("sb3:PPO", ("learning_rate=lin_x",), "learning_rate"),
        ("sb3:PPO", ("n_steps",), "n_steps"),
    ],
)
def test_unknown_name_or_argument_is_refused_before_agent_is_created(name, arguments, message):
    with pytest.raises((UnknownName, BadConfig), match=message):
        check_agent(config_of(name, *arguments))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("sb3:DQN", (), "sb3:DQN"),
        ("sb3:SAC", ("learning_rate=fast",), "sb3:SAC"),
        ("sb3:SAC", ("train_freq=(1, 'episode')",), "train_freq"),
        ("sb3:SAC", ("train_freq=0",), "rollout_steps = 0"),
        ("sb3:A2C", ("n_steps=0",), "rollout_steps = 0"),
        ("sb3:TD3", ("policy=NoPolicy",), "NoPolicy"),
    ],
)
def test_error_of_library_is_passed_on(name, arguments, message):
    with pytest.raises(BadConfig, match=message):
        create_agent(name, *arguments, env_id="Pendulum-v1", num_envs=1)


# --- defaults ---


def test_library_defaults_are_adjusted_to_number_of_environments():
    def steps(name, num_envs, *arguments):
        settings = OtherAgentConfig(num_envs, arguments)
        defaults = arguments_for(algorithm_class(name), name, settings)
        return defaults.get("n_steps") if name in ON_POLICY else defaults["gradient_steps"]

    assert steps("sb3:PPO", 8) == 256  # 2048 in all
    assert steps("sb3:A2C", 8) == 5
    assert steps("sb3:PPO", 8, "n_steps=64") == 64
    assert steps("sb3:SAC", 8) == 8  # 1 for each step
    assert steps("sb3:SAC", 8, "gradient_steps=2") == 2
    assert steps("sb3:SAC", 8, "gradient_steps=-1") == -1


def test_lin_learning_rate_anneals_linearly():
    agent = create_agent(
        "sb3:PPO", *ON_POLICY["sb3:PPO"], "learning_rate=lin_1e-3", num_timesteps=128
    )
    train(agent, collector_for("sb3:PPO"), 1)
    (group,) = agent.algorithm.policy.optimizer.param_groups
    assert group["lr"] == pytest.approx(0.5e-3)
    agent.extend(512)
    train(agent, collector_for("sb3:PPO"), 1)
    assert group["lr"] == pytest.approx(0.75e-3)


@pytest.mark.sbx
def test_sbx_agent_learns_from_labels():
    config = config_of(
        "sbx:SAC",
        *WITH_JAX["sbx:SAC"],
        env_id="ShortReacher-v1",
        predictor="synth",
        n_labels=12,
        num_timesteps=320,
        clip_length=1.0,
        pretrain_iters=20,
    )
    teach(config, QUIET)
    assert Experiment.find(config.name).metrics()[-1]["labels_answered"] == 12
