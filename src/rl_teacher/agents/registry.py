"""Every agent, by name: this package's own, other libraries', and those of the user."""

from collections.abc import Callable
from functools import partial
from importlib import import_module

import gymnasium as gym

from rl_teacher.agents.agent import Agent
from rl_teacher.agents.custom import custom_agent_class, installed_agents, make_custom_agent
from rl_teacher.agents.sb3.libraries import (
    ALGORITHMS,
    LIBRARIES,
    algorithm_class,
    check_algorithm,
    is_on_policy,
)
from rl_teacher.common.errors import BadInput, UnknownName
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.nn.encoders import image_layout_of

AGENTS = {
    "ppo": "rl_teacher.agents.ppo:PPO",
    "trpo": "rl_teacher.agents.trpo:TRPO",
    "a2c": "rl_teacher.agents.a2c:A2C",
    "ga3c": "rl_teacher.agents.ga3c:GA3C",
    "sac": "rl_teacher.agents.sac:SAC",
}
"""Where each of this package's own is, so that only the one that learns is loaded."""
IMAGE_AGENTS = ("ppo", "a2c", "ga3c")
"""Those of them that learn from pictures."""


def check_agent(config: TeachConfig) -> None:
    """Refuse what is no agent.

    Raises:
        UnknownName: there is none of this name; the nearest are offered.
        BadInput: it cannot be imported, is no agent, or has no such arguments.
    """
    name = config.agent
    if name in AGENTS:
        return
    if is_library_agent(name):
        check_algorithm(name, config.other)
    elif ":" in name or name in installed_agents():
        custom_agent_class(name)
    else:
        known = [*AGENTS, *installed_agents(), *ALGORITHMS, "module:Class"]
        raise UnknownName("agent", name, known)


def is_library_agent(name: str) -> bool:
    """Whether a name is that of another library's algorithm, such as `sb3:PPO`."""
    library, colon, _ = name.partition(":")
    return bool(colon) and library in LIBRARIES


def make_agent(config: TeachConfig, venv: gym.vector.VectorEnv) -> Agent:
    """A new agent for these environments.

    Raises:
        UnknownName: there is no such agent.
        BadInput: it cannot be made, or cannot act in them.
    """
    check_agent(config)
    check_supports_images(config.agent, venv.single_observation_space)
    return _maker(config.agent)(
        venv.single_observation_space,
        venv.single_action_space,
        config.agent_settings,
        total_steps=config.num_timesteps,
        seed=config.seed,
    )


def check_supports_images(name: str, observation_space: gym.Space) -> None:
    """Refuse pictures for who only learns from vectors.

    Raises:
        BadInput: it is one of those.
    """
    is_blind = name in AGENTS and name not in IMAGE_AGENTS
    if image_layout_of(observation_space) is None or not (is_blind or is_library_agent(name)):
        return
    raise BadInput(
        f"The observations are images of shape {observation_space.shape}, but {name} only accepts "
        f"vectors. Use -a {', '.join(IMAGE_AGENTS[:-1])} or {IMAGE_AGENTS[-1]}."
    )


def _maker(name: str) -> Callable[..., Agent]:
    if name in AGENTS:
        module, _, attribute = AGENTS[name].partition(":")
        return getattr(import_module(module), attribute)
    if not is_library_agent(name):
        return partial(make_custom_agent, name)
    if is_on_policy(algorithm_class(name)):
        from rl_teacher.agents.sb3.on_policy import (  # noqa: PLC0415 - brings torch
            OnPolicyLibraryAgent,
        )

        return partial(OnPolicyLibraryAgent, name)
    from rl_teacher.agents.sb3.off_policy import OffPolicyLibraryAgent  # noqa: PLC0415

    return partial(OffPolicyLibraryAgent, name)


def num_envs_for(config: TeachConfig) -> int:
    """How many environments the agent wants stepped together."""
    return config.agent_settings.num_envs
