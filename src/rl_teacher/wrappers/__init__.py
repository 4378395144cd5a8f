"""The loop of `teach.py` inside somebody else's: environments that return the predicted reward."""

from typing import TYPE_CHECKING

from rl_teacher.common.errors import BadInput
from rl_teacher.wrappers.settings import WrapperSettings
from rl_teacher.wrappers.single import PreferenceWrapper
from rl_teacher.wrappers.vector import PreferenceVectorWrapper

if TYPE_CHECKING:
    import gymnasium
    from stable_baselines3.common.vec_env import VecEnv

__all__ = ["PreferenceVectorWrapper", "PreferenceWrapper", "WrapperSettings", "to_sb3"]


def to_sb3(venv: "gymnasium.vector.VectorEnv") -> "VecEnv":
    """Any Gymnasium vector environment as Stable-Baselines3 wants it.

    Raises:
        BadInput: Stable-Baselines3 is not installed.
    """
    try:
        from rl_teacher.wrappers.sb3 import GymnasiumVecEnv  # noqa: PLC0415 - brings torch
    except ImportError as error:
        raise BadInput(
            f"to_sb3 needs Stable-Baselines3, which cannot be imported: {error}. Install it with "
            'pip install "rl-teacher[sb3]".'
        ) from error
    return GymnasiumVecEnv(venv)
