"""What is taught: environments by name, the MuJoCo suite, and what was lived in them."""

from rl_teacher.envs.interface import TeachableVectorEnv
from rl_teacher.envs.registry import EnvCard, card, cards, make_vector, register_tasks

__all__ = ["EnvCard", "TeachableVectorEnv", "card", "cards", "make_vector"]

register_tasks()
