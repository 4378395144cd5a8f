"""What is taught: environments by name, the MuJoCo suite, and what was lived in them."""

from rl_teacher.envs.registry import EnvCard, card, cards, make_vector, register_tasks
from rl_teacher.envs.teachable import TeachableVectorEnv

__all__ = ["EnvCard", "TeachableVectorEnv", "card", "cards", "make_vector"]

register_tasks()
