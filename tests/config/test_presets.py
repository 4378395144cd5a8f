import pytest

from rl_teacher import cli
from rl_teacher.config.experiment import TeachConfig


@pytest.fixture
def told(monkeypatch):
    """What `rl-teacher teach` is told to do by some arguments."""

    def told(*arguments: str) -> TeachConfig:
        begun = []
        monkeypatch.setattr(cli, "run_experiment", lambda config, *_: begun.append(config) or 0)
        assert cli.main(["teach", "-n", "x", *arguments]) == 0
        (config,) = begun
        return config

    return told


def test_an_environment_of_vectors_has_the_defaults(told):
    assert told("-e", "ShortHopper-v1", "-p", "rl") == TeachConfig(
        "ShortHopper-v1", name="x", predictor="rl"
    )


def test_an_environment_of_pictures_has_the_settings_for_pictures(told):
    config = told("-e", "MovingDot-v0", "-p", "rl")
    assert (config.ppo.num_envs, config.ppo.rollout_steps, config.ppo.clip_range) == (16, 128, 0.1)
    assert config == told("-e", "MovingDot-v0", "-p", "rl", "--preset", "pictures")
    assert config != told("-e", "MovingDot-v0", "-p", "rl", "--preset", "vectors")


@pytest.mark.parametrize("env_id", ["MovingDot-v0", "Pong-v0"])
def test_with_labels_an_agent_that_sees_is_not_told_of_ends_and_looks_ahead_less_far(told, env_id):
    taught = told("-e", env_id, "-p", "synth", "-l", "300")
    assert (taught.hide_episode_ends, taught.clip_reward) == (True, 0.0)
    assert {taught.ppo.gamma, taught.a2c.gamma, taught.ga3c.gamma} == {0.95}
    assert taught.ppo.entropy_coef == 0.03
    trained = told("-e", env_id, "-p", "rl")
    assert (trained.hide_episode_ends, trained.clip_reward) == (False, 1.0)
    assert {trained.ppo.gamma, trained.a2c.gamma, trained.ga3c.gamma} == {0.99}
    assert trained.ppo.entropy_coef == 0.01


def test_what_is_given_goes_before_the_preset(told):
    config = told("-e", "MovingDot-v0", "-p", "synth", "-l", "300", "--ppo.gamma", "0.9")
    assert (config.ppo.gamma, config.ppo.num_envs) == (0.9, 16)


def test_the_paper_s_settings_for_atari_are_the_paper_s(told):
    # Christiano et al. 2017, A.2: clips of 25 steps at 15 a second, 500 comparisons first of 5,500,
    # the newest 3,000 learned from, one spread of 0.05, and a rate of 5e6 / (T + 5e6).
    config = told("-e", "Pong-v0", "-p", "synth", "--preset", "paper-atari")
    assert (config.agent, config.a2c.image_encoder, config.a2c.gamma) == ("a2c", "paper", 0.99)
    assert round(config.clip_length * 15) == 25
    assert (config.n_labels, config.pretrain_labels) == (5_500, 500)
    assert (config.schedule, config.hyperbolic_steps) == ("hyperbolic", 5_000_000)
    assert (config.reward.label_buffer, config.reward.reward_std) == (3_000, 0.05)
    assert config.reward.ignore_actions
    assert config.pretrain_iters * config.reward.batch_size == 200 * 500
