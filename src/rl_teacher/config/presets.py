"""Presets: defaults of `rl-teacher teach` for a kind of environment."""

from typing import Any, Literal

from rl_teacher.config.agents import PPOConfig

PresetName = Literal["vectors", "images", "atari", "paper-atari"]

LABELLED_DISCOUNT = 0.97
"""Discount factor for images with labels, except in Atari; its horizon is about that of a clip.

A predicted reward ranks actions better than it ranks states. Its small errors between states add up
over a long horizon: with 0.99, agents on MovingDot stay where the error is largest and do not
move to the middle. In Atari, rewards come long after the actions that earn them.
"""

LABEL_REQUESTS = ("n_labels", "pretrain_labels", "schedule", "hyperbolic_steps")
"""Settings that ask for labels, or say when."""


def preset(name: PresetName, *, has_labels: bool, has_teacher: bool = True) -> dict[str, Any]:
    """Return the settings that differ from the defaults, with sections as mappings.

    Args:
        name: `vectors` for MuJoCo and similar; `images` for images on a CPU, and `atari` for Atari;
            `paper-atari` for Atari as in Christiano et al. 2017 (A.2), on a GPU.
        has_labels: True if the reward comes from labels. Episode ends are then hidden from the
            agent, since they reveal something about the true reward; otherwise rewards are clipped.
        has_teacher: False if the run uses the true reward, or saved labels or a saved predictor
            alone.
    """
    if name == "vectors":
        return {}
    discount = LABELLED_DISCOUNT if has_labels and name == "images" else PPOConfig.gamma
    settings = _paper_atari() if name == "paper-atari" else _image_settings(discount)
    if not has_teacher:
        settings = {key: value for key, value in settings.items() if key not in LABEL_REQUESTS}
    return settings | ({"hide_episode_ends": True} if has_labels else {"clip_reward": 1.0})


def _image_settings(discount: float) -> dict[str, Any]:
    """Return settings that learn Pong from 300 labels in a quarter of an hour on one core.

    Updates are larger than those of Schulman et al. 2017, whose runs have 10 million steps.
    """
    return {
        "num_timesteps": 2_500_000,
        "ppo": {
            "num_envs": 16,
            "rollout_steps": 128,
            "hidden": (128, 128),
            "minibatch_size": 64,
            "num_epochs": 3,
            "learning_rate": 5e-4,
            "final_learning_rate": 1e-4,
            "gamma": discount,
            "gae_lambda": 0.95,
            "entropy_coef": 0.01,
        },
        "a2c": {"gamma": discount, "entropy_coef": 0.01},
        "ga3c": {"num_envs": 32, "gamma": discount, "entropy_coef": 0.01},
    }


def _paper_atari() -> dict[str, Any]:
    """Return the settings of Christiano et al. 2017, A.2.

    Clips have 25 steps at 15 Hz. The predictor is pretrained for 200 epochs on 500 comparisons;
    later fits use the latest 3,000 labels.
    """
    batch_size = 32
    return {
        "agent": "a2c",
        "frame_size": 84,
        "num_timesteps": 50_000_000,
        "n_labels": 5_500,
        "pretrain_labels": 500,
        "pretrain_iters": 200 * 500 // batch_size,
        "clip_length": 25 / 15,
        "schedule": "hyperbolic",
        "hyperbolic_steps": 5_000_000,
        "a2c": {
            "entropy_coef": 0.01,
            # The learning rate reaches 0 after 80 million steps, of which this run has 50.
            "final_learning_rate": 7e-4 * (1 - 50 / 80),
            "image_encoder": "paper",
        },
        "reward": {
            "image_encoder": "paper",
            "ignore_actions": True,
            "batch_norm": True,
            "dropout": 0.5,
            "learning_rate": 2e-4,
            "batch_size": batch_size,
            "reward_std": 0.05,
            "label_buffer": 3_000,
        },
    }
