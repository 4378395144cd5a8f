"""Environment wrappers that return the predicted reward in the user's own training loop."""

from typing import TYPE_CHECKING

from rl_teacher.common.errors import MissingExtra
from rl_teacher.wrappers.settings import WrapperSettings
from rl_teacher.wrappers.single import PreferenceWrapper
from rl_teacher.wrappers.vector import PreferenceVectorWrapper

if TYPE_CHECKING:
    import gymnasium
    from stable_baselines3.common.vec_env import VecEnv

__all__ = ["PreferenceVectorWrapper", "PreferenceWrapper", "WrapperSettings", "to_sb3"]


def to_sb3(venv: "gymnasium.vector.VectorEnv") -> "VecEnv":
    """Convert a Gymnasium vector environment to a Stable-Baselines3 VecEnv.

    Raises:
        MissingExtra: Stable-Baselines3 is not installed.
    """
    try:
        from rl_teacher.wrappers.sb3 import GymnasiumVecEnv  # noqa: PLC0415 - brings torch
    except ImportError as error:
        raise MissingExtra("to_sb3 needs Stable-Baselines3", "sb3", error) from error
    return GymnasiumVecEnv(venv)
