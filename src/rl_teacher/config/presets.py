"""Settings that go together: what `rl-teacher teach` begins with, before any flag is read."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from rl_teacher.config.agents import A2CConfig, GA3CConfig, PPOConfig
from rl_teacher.config.experiment import PredictorConfig

PresetName = Literal["vectors", "pictures", "paper-atari"]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)

LABELLED_DISCOUNT = 0.95
"""Of agents that see, where the reward comes from labels: they look ahead about as far as a clip.

A predicted reward says well which of two moves is better, and less well whether one place is better
than another. The errors of the latter are small, but an agent that stays somewhere adds them up,
and goes where they are largest: on MovingDot, with 0.99, instead of to the middle.
"""

LABELLED_ENTROPY_BONUS = 0.03
"""Of PPO there; 0.01 with the true reward. What a predicted reward says of an agent's own movements
is small and wrong, but it comes at once: on Pong, with 0.01, the agent moves as that says and no
longer comes to where the ball is.
"""


@dataclass(frozen=True)
class PresetChoice:
    """Which settings to begin with."""

    preset: PresetName | None = None
    """what the settings are before those that are given: as suits vectors, or pictures, or as the
    paper has them for Atari; without it, as suits the environment"""


def preset(name: PresetName, *, has_labels: bool) -> dict[str, Any]:
    """The fields of a `TeachConfig` that differ from its defaults.

    Args:
        name: `vectors` for MuJoCo and its like; `pictures` for Atari and other pictures, on a CPU;
            `paper-atari` as Christiano et al. 2017 (A.2) have it, which wants a GPU.
        has_labels: whether the reward comes from labels. An agent is then not told where episodes
            end, which would say something about the true reward; otherwise its rewards are clipped.
    """
    match name:
        case "vectors":
            return {}
        case "pictures":
            return _pictures(has_labels=has_labels) | _episodes(has_labels=has_labels)
        case "paper-atari":
            return _paper_atari() | _episodes(has_labels=has_labels)


def _episodes(*, has_labels: bool) -> dict[str, Any]:
    return {"hide_episode_ends": True} if has_labels else {"clip_reward": 1.0}


def _pictures(*, has_labels: bool) -> dict[str, Any]:
    """Source: Schulman et al. 2017, table 5, with twice the environments; A2C's entropy bonus."""
    discount = LABELLED_DISCOUNT if has_labels else PPOConfig.gamma
    return {
        "num_timesteps": 10_000_000,
        "ppo": PPOConfig(
            num_envs=16,
            rollout_steps=128,
            num_epochs=4,
            learning_rate=2.5e-4,
            final_learning_rate=0.0,
            gamma=discount,
            gae_lambda=0.95,
            clip_range=0.1,
            entropy_coef=LABELLED_ENTROPY_BONUS if has_labels else 0.01,
        ),
        "a2c": A2CConfig(gamma=discount, entropy_coef=0.01),
        "ga3c": GA3CConfig(num_envs=32, gamma=discount, entropy_coef=0.01),
    }


def _paper_atari() -> dict[str, Any]:
    """Clips are 25 steps at 15 a second; 500 comparisons come first, and 200 epochs learn from
    them; later the newest 3,000 are learned from.
    """
    batch_size = 32
    return {
        "agent": "a2c",
        "num_timesteps": 50_000_000,
        "n_labels": 5_500,
        "pretrain_labels": 500,
        "pretrain_iters": 200 * 500 // batch_size,
        "clip_length": 25 / 15,
        "schedule": "hyperbolic",
        "hyperbolic_steps": 5_000_000,
        "a2c": A2CConfig(
            entropy_coef=0.01,
            # Note: to 0 at 80 million steps, of which 50 are done.
            final_learning_rate=7e-4 * (1 - 50 / 80),
            image_encoder="paper",
        ),
        "reward": PredictorConfig(
            image_encoder="paper",
            ignore_actions=True,
            batch_norm=True,
            dropout=0.5,
            learning_rate=2e-4,
            batch_size=batch_size,
            reward_std=0.05,
            label_buffer=3_000,
        ),
    }
