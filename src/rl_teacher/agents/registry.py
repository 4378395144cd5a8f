"""All agents by name: built-in ones, those of other libraries, and those of the user."""

import math
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np

from rl_teacher.agents.agent import LEARNING_RATE_ARGUMENT, Agent, agent_diverged
from rl_teacher.agents.custom import custom_agent_class, make_custom_agent
from rl_teacher.agents.sb3.libraries import (
    ALGORITHMS,
    LIBRARIES,
    algorithm_class,
    check_algorithm,
    is_on_policy,
)
from rl_teacher.common.errors import BadConfig, BadInput, UnknownName
from rl_teacher.config import predecessors
from rl_teacher.config.agents import AgentConfig, OtherAgentConfig
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.nn.encoders import image_layout_of

AGENTS = {
    "ppo": "rl_teacher.agents.ppo:PPO",
    "trpo": "rl_teacher.agents.trpo:TRPO",
    "a2c": "rl_teacher.agents.a2c:A2C",
    "ga3c": "rl_teacher.agents.ga3c:GA3C",
    "sac": "rl_teacher.agents.sac:SAC",
}
"""Built-in agents as `module:Class`, so that only the module of the chosen one is imported."""
IMAGE_AGENTS = ("ppo", "a2c", "ga3c")
"""Built-in agents that learn from images."""


def check_agent(config: TeachConfig) -> None:
    """Check that the agent exists and accepts its arguments.

    Raises:
        UnknownName: there is no agent of this name; the error suggests the nearest ones.
        BadInput: it cannot be imported, is not an agent, has no such arguments, or was renamed.
    """
    name = config.agent
    if name in AGENTS:
        return
    if is_library_agent(name):
        check_algorithm(name, config.other)
    elif ":" in name:
        custom_agent_class(name)
    else:
        predecessors.check_agent_name(name)
        known = [*AGENTS, *ALGORITHMS, "module:Class"]
        raise UnknownName("agent", name, known)


def is_library_agent(name: str) -> bool:
    """Return whether a name denotes an algorithm of another library, such as `sb3:PPO`."""
    library, colon, _ = name.partition(":")
    return bool(colon) and library in LIBRARIES


def make_agent(config: TeachConfig, venv: gym.vector.VectorEnv) -> Agent:
    """Create an agent for a vector environment.

    Raises:
        UnknownName: there is no such agent.
        BadInput: it cannot be created, or cannot act in the environment.
    """
    name = config.agent
    check_agent(config)
    check_supports_images(name, venv.single_observation_space)
    construct: Any
    if name in AGENTS:
        module, _, attribute = AGENTS[name].partition(":")
        construct = getattr(import_module(module), attribute)
    elif not is_library_agent(name):
        construct = partial(make_custom_agent, name)
    elif is_on_policy(algorithm_class(name)):
        # Imported here, since torch takes seconds.
        from rl_teacher.agents.sb3.on_policy import OnPolicyLibraryAgent  # noqa: PLC0415

        construct = partial(OnPolicyLibraryAgent, name)
    else:
        from rl_teacher.agents.sb3.off_policy import OffPolicyLibraryAgent  # noqa: PLC0415

        construct = partial(OffPolicyLibraryAgent, name)
    agent = construct(
        venv.single_observation_space,
        venv.single_action_space,
        config.agent_settings,
        total_steps=config.total_steps,
        seed=config.seed,
    )
    steps = getattr(agent, "rollout_steps", None)
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise BadConfig(
            f"The agent {name} has rollout_steps = {steps!r}; a positive integer is needed. Agents "
            "of other libraries have it from --other.arguments n_steps=... or train_freq=..."
        )
    return agent


def check_losses(name: str, settings: AgentConfig, metrics: Mapping[str, float]) -> None:
    """Check that an update returned metrics, and that its losses are finite.

    Args:
        name: name of the agent.
        settings: its settings.
        metrics: what `learn` returned.

    Raises:
        BadInput: a custom agent returned no mapping.
        Diverged: a loss is not finite; the text names the setting to lower.
    """
    if not isinstance(metrics, Mapping):
        raise BadInput(
            f"`learn` of the agent {name} returned {metrics!r:.100}; a dict of metrics by "
            "name is needed, such as {'policy_loss': 0.5}, or {} if there are none."
        )
    wrong = {
        metric: value
        for metric, value in metrics.items()
        # Other metrics may be undefined, such as a variance that Stable-Baselines3 explains.
        if "loss" in metric and not math.isfinite(value)
    }
    if wrong:
        setting = LEARNING_RATE_ARGUMENT
        if not isinstance(settings, OtherAgentConfig):
            setting = f"--{name}.learning-rate (now {settings.learning_rate:g})"
        values = ", ".join(f"{metric} is {value}" for metric, value in wrong.items())
        raise agent_diverged(values, setting)


def check_supports_images(name: str, observation_space: gym.Space) -> None:
    """Refuse image observations for agents that only learn from vectors.

    Raises:
        BadInput: the agent is one of them.
    """
    if (layout := image_layout_of(observation_space)) is None:
        return
    is_vector_agent = (name in AGENTS and name not in IMAGE_AGENTS) or name.startswith("sbx:")
    if not is_vector_agent and not (layout.vector_size and is_library_agent(name)):
        return
    vector = f", each with a vector of size {layout.vector_size}" if layout.vector_size else ""
    raise BadInput(
        f"The observations are images of shape {layout.shape}{vector}, which {name} does not "
        f"accept. Use -a {', '.join(IMAGE_AGENTS[:-1])} or {IMAGE_AGENTS[-1]}."
    )
