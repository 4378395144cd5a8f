import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from stable_baselines3 import A2C, DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor

from rl_teacher import PreferenceVectorWrapper, PreferenceWrapper, to_sb3
from rl_teacher.common.errors import BadInput
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.envs.registry import make_vector
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.wrappers.sb3 import RelabelReplay
from tests.wrappers.environments import BOX, QUICK, Continuous, Counter, Parts, Pictures

TOLERANCE = 1e-5
"""Difference of rewards that rounding explains."""
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def vector(mode, kind=Counter, **others):
    makers = [lambda length=length: kind(length=length, **others) for length in (3, 4)]
    return SyncVectorEnv(makers, autoreset_mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [Counter, Parts])
@pytest.mark.parametrize("terminates", [True, False])
def test_vec_env_behaves_as_dummy_vec_env(mode, kind, terminates):
    theirs = DummyVecEnv([lambda n=n: kind(n, terminates) for n in (3, 4)])
    ours = to_sb3(vector(mode, kind, terminates=terminates))
    for venv in (theirs, ours):
        venv.seed(0)
    assert_equal(theirs.reset(), ours.reset())
    for t in range(12):
        actions = np.array([t % 3, (t + 1) % 3])
        outcomes = [venv.step(actions) for venv in (theirs, ours)]
        for their, our in zip(outcomes[0][:3], outcomes[1][:3], strict=True):
            assert_equal(their, our)
        for their, our in zip(outcomes[0][3], outcomes[1][3], strict=True):
            assert their.keys() == our.keys()
            assert their["TimeLimit.truncated"] == our["TimeLimit.truncated"]
            if "terminal_observation" in their:
                assert_equal(their["terminal_observation"], our["terminal_observation"])
    ours.close()


def assert_equal(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    else:
        np.testing.assert_array_equal(one, other)


class Steady(Counter):
    """Environment whose observations stay in the range that the first labels cover."""

    def seen(self):
        return np.array([0, self.age], np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_agent_learns_from_labels_through_vec_env(mode):
    labels = {"pretrain_labels": 60, "n_labels": 60}
    wrapper = PreferenceVectorWrapper(vector(mode, Steady), **{**QUICK, **labels})
    wrapper.pretrain()
    venv = VecMonitor(to_sb3(wrapper))
    agent = A2C("MlpPolicy", venv, seed=0, learning_rate=3e-3, device="cpu")
    agent.learn(6_000)
    observations = np.array([[0, age] for age in range(4)], np.float32)
    policy = agent.policy.get_distribution(agent.policy.obs_to_tensor(observations)[0])
    # At random, a third of the actions are the best one.
    assert (policy.log_prob(torch.full((4,), 2)).exp() > 0.9).all()
    venv.close()


def test_vector_without_reset_mask_is_refused():
    venv = to_sb3(gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point"))
    venv.seed(0)
    venv.reset()
    with pytest.raises(BadInput, match="does not support reset_mask"):
        # The first pole falls within 11 steps.
        _ = [venv.step(np.array([0, t % 2])) for t in range(20)]


@pytest.mark.slow
def test_batch_environment_is_converted():
    venv = to_sb3(make_vector("ShortReacher-v1", 4))
    agent = PPO("MlpPolicy", venv, n_steps=32, batch_size=64, seed=0, device="cpu")
    agent.learn(256)
    assert agent.num_timesteps == 256
    venv.close()


def frozen(env):
    """Wrap an environment with a frozen predictor of random weights."""
    space = InputSpace.from_spaces(env.observation_space, env.action_space)
    return PreferenceWrapper(env, predictor_path=RewardPredictor(space, PredictorConfig()))


def frozen_flat(env):
    """Wrap an environment of several observations with a frozen predictor of random weights."""
    space = InputSpace.from_spaces(
        gym.spaces.flatten_space(env.observation_space), env.action_space
    )
    return PreferenceWrapper(env, predictor_path=RewardPredictor(space, PredictorConfig()))


def trained(agent, env, num_steps, callback, **settings):
    """Return an agent that has filled its replay buffer without gradient steps."""
    settings = {"buffer_size": 500, "learning_starts": 10_000, **settings}
    model = agent("MlpPolicy", env, seed=0, device="cpu", **settings)
    return model.learn(num_steps, callback=callback)


def assert_relabelling_restores(callback, model):
    rewards = model.replay_buffer.rewards[: model.replay_buffer.size()]
    original = rewards.copy()
    assert original.std() > 100 * TOLERANCE
    for _ in range(2):
        callback.relabel()
        np.testing.assert_allclose(rewards, original, atol=TOLERANCE)
        rewards[:] = 77


@pytest.mark.parametrize(("agent", "env_id"), [(DQN, "CartPole-v1"), (SAC, "Pendulum-v1")])
def test_relabelled_rewards_equal_current_predictions(agent, env_id):
    env = PreferenceWrapper(gym.make(env_id), **QUICK)
    env.pretrain()
    relabels = RelabelReplay(env, every_steps=50)
    model = trained(agent, env, 60, relabels)
    replay = model.replay_buffer
    relabels.relabel()
    observations = replay.observations[:60, 0]
    actions = replay.actions[:60, 0]
    acted = actions[:, 0] if agent is DQN else 2 * actions  # torques from -2 to 2
    np.testing.assert_allclose(
        replay.rewards[:60, 0], env.predictor(observations, acted), atol=1e-5
    )
    replay.rewards[:60] = 77
    model.learn(51, callback=relabels, reset_num_timesteps=True)
    assert (replay.rewards[:60] != 77).all()
    env.close()


class Stacked(gym.wrappers.FrameStackObservation):
    """Stack of two frames, flattened."""

    def __init__(self, env):
        super().__init__(env, 2)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation.reshape(-1), reward, terminated, truncated, info

    def reset(self, **keywords):
        observation, info = super().reset(**keywords)
        return observation.reshape(-1), info


OUTSIDE = {
    "image transpose": (DQN, Pictures, lambda env: env),
    "TransformObservation": (
        DQN,
        Counter,
        lambda env: gym.wrappers.TransformObservation(env, lambda x: -x, env.observation_space),
    ),
    "RescaleAction": (
        SAC,
        Continuous,
        lambda env: gym.wrappers.RescaleAction(env, np.float32(-5), np.float32(3)),
    ),
    "frame stack": (DQN, Counter, Stacked),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_relabelling_uses_inputs_of_wrapper_under_outer_changes(name):
    agent, kind, outside = OUTSIDE[name]
    env = frozen(kind())
    callback = RelabelReplay(env)
    # The buffer is smaller than the number of steps, so that its first rows are replaced.
    model = trained(agent, outside(env), 70, callback, buffer_size=50)
    assert_relabelling_restores(callback, model)
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_vector_rewards_are_relabelled_in_all_autoreset_modes(mode):
    venv = vector(mode)
    space = InputSpace.from_spaces(venv.single_observation_space, venv.single_action_space)
    predictor = RewardPredictor(space, PredictorConfig())
    wrapper = PreferenceVectorWrapper(venv, predictor_path=predictor)
    callback = RelabelReplay(wrapper)
    model = trained(DQN, to_sb3(wrapper), 60, callback)
    assert_relabelling_restores(callback, model)
    wrapper.close()


class Repeat(gym.Wrapper):
    """Wrapper that repeats each action once."""

    def step(self, action):
        super().step(action)
        return super().step(action)


@pytest.mark.parametrize(
    ("outside", "message"),
    [
        (Repeat, "took 2 steps during one step of the agent"),
        (lambda env: gym.wrappers.TransformReward(env, lambda r: 2 * float(r)), "changes rewards"),
    ],
)
def test_relabelling_under_outer_wrapper_of_steps_or_rewards_is_refused(outside, message):
    env = frozen(Continuous(length=9))
    with pytest.raises(BadInput, match=message):
        trained(SAC, outside(env), 20, RelabelReplay(env, every_steps=5))
    env.close()


def test_relabelling_of_unrecorded_transitions_is_refused():
    env = frozen(Counter())
    model = trained(DQN, env, 20, RelabelReplay(env))
    with pytest.raises(BadInput, match="20 transitions that RelabelReplay did not record"):
        model.learn(20, callback=RelabelReplay(env))
    env.close()


class Goals(Continuous):
    """Goal-conditioned environment whose true reward is computed from its observations alone."""

    observation_space = gym.spaces.Dict(  # pyright: ignore[reportAssignmentType]
        dict.fromkeys(("observation", "achieved_goal", "desired_goal"), BOX)
    )
    reward_threshold = 5.0

    def seen(self):
        place = np.array([0, self.age], np.float32)
        return {"observation": place, "achieved_goal": place, "desired_goal": 0 * place + 1}

    def compute_reward(self, achieved, desired, info):
        return -np.abs(achieved - desired).sum(-1)


def test_hindsight_relabelling_is_refused_since_it_computes_true_rewards():
    env = frozen_flat(Goals())
    settings = {"replay_buffer_class": HerReplayBuffer, "learning_starts": 20, "device": "cpu"}
    with pytest.raises(BadInput, match=r"compute_reward .* is hidden.*leave out replay_buffer_cl"):
        SAC("MultiInputPolicy", env, **settings).learn(50)
    with pytest.raises(BadInput, match="HerReplayBuffer"):
        SAC("MultiInputPolicy", env, **settings).learn(50, callback=RelabelReplay(env))
    env.close()


@pytest.mark.parametrize(
    "around",
    [
        lambda: Monitor(frozen_flat(Goals())),
        lambda: DummyVecEnv([lambda: gym.wrappers.TimeLimit(frozen_flat(Goals()), 9)]),
        lambda: to_sb3(PreferenceVectorWrapper(SyncVectorEnv([Goals] * 2), collect_only=True)),
        lambda: VecMonitor(
            to_sb3(PreferenceVectorWrapper(SyncVectorEnv([Goals] * 2), collect_only=True))
        ),
    ],
)
def test_no_attribute_leads_to_the_true_reward(around):
    env = around()
    read = getattr(env, "get_attr", getattr(env, "get_wrapper_attr", None))
    assert read is not None
    assert read("metadata")
    for name in ("compute_reward", "reward_threshold"):
        with pytest.raises(BadInput, match=f"{name} of the wrapped environment is hidden"):
            read(name)
    if isinstance(env, VecEnv):
        with pytest.raises(BadInput, match="is hidden"):
            env.env_method("compute_reward", 0, 0, {})
        with pytest.raises(AttributeError):
            env.get_attr("nothing_of_this_name")
    env.close()


def test_replay_of_several_observations_is_relabelled():
    env = frozen_flat(Goals())
    callback = RelabelReplay(env)
    model = SAC("MultiInputPolicy", env, seed=0, device="cpu", buffer_size=500)
    model.learn(60, callback=callback)
    assert_relabelling_restores(callback, model)
    env.close()


class NeverOver(gym.Wrapper):
    """Wrapper that hides the ends of episodes, so that the agent steps through resets."""

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


def test_relabelling_leaves_the_reward_of_steps_that_only_reset_at_zero():
    env = frozen(gym.wrappers.Autoreset(Counter()))
    callback = RelabelReplay(env)
    model = trained(DQN, NeverOver(env), 60, callback)
    callback.relabel()
    # Episodes have 7 steps, so that the 8th only resets.
    assert model.replay_buffer is not None
    rewards = model.replay_buffer.rewards[:60, 0]
    assert np.flatnonzero(rewards == 0).tolist() == list(range(7, 60, 8))
    env.close()


def test_one_callback_relabels_across_calls_of_learn():
    env = frozen(Counter())
    callback = RelabelReplay(env)
    model = trained(DQN, env, 20, callback)
    model.learn(20, callback=callback, reset_num_timesteps=False)
    assert model.replay_buffer is not None
    assert model.replay_buffer.size() == 40
    assert_relabelling_restores(callback, model)
    env.close()


def test_relabelling_several_single_wrappers_is_refused():
    env = frozen(Counter())
    with pytest.raises(BadInput, match=r"has 2 environments.*PreferenceVectorWrapper"):
        trained(DQN, DummyVecEnv([lambda: env, lambda: frozen(Counter())]), 20, RelabelReplay(env))
    env.close()


@pytest.mark.parametrize(
    ("agent", "env_id"),
    [(DQN, "CartPole-v1"), pytest.param(SAC, "Pendulum-v1", marks=pytest.mark.slow)],
)
def test_agent_is_reset_once_and_keeps_replay_buffer(agent, env_id):
    env = PreferenceWrapper(gym.make(env_id), **QUICK)
    env.pretrain()
    labels = env.session.num_labels
    callback = RelabelReplay(env, 1, agent_reset=labels + 1)
    model = trained(agent, env, 40, callback, learning_starts=10)
    learned = weights_of(model)
    initial = weights_of(agent("MlpPolicy", env, seed=0, device="cpu"))
    assert any((initial[name] != learned[name]).any() for name in initial)
    callback.agent_reset, model.learning_starts = labels, 10_000
    model.learn(4, callback=callback, reset_num_timesteps=False)
    assert_equal(weights_of(model), initial)
    assert model.replay_buffer.size() == 44
    model.learning_starts = 10
    model.learn(8, callback=callback, reset_num_timesteps=False)
    assert any((initial[name] != each).any() for name, each in weights_of(model).items())
    env.close()


def weights_of(agent):
    return {name: each.numpy().copy() for name, each in agent.policy.state_dict().items()}


def test_agent_without_replay_buffer_is_refused():
    env = PreferenceWrapper(gym.make("CartPole-v1"), **QUICK)
    agent = A2C("MlpPolicy", env, device="cpu")
    with pytest.raises(BadInput, match="A2C has no replay buffer"):
        agent.learn(10, callback=RelabelReplay(env))
    env.close()


class Reports(Counter):
    """Environment with infos in its last step and at each reset."""

    def reset(self, **keywords):
        return super().reset(**keywords)[0], {"start": self.episode}

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        is_over = terminated or truncated
        return observation, reward, terminated, truncated, {"is_success": True} if is_over else {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("records_inside", [True, False])
def test_infos_of_last_step_reach_agent_in_all_autoreset_modes(mode, records_inside):
    def make(length):
        env = Reports(length)
        return gym.wrappers.RecordEpisodeStatistics(env) if records_inside else env

    venv = SyncVectorEnv([lambda n=n: make(n) for n in (3, 4)], autoreset_mode=mode)
    if not records_inside and mode != AutoresetMode.DISABLED:
        venv = gym.wrappers.vector.RecordEpisodeStatistics(venv)
    wrapper = PreferenceVectorWrapper(venv, collect_only=True)
    adapted = to_sb3(wrapper)
    adapted.reset()
    infos = [adapted.step(np.array([1, 2]))[3] for _ in range(3)][-1]
    assert infos[0]["is_success"]
    assert infos[0]["true_reward"] == 1
    np.testing.assert_array_equal(infos[0]["terminal_observation"], [0, 3])
    assert adapted.reset_infos[0]["start"] == 1
    assert "is_success" not in adapted.reset_infos[0]
    assert "is_success" not in infos[1]
    if records_inside or mode != AutoresetMode.DISABLED:
        assert infos[0]["episode"]["r"] == pytest.approx(3)
        assert infos[0]["episode"]["l"] == 3
    agent = A2C("MlpPolicy", adapted, n_steps=8, device="cpu").learn(32)
    assert agent.ep_success_buffer
    wrapper.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_spec_is_that_of_each_environment(is_async):
    makers = [lambda: gym.make("CartPole-v1")] * 2
    venv = AsyncVectorEnv(makers, context="spawn") if is_async else SyncVectorEnv(makers)
    adapted = to_sb3(venv)
    assert [spec.id for spec in adapted.get_attr("spec")] == ["CartPole-v1"] * 2
    assert adapted.get_attr("render_mode", indices=[1]) == [None]
    adapted.close()


def test_attributes_and_methods_are_forwarded():
    venv = to_sb3(vector(AutoresetMode.SAME_STEP))
    assert venv.get_attr("length") == [3, 4]
    assert venv.get_attr("length", indices=1) == [4]
    assert venv.get_attr("num_envs") == [2, 2]
    assert not venv.has_attr("nothing_of_this_name")
    venv.set_attr("length", 9)
    assert venv.get_attr("length") == [9, 9]
    venv.reset()
    assert_equal(venv.env_method("seen"), [[0, 0], [0, 0]])
    assert venv.env_is_wrapped(gym.wrappers.TimeLimit) == [False, False]
    with pytest.raises(BadInput, match="all together"):
        venv.set_attr("length", 1, indices=[0])
    venv.close()
