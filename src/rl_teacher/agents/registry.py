"""Every agent, by name."""

import gymnasium as gym

from rl_teacher.agents.agent import Agent
from rl_teacher.config import TeachConfig
from rl_teacher.errors import UnknownName

AGENTS = ("ppo",)


def check_agent(name: str) -> None:
    """Refuse an unknown name.

    Raises:
        UnknownName: and offers the nearest names.
    """
    if name not in AGENTS:
        raise UnknownName("agent", name, AGENTS)


def make_agent(config: TeachConfig, venv: gym.vector.VectorEnv) -> Agent:
    """A new agent for these environments.

    Raises:
        UnknownName: there is no such agent.
    """
    check_agent(config.agent)
    from rl_teacher.agents.ppo import PPO  # noqa: PLC0415 - heavy

    return PPO(
        venv.single_observation_space,
        venv.single_action_space,
        config.ppo,
        total_steps=config.num_timesteps,
        seed=config.seed,
    )


def num_envs_of(config: TeachConfig) -> int:
    """How many environments the agent wants stepped together."""
    return config.ppo.num_envs
