"""An agent of your own: what it needs, and a base class that has the rest.

    class MyAgent(OwnAgent):
        remembers = ("weights",)

        def act(self, observations, masks=None): ...
        def learn(self, rollout, rewards): ...

`-a module:MyAgent` finds it, and so does `-a NAME` where a package's entry points have it in the
group `rl_teacher.agents`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from jaxtyping import Float, Shaped

from rl_teacher.agents.actions import Masks
from rl_teacher.agents.agent import Agent, RewardsOf
from rl_teacher.agents.arguments import parse_arguments
from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.common.state_dict import StateDict, array_to_rng, rng_to_array
from rl_teacher.config.agents import OtherAgentConfig
from rl_teacher.envs.rollout import Rollout

GROUP = "rl_teacher.agents"
"""Entry points of packages that bring agents."""
METHODS = (
    *("act", "try_out", "act_best", "observe", "learn", "relabel_buffer"),
    *("reinitialise", "warm_start_from", "state", "load_state"),
)
"""What the loop calls."""


class OwnAgent(ABC):
    """An agent of which only `act` and `learn` are missing.

    Attributes:
        rollout_steps: steps of each environment between two calls of `learn`.
        remembers: names of attributes, arrays or numbers, that `state` saves and `load_state` puts
            back; random numbers from `self.rng` go on by themselves.
        observation_space: of one environment.
        action_space: of one environment.
        num_envs: N.
        total_steps: environment steps of the whole run.
        arguments: by name, what --other.arguments gave.
        rng: the one source of random numbers.
    """

    rollout_steps: int = 64
    remembers: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        settings: OtherAgentConfig,
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.num_envs = settings.num_envs
        self.total_steps = total_steps
        self.arguments = parse_arguments(settings.arguments)
        self.rng = np.random.default_rng([seed, 1])
        self._settings = settings

    @abstractmethod
    def act(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """Actions for N environments, ready to be given to them; see `Agent.act`."""

    @abstractmethod
    def learn(self, rollout: Rollout, rewards: Float[np.ndarray, "time env"]) -> dict[str, float]:
        """Improve on one rollout, rewarded as told; figures to report, by name."""

    def try_out(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """Actions of a rollout that nothing is learned from; here, those of `act`."""
        return self.act(observations, masks)

    def act_best(
        self, observations: Shaped[np.ndarray, "env ..."], masks: Masks = None
    ) -> Shaped[np.ndarray, "env ..."]:
        """The actions it thinks best, for watching it; here, those of `act`."""
        return self.act(observations, masks)

    def observe(self, rollout: Rollout) -> None:  # noqa: B027 - few need to
        """Learn what can be learned without rewards; here, nothing."""

    def relabel_buffer(self, rewards_of: RewardsOf) -> None:  # noqa: B027
        """The predictor was fitted; here, nothing."""

    def reinitialise(self) -> None:
        """Forget what was learned; here, as made anew with another seed."""
        seed = int(self.rng.integers(2**31))
        spaces = self.observation_space, self.action_space
        self.__init__(*spaces, self._settings, total_steps=self.total_steps, seed=seed)

    def warm_start_from(self, state: Mapping[str, np.ndarray]) -> None:
        """Begin as another agent of this kind is; here, with all that it remembers.

        Raises:
            BadConfig: what it remembers has other shapes.
        """
        own = self._remembered()
        shapes = {name: array.shape for name, array in own.items()}
        given = {name: state[name].shape if name in state else None for name in own}
        if given != shapes:
            raise BadConfig(
                f"The agent to begin with remembers {given}, and this one {shapes}. Give the "
                "environment and the --other.arguments that it had."
            )
        self._recall({name: state[name] for name in own})

    def state(self) -> StateDict:
        """Everything needed to go on exactly, as named arrays."""
        return {**self._remembered(), "rng": rng_to_array(self.rng)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state."""
        self._recall(state)
        array_to_rng(self.rng, state["rng"])

    def _remembered(self) -> StateDict:
        return {name: np.array(getattr(self, name)) for name in self.remembers}

    def _recall(self, state: Mapping[str, np.ndarray]) -> None:
        for name in self.remembers:
            is_array = isinstance(getattr(self, name), np.ndarray)
            setattr(self, name, state[name].copy() if is_array else state[name].item())


def installed_agents() -> dict[str, Any]:
    """Entry points of agents, by name."""
    return {each.name: each for each in entry_points(group=GROUP)}


def own_agent_class(name: str) -> Callable[..., Agent]:
    """A class of one's own, from `module:Class` or from an entry point's name.

    Raises:
        BadInput: it cannot be imported.
        BadConfig: it is no agent.
    """
    try:
        if ":" in name:
            module, _, attribute = name.partition(":")
            found = getattr(import_module(module), attribute)
        else:
            found = installed_agents()[name].load()
    except Exception as error:
        raise BadInput(
            f"The agent {name} cannot be imported: {type(error).__name__}: {error}. It must be "
            "module:Class, and the module must be on Python's path (PYTHONPATH=. for the current "
            "folder)."
        ) from error
    missing = [each for each in METHODS if not callable(getattr(found, each, None))]
    if not isinstance(found, type) or missing:
        lacks = f"it lacks {', '.join(missing)}" if isinstance(found, type) else "it is no class"
        raise BadConfig(
            f"{name} is no agent: {lacks}. Derive it from rl_teacher.agents.custom.OwnAgent, which "
            "has all but act and learn."
        )
    return found


def make_own_agent(
    name: str,
    observation_space: gym.Space,
    action_space: gym.Space,
    settings: OtherAgentConfig,
    *,
    total_steps: int,
    seed: int,
) -> Agent:
    """A new agent of a class of one's own.

    Raises:
        BadInput: it cannot be imported, or its constructor raised.
        BadConfig: it is no agent.
    """
    make = own_agent_class(name)
    try:
        agent = make(observation_space, action_space, settings, total_steps=total_steps, seed=seed)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"The agent {name} could not be made: its constructor raised {type(error).__name__}: "
            f"{error}. It is given (observation_space, action_space, settings, *, total_steps, "
            "seed). Mend it, or --other.arguments."
        ) from error
    steps = getattr(agent, "rollout_steps", None)
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise BadConfig(
            f"The agent {name} has rollout_steps = {steps!r}; a whole number above 0 is needed."
        )
    return agent
