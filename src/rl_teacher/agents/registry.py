"""Every agent, by name."""

from importlib import import_module

import gymnasium as gym

from rl_teacher.agents.agent import Agent
from rl_teacher.config import TeachConfig
from rl_teacher.errors import UnknownName

AGENTS = {
    "ppo": "rl_teacher.agents.ppo:PPO",
    "trpo": "rl_teacher.agents.trpo:TRPO",
    "a2c": "rl_teacher.agents.a2c:A2C",
    "ga3c": "rl_teacher.agents.ga3c:GA3C",
    "sac": "rl_teacher.agents.sac:SAC",
}
"""Where each is, so that only the one that learns is loaded."""


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
        BadConfig: it cannot act in them.
    """
    check_agent(config.agent)
    module, _, name = AGENTS[config.agent].partition(":")
    make = getattr(import_module(module), name)
    return make(
        venv.single_observation_space,
        venv.single_action_space,
        config.agent_settings,
        total_steps=config.num_timesteps,
        seed=config.seed,
    )


def num_envs_of(config: TeachConfig) -> int:
    """How many environments the agent wants stepped together."""
    return config.agent_settings.num_envs
