from dataclasses import replace

import pytest

from rl_teacher import settings_commands
from rl_teacher.config.experiment import TeachConfig


def parse_teach(*arguments: str) -> TeachConfig:
    """Parse arguments of `rl-teacher teach`."""
    return settings_commands.parse_teach(["-n", "x", *arguments])[0]


def test_vector_environment_uses_defaults():
    assert parse_teach("-e", "ShortHopper-v1", "-p", "rl") == TeachConfig(
        "ShortHopper-v1", name="x", predictor="rl"
    )


def test_image_environment_uses_preset_images():
    config = parse_teach("-e", "MovingDot-v0", "-p", "rl")
    assert (config.ppo.num_envs, config.ppo.rollout_steps, config.frame_size) == (16, 128, 42)
    assert config == parse_teach("-e", "MovingDot-v0", "-p", "rl", "--preset", "images")
    assert config != parse_teach("-e", "MovingDot-v0", "-p", "rl", "--preset", "vectors")


@pytest.mark.parametrize(("env_id", "gamma"), [("MovingDot-v0", 0.97), ("Pong-v0", 0.99)])
def test_images_with_labels_hide_episode_ends_and_see_less_far_except_in_atari(env_id, gamma):
    labelled = parse_teach("-e", env_id, "-p", "synth", "-l", "300")
    true_reward = parse_teach("-e", env_id, "-p", "rl")
    assert (labelled.hide_episode_ends, labelled.clip_reward) == (True, 0.0)
    assert (true_reward.hide_episode_ends, true_reward.clip_reward) == (False, 1.0)
    assert replace(labelled.ppo, gamma=0.99) == true_reward.ppo
    assert {labelled.ppo.gamma, labelled.a2c.gamma, labelled.ga3c.gamma} == {gamma}


def test_explicit_flag_overrides_preset():
    config = parse_teach("-e", "MovingDot-v0", "-p", "synth", "-l", "300", "--ppo.gamma", "0.9")
    assert (config.ppo.gamma, config.ppo.num_envs) == (0.9, 16)


def test_paper_atari_preset_matches_christiano_2017():
    # Christiano et al. 2017, A.2: clips of 25 steps at 15 Hz, 500 of 5,500 comparisons before
    # training, a buffer of 3,000 labels, rewards normalised to a standard deviation of 0.05, and
    # a label rate proportional to 5e6 / (T + 5e6).
    config = parse_teach("-e", "Pong-v0", "-p", "synth", "--preset", "paper-atari")
    assert (config.agent, config.a2c.image_encoder, config.a2c.gamma) == ("a2c", "paper", 0.99)
    assert round(config.clip_length * 15) == 25
    assert (config.n_labels, config.pretrain_labels) == (5_500, 500)
    assert (config.schedule, config.hyperbolic_steps) == ("hyperbolic", 5_000_000)
    assert (config.reward.label_buffer, config.reward.reward_std) == (3_000, 0.05)
    assert config.reward.ignore_actions
    assert config.pretrain_iters * config.reward.batch_size == 200 * 500


@pytest.mark.parametrize(
    "source", [("--predictor-path", "saved"), ("--labels", "saved"), ("-p", "rl")], ids=" ".join
)
def test_paper_atari_preset_asks_for_no_labels_where_nobody_can_be_asked(source):
    config = parse_teach("-e", "Pong-v0", *source, "--preset", "paper-atari")
    assert not config.asks
    # The page shows it as the number of labels that are wanted.
    assert config.n_labels is None
    assert config.reward.label_buffer == 3_000
