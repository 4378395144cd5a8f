"""Environments: registry, preprocessing, rollouts, replay, MuJoCo suite and Atari games."""

from rl_teacher.envs.interface import StatefulVectorEnv
from rl_teacher.envs.registry import (
    EnvInfo,
    get_env_info,
    list_env_infos,
    make_vector,
    register_tasks,
)

__all__ = ["EnvInfo", "StatefulVectorEnv", "get_env_info", "list_env_infos", "make_vector"]

register_tasks()
