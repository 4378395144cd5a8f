"""The workflows of drlhp's README, with one changed import and its misspelt lines corrected."""

import gymnasium as gym
import numpy as np
import pytest

from rl_teacher.common.errors import BadConfig
from rl_teacher.compat import HumanPreferencesEnvWrapper
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.datasets import load


@pytest.fixture(autouse=True)
def _small_predictor(monkeypatch):
    """Fit one small network, so that a fit takes a second."""
    monkeypatch.setattr(
        "rl_teacher.compat.PredictorConfig",
        lambda **changes: PredictorConfig(ensemble_size=1, hidden=(16,), **changes),
    )


def run(env, num_steps):
    """Take random steps, and return the predicted and the true rewards."""
    env.reset(seed=0)
    env.action_space.seed(0)
    rewards = []
    for _ in range(num_steps):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        rewards.append((reward, info["true_reward"]))
        if terminated or truncated:
            env.reset()
    return np.array(rewards)


def test_workflows_follow_each_other(tmp_path):
    log_dir = tmp_path / "my_log_dir"
    # Preferences only, which are saved.
    env = HumanPreferencesEnvWrapper(
        gym.make("Pendulum-v1"),
        synthetic_prefs=True,
        collect_prefs=True,
        train_reward=False,
        log_dir=log_dir,
        n_initial_prefs=12,
    )
    rewards = run(env, 1_500)
    assert np.array_equal(rewards[:, 0], rewards[:, 1])
    assert not env.using_reward_from_predictor
    assert env.last_true_reward == rewards[-1, 1]
    assert env.pref_db_size.value >= 12
    env.save_prefs()
    env.close()

    # A predictor from saved preferences.
    with pytest.warns(UserWarning, match="reward_predictor_ckpt_interval=5 has no effect"):
        env = HumanPreferencesEnvWrapper(
            gym.make("Pendulum-v1"),
            prefs_dir=log_dir,
            collect_prefs=False,
            train_reward=True,
            reward_predictor_ckpt_interval=5,
            log_dir=log_dir,
        )
    env.pretrain()
    assert env.using_reward_from_predictor
    env.save_reward_predictor()
    env.close()

    # The predictor alone, and switches between both rewards.
    env = HumanPreferencesEnvWrapper(
        gym.make("Pendulum-v1"),
        pretrained_reward_predictor_dir=log_dir / "reward_predictor_checkpoints/",
        collect_prefs=False,
        train_reward=False,
    )
    assert env.using_reward_from_predictor
    rewards = run(env, 20)
    assert not np.array_equal(rewards[:, 0], rewards[:, 1])
    env.switch_to_true_reward()
    rewards = run(env, 20)
    assert np.array_equal(rewards[:, 0], rewards[:, 1])
    env.switch_to_predicted_reward()
    assert env.using_reward_from_predictor
    env.close()


def test_preferences_that_were_read_are_saved_with_new_ones(tmp_path):
    """One folder serves as `prefs_dir` and as `log_dir`."""
    targets = []
    for n_initial_prefs, reads in [(5, False), (5, True), (8, True)]:
        env = HumanPreferencesEnvWrapper(
            gym.make("Pendulum-v1"),
            segment_length=10,
            train_reward=False,
            prefs_dir=tmp_path if reads else None,
            log_dir=tmp_path,
            n_initial_prefs=n_initial_prefs,
        )
        run(env, 600)
        env.close()
        assert env.session.is_closed
        targets.append([each.target for each in load(tmp_path / "prefs.zip")])
    first, unchanged, extended = targets
    assert first
    assert unchanged == first
    assert len(extended) > len(first)
    assert extended[: len(first)] == first


def test_first_example_asks_people():
    with pytest.warns(UserWarning, match="n_initial_training_steps=10 has no effect"):
        env = HumanPreferencesEnvWrapper(
            gym.make("Pendulum-v1", render_mode="rgb_array"),
            segment_length=100,
            synthetic_preferences=False,
            n_initial_training_steps=10,
        )
    assert env.session.learning is not None
    assert env.session.learning.session.experiment.spec.asks_a_person
    rewards = run(env, 50)
    assert np.array_equal(rewards[:, 0], rewards[:, 1])
    env.close()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"unknown": 1}, TypeError, "no argument 'unknown'"),
        ({"reward_predictor_network": print}, BadConfig, "TensorFlow function"),
        ({"collect_prefs": False, "train_reward": False}, BadConfig, "need a predictor"),
        ({"collect_prefs": False}, BadConfig, "Give their folder as prefs_dir"),
    ],
)
def test_unusable_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        HumanPreferencesEnvWrapper(gym.make("Pendulum-v1"), **arguments)


def test_pickled_preferences_are_refused(tmp_path):
    (tmp_path / "train.pkl.gz").touch()
    with pytest.raises(BadConfig, match="pickle"):
        HumanPreferencesEnvWrapper(gym.make("Pendulum-v1"), prefs_dir=tmp_path, collect_prefs=False)
