import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from rl_teacher import PreferenceVectorWrapper, PreferenceWrapper, to_sb3
from rl_teacher.common.errors import BadInput
from rl_teacher.envs.registry import make_vector
from rl_teacher.wrappers.sb3 import RelabelReplay, relabel
from tests.wrappers.environments import QUICK, Counter, Parts

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


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_agent_learns_from_labels_through_vec_env(mode):
    wrapper = PreferenceVectorWrapper(vector(mode), **QUICK)
    wrapper.pretrain()
    venv = VecMonitor(to_sb3(wrapper))
    agent = A2C("MlpPolicy", venv, seed=0, learning_rate=3e-3, device="cpu")
    agent.learn(6_000)
    observations = np.array([[0, 1], [0, 2]], np.float32)
    actions, _ = agent.predict(observations, deterministic=True)
    assert (actions == 2).all()
    venv.close()


def test_batch_environment_is_converted():
    venv = to_sb3(make_vector("ShortReacher-v1", 4))
    agent = PPO("MlpPolicy", venv, n_steps=32, batch_size=64, seed=0, device="cpu")
    agent.learn(256)
    assert agent.num_timesteps == 256
    venv.close()


@pytest.mark.parametrize(("agent", "env_id"), [(DQN, "CartPole-v1"), (SAC, "Pendulum-v1")])
def test_relabelled_rewards_equal_current_predictions(agent, env_id):
    env = PreferenceWrapper(gym.make(env_id), **QUICK)
    env.pretrain()
    relabels = RelabelReplay(env, every_steps=50)
    trained = agent("MlpPolicy", env, seed=0, learning_starts=1_000, device="cpu", buffer_size=500)
    trained.learn(60)
    replay = trained.replay_buffer
    replay.rewards[:60] = 77
    relabel(trained, env)
    observations = replay.observations[:60, 0]
    actions = replay.actions[:60, 0]
    acted = actions[:, 0] if agent is DQN else 2 * actions  # torques from -2 to 2
    np.testing.assert_allclose(
        replay.rewards[:60, 0], env.predictor(observations, acted), atol=1e-5
    )
    replay.rewards[:60] = 77
    trained.learn(51, callback=relabels, reset_num_timesteps=True)
    assert (replay.rewards[:60] != 77).all()
    env.close()


@pytest.mark.parametrize(
    ("agent", "env_id"),
    [(DQN, "CartPole-v1"), pytest.param(SAC, "Pendulum-v1", marks=pytest.mark.slow)],
)
def test_agent_is_reset_once_and_keeps_replay_buffer(agent, env_id):
    env = PreferenceWrapper(gym.make(env_id), **QUICK)
    env.pretrain()
    trained = agent("MlpPolicy", env, seed=0, learning_starts=10, device="cpu")
    trained.learn(40)
    learned, labels = weights_of(trained), env.session.num_labels
    run_callback(trained, RelabelReplay(env, 1, agent_reset=labels + 1))
    assert_equal(weights_of(trained), learned)
    callback = RelabelReplay(env, 1, agent_reset=labels)
    run_callback(trained, callback)
    initial = weights_of(agent("MlpPolicy", env, seed=0, device="cpu"))
    assert_equal(weights_of(trained), initial)
    assert any((initial[name] != learned[name]).any() for name in initial)
    assert trained.replay_buffer.size() == 40
    trained.learn(10, callback=callback, reset_num_timesteps=False)
    assert any((initial[name] != each).any() for name, each in weights_of(trained).items())
    env.close()


def run_callback(agent, callback):
    """Run a callback as after one step."""
    callback.init_callback(agent)
    callback.on_step()


def weights_of(agent):
    return {name: each.numpy().copy() for name, each in agent.policy.state_dict().items()}


def test_agent_without_replay_buffer_is_refused():
    env = PreferenceWrapper(gym.make("CartPole-v1"), **QUICK)
    agent = A2C("MlpPolicy", env, device="cpu")
    with pytest.raises(BadInput, match="A2C has no replay buffer"):
        agent.learn(10, callback=RelabelReplay(env))
    env.close()


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
