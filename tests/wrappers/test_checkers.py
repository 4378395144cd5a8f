"""Tests of wrapped environments with the checkers of Gymnasium and Stable-Baselines3."""

import warnings

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

from rl_teacher import PreferenceWrapper
from tests.wrappers.environments import KINDS, QUICK

IDS = ["Pendulum-v1", "CartPole-v1", *(f"wrapped/{kind}-v0" for kind in KINDS)]
CASES = [
    *((env_id, False) for env_id in IDS),
    *((env_id, True) for env_id in IDS if "Pictures" not in env_id),
    pytest.param("wrapped/Pictures-v0", True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("env_id", "is_predicted"), CASES)
def test_wrapped_environment_passes_checkers(env_id, is_predicted):
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    env = PreferenceWrapper(gym.make(env_id, disable_env_checker=True), **QUICK)
    if is_predicted:
        env.pretrain()
    with warnings.catch_warnings():
        # Raised for these environments without a wrapper, too.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized.*")
        check_for_sb3(env, skip_render_check=True)
        # Raised for every wrapper, and for these environments without one.
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        warnings.filterwarnings("ignore", message=".*infinity.*")
        check_env(env, skip_render_check=True)
    env.close()
